/** One card: who has which slice of it, its last hour, and how it is connected; and the parts that a node's page shows. */

import { html } from '../vendor/preact-htm.js';
import { cores, memory, percent, plural } from '../format.js';
import { Bar, Head, nodeLink, podLink } from '../ui.js';
import { CordonButton, useMayCordon } from './cordon.js';

const TIERS = ['linked', 'same CPU', 'other CPU', 'not known'];

/** The rows of a node by their kinds. @param {Map<string, any>} table */
export function read(table) {
  const rows = [...table.values()];
  /** @type {Map<string, any[]>} */
  const shares = new Map();
  for (const each of rows) if (each.kind === 'share' || each.kind === 'reserved') shares.set(each.uuid, [...(shares.get(each.uuid) ?? []), each]);
  return {
    node: table.get('node'),
    cards: rows.filter((each) => each.kind === 'card').sort((one, other) => one.position - other.position),
    shares,
    past: new Map(rows.filter((each) => each.kind === 'history').map((each) => [each.uuid, each])),
  };
}

/** @param {number} tier @param {number} bandwidth */
export function linkBetween(tier, bandwidth) {
  return bandwidth ? `${bandwidth} GB/s` : TIERS[tier];
}

/** @param {any} card */
function nameOf(card) {
  return `${card.parent ? 'MIG instance' : 'Card'} ${card.index}${card.profile && ` · ${card.profile}`}`;
}

/** @param {{argument: string, live: import('../stream.js').Live}} props The node and the UUID. */
function View({ argument, live }) {
  const name = nodeOf(argument);
  const uuid = argument.slice(name.length + 1);
  const table = live.rows(`node:${name}`);
  const mayCordon = useMayCordon(name, live.user);
  if (!table) return html`<${Head} title=${uuid} /><p class="empty">Reading the card…</p>`;
  const { node, cards, shares, past } = read(table);
  const card = cards.find((each) => each.uuid === uuid);
  if (!card) return html`<${Head} title=${uuid}><span>${nodeLink(name)}</span><//><p class="empty">The node has no such card.</p>`;
  /** @type {(each: any) => any} */
  const shown = (each) => html`<${Card} key=${each.uuid} node=${name} mayCordon=${mayCordon} card=${each} shares=${shares.get(each.uuid) ?? []} past=${past.get(each.uuid)} />`;
  const instances = cards.filter((each) => each.parent === uuid);
  return html`
    <${Head} title=${nameOf(card)}><span>of ${nodeLink(name)}</span><//>
    <section><h2>Slices</h2><ul class="plain card cards">${shown(card)}</ul></section>
    ${instances.length > 0 && html`<section><h2>MIG instances</h2><ul class="plain card cards">${instances.map(shown)}</ul></section>`}
    ${node?.links && html`<${Connections} links=${node.links} card=${card} cards=${cards} />`}`;
}

/** How one card is connected with the others. @param {{links: [number[], number[][], number[][]], card: any, cards: any[]}} props */
function Connections({ links: [ids, tiers, bandwidth], card, cards }) {
  const row = ids.indexOf(card.index);
  if (card.parent || row < 0 || ids.length < 2) return null;
  return html`<section><h2>Connections</h2><ul class="plain card">${ids.map((id, column) => column !== row && html`<li key=${id}>
    Card ${id}: ${linkBetween(tiers[row][column], bandwidth[row][column])} <span class="muted break">${cards.find((each) => each.index === id && !each.parent)?.uuid}</span></li>`)}</ul></section>`;
}

/** @param {string} argument */
function nodeOf(argument) {
  return argument.split('/', 1)[0];
}

/** The memory in use over the last hour; minutes of which nothing is known are gaps. @param {{past: any, total: number}} props */
function Past({ past, total }) {
  /** @type {number[]} */
  const amounts = past.memoryMiB;
  const known = amounts.filter((each) => each >= 0);
  if (known.length < 2) return html`<p class="muted">The last hour is not known yet.</p>`;
  const text = `Memory in use in the last ${plural(known.length, 'minute')}: ${memory(Math.min(...known))} to ${memory(Math.max(...known))}`;
  return html`<svg class="past" viewBox="0 0 60 20" preserveAspectRatio="none" role="img" aria-label=${text}><title>${text}</title>
    ${amounts.map((each, minute) => each >= 0 && html`<rect x=${minute} width="1" y=${20 - Math.max(0.4, (20 * Math.min(each, total)) / total)} height=${Math.max(0.4, (20 * Math.min(each, total)) / total)} />`)}</svg>
    <p class="muted past-ends"><span>1 h ago</span><span>now</span></p>`;
}

/** @param {{node: string, mayCordon: boolean, card: any, shares: any[], past: any}} props */
export function Card({ node, mayCordon, card, shares, past }) {
  const [total, used] = [card.total, card.used];
  const sorted = [...shares].sort((one, other) => other.memoryMiB - one.memoryMiB || (one.pod < other.pod ? -1 : 1));
  const isEmpty = !sorted.length;
  return html`<li>
    <div>
      <h3><a href=${`#/card/${encodeURIComponent(node)}/${card.uuid.split('/').map(encodeURIComponent).join('/')}`}>${nameOf(card)}</a></h3>
      <p class="muted">${card.model || 'unknown model'}</p>
      <p class="muted break mono">${card.uuid}</p>
      <p class="pills">
        ${card.mode && html`<span class="pill">${card.mode}</span>`}
        ${card.numa >= 0 && html`<span class="pill">NUMA ${card.numa}</span>`}
        ${!card.healthy && html`<span class="pill bad">unhealthy</span>`}
        ${card.cordoned && html`<span class="pill warn">cordoned</span>`}
      </p>
      ${mayCordon && !card.parent && html`<${CordonButton} node=${node} card=${card} />`}
      ${past && html`<${Past} past=${past} total=${total[0]} />`}
      ${!card.healthy && html`<p class="muted break">${card.message || 'the reason is not known'}</p>`}
    </div>
    <div>
      <${Bar} label=${`${memory(used[0])} of ${memory(total[0])} in use`} parts=${sorted.map((share) => ({
        part: share.whole ? 1 : share.memoryMiB / total[0],
        title: `${share.pod || share.by}: ${share.whole ? 'whole card' : memory(share.memoryMiB)}`,
        name: share.kind === 'reserved' ? 'reserved' : '',
      }))} />
      <p class="muted">${memory(used[0])} of ${memory(total[0])}, ${percent(used[1], total[1])} of the compute, ${used[2]} of ${plural(total[2], 'slot')} in use</p>
      <ul class="plain">${sorted.map((share) => html`<li class="share" key=${`${share.pod}/${share.container}`}>
        <span>${share.kind === 'reserved' ? html`<span class="pill">${RESERVED[share.by] ?? share.by}</span> ` : ''}${share.pod ? podLink(share.pod) : ''}
          ${share.container && html` <span class="muted">${share.container}</span>`}${share.claim && html` <span class="pill">claim ${share.claim}</span>`}
          ${share.kind === 'share' && !share.container && html` <span class="pill">binding</span>`}</span>
        <span>${share.whole ? 'whole' : memory(share.memoryMiB)}</span><span class=${share.cores ? '' : 'muted'}>${share.whole ? '' : share.cores ? cores(share.cores) : '–'}</span></li>`)}
      ${isEmpty && html`<li class="muted">${!used[2] ? 'Idle.' : card.mode === 'mig' && !card.parent ? 'Pods have its MIG instances.' : 'Its pods are not shown to you.'}</li>`}</ul>
    </div>
  </li>`;
}

/** @type {Record<string, string>} */
const RESERVED = { hold: 'held for', lease: 'closed by a Lease', dra: 'another DRA driver' };

/** @type {import('./index.js').Section} */
export const card = {
  name: 'card',
  inNavigation: false,
  title: (argument) => argument.slice(nodeOf(argument).length + 1),
  follows: (argument) => [`node:${nodeOf(argument)}`],
  View,
};
