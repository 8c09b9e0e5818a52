/**
 * The connection to the scheduler: one event stream, whose rows are kept in tables by section.
 *
 * The stream begins with all rows of a section, then sends what changes. After an interruption it goes on where it
 * ended; the server decides whether that is possible, and otherwise begins again with all rows.
 */

import { Events, setToken } from './events.js';

/** @typedef {{state: 'deciding'|'standby'|'unready', problem: string, leader: string, mode: string, version: string}} Replica */
/** @typedef {Map<string, any>} Rows */

const SILENCE_MS = 25_000;
const PAUSES_MS = [500, 1000, 2000, 5000, 10_000];
const STANDBY_MS = 3000;
const HIDDEN_MS = 60_000;

export class Live {
  constructor() {
    /** @type {Map<string, Rows>} */
    this.tables = new Map();
    /** @type {Map<string, Rows>} Tables of which only the first rows have come; they are shown when all have. */
    this.begun = new Map();
    /** @type {Map<string, number>} Grows with each change of a table. */
    this.versions = new Map();
    /** @type {Replica|null} */
    this.replica = null;
    /** @type {Set<string>} Sections that the server could not refresh. */
    this.failed = new Set();
    /** @type {'connecting'|'open'|'lost'|'refused'} */
    this.connection = 'connecting';
    this.refusal = { status: 0, text: '' };
    /** The user, by the token; empty where the page does not authenticate its readers, who then see everything. */
    this.user = '';
    /** When the last event came, in milliseconds of Unix time; 0 before the first. */
    this.heardAt = 0;
    /** @type {string[]|null} The sections that are followed; null before the first. */
    this.sections = null;
    this.cursor = '';
    this.attempts = 0;
    /** @type {Events|null} */
    this.source = null;
    /** @type {Set<() => void>} */
    this.listeners = new Set();
    this.timer = 0;
    this.isScheduled = false;
    setInterval(() => this.watch(), 1000);
    document.addEventListener('visibilitychange', () => this.setVisible(!document.hidden));
    this.hiddenTimer = 0;
  }

  /** @param {string} section @returns {Rows|null} The rows, null until they have come. */
  rows(section) {
    return this.tables.get(section) ?? null;
  }

  /** @param {string} section */
  version(section) {
    return this.versions.get(section) ?? 0;
  }

  /** Call `listener` after each change, at most once a frame. @param {() => void} listener */
  subscribe(listener) {
    this.listeners.add(listener);
    return () => { this.listeners.delete(listener); };
  }

  /** Follow exactly these sections. @param {string[]} sections */
  follow(sections) {
    const wanted = [...new Set(sections)].sort();
    if (this.sections && wanted.join() === this.sections.join()) return;
    this.sections = wanted;
    for (const name of this.tables.keys()) if (!wanted.includes(name)) this.drop(name);
    this.cursor = this.cursor.split(';').filter((part) => wanted.includes(part.split('=')[0])).join(';');
    this.open();
  }

  /** @param {string} name */
  drop(name) {
    this.tables.delete(name);
    this.versions.delete(name);
  }

  open() {
    this.close();
    const query = new URLSearchParams((this.sections ?? []).map((name) => ['section', name]));
    if (this.cursor) query.set('after', this.cursor);
    this.begun.clear();
    const source = new Events(`events?${query}`);
    this.source = source;
    /** @type {(name: string, act: (event: any) => void) => void} */
    const on = (name, act) => source.addEventListener(name, act);
    on('open', () => this.heard());
    on('beat', () => this.heard());
    on('replica', (event) => this.setReplica(JSON.parse(event.data)));
    on('rows', (event) => this.setRows(JSON.parse(event.data), event.lastEventId));
    on('end', () => this.open());
    on('lost', () => this.lost());
    on('refused', (event) => this.refused(event.detail));
  }

  close() {
    clearTimeout(this.timer);
    this.source?.close();
    this.source = null;
  }

  heard() {
    this.heardAt = Date.now();
    this.attempts = 0;
    this.connection = 'open';
    this.changed();
  }

  lost() {
    this.close();
    this.connection = 'lost';
    this.retry();
  }

  /** @param {{status: number, text: string}} refusal */
  refused(refusal) {
    this.close();
    this.connection = 'refused';
    this.refusal = refusal;
    if (refusal.status === 401) this.changed(); // until a token is given
    else this.retry();
  }

  retry() {
    const pause = PAUSES_MS[Math.min(this.attempts, PAUSES_MS.length - 1)];
    this.attempts += 1;
    this.timer = setTimeout(() => this.open(), pause);
    this.changed();
  }

  /** Read the page with this bearer token. @param {string} token */
  signIn(token) {
    setToken(token);
    this.connection = 'connecting';
    this.open();
    this.changed();
  }

  /** Close a connection over which nothing comes any more. */
  watch() {
    if (this.source && this.connection === 'open' && Date.now() - this.heardAt > SILENCE_MS) this.lost();
  }

  /** A page that is not looked at follows nothing. @param {boolean} visible */
  setVisible(visible) {
    clearTimeout(this.hiddenTimer);
    if (!visible) this.hiddenTimer = setTimeout(() => this.close(), HIDDEN_MS);
    else if (!this.source && this.sections) this.open();
  }

  /** @param {{replica: Replica, failed: string[], user: string}} content */
  setReplica({ replica, failed, user }) {
    this.replica = replica;
    this.user = user;
    this.failed = new Set(failed);
    clearTimeout(this.timer);
    // Another connection may come to the replica that leads.
    if (replica.state === 'standby') this.timer = setTimeout(() => this.open(), STANDBY_MS);
    this.heard();
  }

  /** @param {{section: string, reset: boolean, rows: Record<string, any>, removed: string[], end: boolean}} content @param {string} id */
  setRows({ section, reset, rows, removed, end }, id) {
    if (!this.sections?.includes(section)) return;
    const table = reset ? new Map() : this.begun.get(section) ?? this.tables.get(section) ?? new Map();
    for (const key of Object.keys(rows)) table.set(key, rows[key]);
    for (const key of removed) table.delete(key);
    if (!end) {
      this.begun.set(section, table);
      this.heardAt = Date.now();
      return;
    }
    this.begun.delete(section);
    this.tables.set(section, table);
    this.versions.set(section, this.version(section) + 1);
    if (id) this.cursor = id;
    this.heard();
  }

  changed() {
    if (this.isScheduled) return;
    this.isScheduled = true;
    requestAnimationFrame(() => {
      this.isScheduled = false;
      for (const listener of this.listeners) listener();
    });
  }
}

export const live = new Live();
