/** Parts that several sections show. All text is put into text nodes; nothing is ever read as HTML. */

import { authorisation } from './events.js';
import { html, useEffect, useState } from './vendor/preact-htm.js';

const FIRST_ROWS = 40;
const MORE_ROWS = 100;

/** @param {string} name Namespace and name. */
export function podLink(name) {
  return html`<a class="break" href=${`#/pod/${name.split('/').map(encodeURIComponent).join('/')}`}>${name}</a>`;
}

/** @param {string} name */
export function nodeLink(name) {
  return html`<a class="break" href=${`#/node/${encodeURIComponent(name)}`}>${name}</a>`;
}

/** @param {{title: string, children?: any}} props */
export function Head({ title, children }) {
  return html`<div class="head"><h1>${title}</h1>${children}</div>`;
}

/** A figure with its name. @param {{name: string, value: any, detail?: any, title?: string}} props */
export function Figure({ name, value, detail, title }) {
  return html`<div><dt>${name}</dt><dd>${value}</dd>${detail != null && html`<dd class="detail" title=${title ?? undefined}>${detail}</dd>`}</div>`;
}

/**
 * A bar of parts, given as fractions of its length; `mark` is a fraction that is marked.
 * @param {{parts: {part: number, title?: string, name?: string}[], mark?: number|null, label: string}} props
 */
export function Bar({ parts, mark, label }) {
  return html`<div class="bar" role="img" aria-label=${label} title=${label}>
    ${parts.map(({ part, title, name }) => html`<i class=${name ?? ''} title=${title}
      style=${{ width: `${Math.min(100, Math.max(0, part * 100))}%` }}></i>`)}
    ${mark != null && html`<b style=${{ left: `calc(${Math.min(100, mark * 100)}% - 1px)` }}></b>`}
  </div>`;
}

/**
 * One of several values. @template T
 * @param {{label: string, value: T, values: [T, string][], onChange: (value: T) => void}} props
 */
export function Choice({ label, value, values, onChange }) {
  return html`<div class="choice" role="group" aria-label=${label}>
    ${values.map(([each, text]) => html`<button type="button" aria-pressed=${String(each === value)}
      onClick=${() => onChange(each)}>${text}</button>`)}
  </div>`;
}

/** @param {{label: string, value: string, onChange: (value: string) => void}} props */
export function Search({ label, value, onChange }) {
  return html`<input type="search" aria-label=${label} placeholder=${label} value=${value} spellcheck=${false}
    onInput=${(/** @type {any} */ event) => onChange(event.target.value)} />`;
}

/**
 * A table that begins with its first rows and shows more on request.
 * @template T
 * @param {{label: string, columns: {name: string, number?: boolean}[], rows: T[], row: (row: T) => any, empty: string}} props
 */
export function Rows({ label, columns, rows, row, empty }) {
  const [shown, setShown] = useState(FIRST_ROWS);
  if (!rows.length) return html`<p class="empty">${empty}</p>`;
  return html`
    <div class="scroll" tabindex="0" role="region" aria-label=${label}>
      <table>
        <thead><tr>${columns.map(({ name, number }) => html`<th scope="col" class=${number ? 'number' : ''}>${name}</th>`)}</tr></thead>
        <tbody>${rows.slice(0, shown).map((each) => labelled(row(each), columns))}</tbody>
      </table>
    </div>
    ${rows.length > shown && html`<button type="button" class="more" onClick=${() => setShown(shown + MORE_ROWS)}>
      Show more (${(rows.length - shown).toLocaleString('en')} left)</button>`}`;
}

/**
 * A row whose cells have the names of their columns, which are shown before them where the page is narrow.
 * @param {any} line @param {{name: string}[]} columns
 */
function labelled(line, columns) {
  line.props.children.forEach((/** @type {any} */ cell, /** @type {number} */ place) => { cell.props['data-name'] = columns[place].name; });
  return line;
}

/** Milliseconds of now, every second. */
export function useNow() {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, []);
  return now;
}

/**
 * What a request returns, again whenever `key` changes. The address is relative to the page; nothing is asked without.
 * @param {string} address @param {unknown} key
 * @returns {{content: any, error: string}}
 */
export function useFetched(address, key) {
  const [result, setResult] = useState({ content: null, error: '' });
  useEffect(() => {
    if (!address) return undefined;
    const ended = new AbortController();
    fetchJson(address, { signal: ended.signal }).then(
      (content) => setResult({ content, error: '' }),
      (error) => { if (!ended.signal.aborted) setResult((before) => ({ ...before, error: error.message })); },
    );
    return () => ended.abort();
  }, [address, key]);
  return result;
}

/**
 * @param {string} address @param {RequestInit & {headers?: Record<string, string>}} [how]
 * @returns {Promise<any>}
 */
export async function fetchJson(address, how) {
  const response = await fetch(address, { ...how, headers: { ...how?.headers, ...authorisation() } });
  const text = await response.text();
  let content = null;
  try { content = JSON.parse(text); } catch { content = null; }
  if (!response.ok) throw new Error(content?.error ?? (text.slice(0, 300) || `HTTP ${response.status}`));
  return content;
}

/** @type {Record<string, string>} */
let meanings = {};
fetchJson('reasons').then((content) => { meanings = content; }, () => {});

/** What the code of a reason means; empty if it is not known. @param {string} code */
export function meaning(code) {
  return meanings[code] ?? '';
}
