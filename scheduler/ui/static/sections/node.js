/** One node: its cards, who has which slice of each, and how they are connected. */

import { html } from '../vendor/preact-htm.js';
import { Head } from '../ui.js';
import { Card, linkBetween, read } from './card.js';
import { useMayCordon } from './cordon.js';

/** @param {{argument: string, live: import('../stream.js').Live}} props */
function View({ argument, live }) {
  const table = live.rows(`node:${argument}`);
  const mayCordon = useMayCordon(argument, live.user);
  if (!table) return html`<${Head} title=${argument} /><p class="empty">Reading the node…</p>`;
  const { node, cards, shares, past } = read(table);
  if (!node?.exists && !cards.length) return html`<${Head} title=${argument} /><p class="empty">There is no such node.</p>`;
  return html`
    <${Head} title=${argument}>
      ${node.closed ? html`<span class="pill warn">${node.closed}</span>` : html`<span class="pill good">takes pods</span>`}
      ${node.cordoned && html`<span class="pill">cordoned</span>`}
    <//>
    ${node.closed && html`<p class="note warn">It takes no new GPU pods: ${node.reason}</p>`}
    <section class="gap"><dl class="facts card">
      <dt>Limits enforced by</dt><dd>${enforcement(node.isolation)}</dd>
      <dt>Cards delivered by</dt><dd>${DELIVERY[node.delivery] ?? node.delivery}</dd>
      <dt>Driver</dt><dd>${node.driverVersion || html`<span class="muted">not known</span>`}</dd>
    </dl></section>
    <section><h2>Cards</h2>
      ${!live.user && html`<p class="muted gap-below"><code>kubectl gpu cordon UUID</code> keeps new pods off a card.</p>`}
      ${cards.length ? html`<ul class="plain card cards">${cards.map((card) => html`<${Card} key=${card.uuid} node=${argument} mayCordon=${mayCordon} card=${card} shares=${shares.get(card.uuid) ?? []} past=${past.get(card.uuid)} />`)}</ul>`
        : html`<p class="card muted">Its cards are not known: no agent reports them.</p>`}
    </section>
    ${node.links && node.links[0].length > 1 && html`<${Links} links=${node.links} />`}`;
}

/** @type {Record<string, string>} */
const DELIVERY = {
  cdi: 'device names that NVIDIA’s runtime turns into CDI devices',
  env: 'bare UUIDs in NVIDIA_VISIBLE_DEVICES',
  'nvidia-nri': 'an annotation that NVIDIA’s NRI plugin reads',
  nvfractions: 'annotations that kai-gpu-fractioning reads',
  nri: 'the agent, as a plugin of the container runtime',
  'device-plugin': 'the agent, as a device plugin of the kubelet',
};

/** What holds containers to their limits, honestly. @param {string[]|null} isolation */
export function enforcement(isolation) {
  if (isolation === null) return 'not known: no agent reports it';
  const backends = isolation.filter((each) => each !== 'none');
  return backends.length ? `${backends.join(', ')}, in pods that use it` : 'nothing: memory and compute are counted, and containers are informed of their limits';
}

/** @param {{links: [number[], number[][], number[][]]}} props */
function Links({ links: [ids, tiers, bandwidth] }) {
  return html`<section><h2>Connections</h2>
    <div class="scroll" tabindex="0" role="region" aria-label="Connections between cards"><table class="matrix">
      <thead><tr><th scope="col">Card</th>${ids.map((id) => html`<th scope="col">${id}</th>`)}</tr></thead>
      <tbody>${ids.map((id, row) => html`<tr><th scope="row">${id}</th>${ids.map((_, column) => html`
        <td class=${tiers[row][column] === 0 ? '' : 'muted'}>${row === column ? '·' : linkBetween(tiers[row][column], bandwidth[row][column])}</td>`)}</tr>`)}</tbody>
    </table></div></section>`;
}

/** @type {import('./index.js').Section} */
export const node = {
  name: 'node',
  inNavigation: false,
  title: (argument) => argument,
  follows: (argument) => [`node:${argument}`],
  View,
};
