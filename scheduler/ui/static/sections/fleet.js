/** All nodes and cards at a glance. */

import { html, useMemo, useRef, useState } from '../vendor/preact-htm.js';
import { FleetModel, fraction, sums } from '../fleet-model.js';
import { enforcers, HeatMap } from '../heat-map.js';
import { cores, memory, percent, plural } from '../format.js';
import { Bar, Choice, Figure, Head, nodeLink, Rows, Search } from '../ui.js';

/** @typedef {import('../fleet-model.js').FleetNode} FleetNode */

/** @type {[string, string, (node: FleetNode) => boolean][]} */
const FILTERS = [
  ['all', 'All nodes', () => true],
  ['free', 'With free memory', (node) => node.freeMiB > 0],
  ['idle', 'With idle cards', (node) => node.idle > 0],
  ['unhealthy', 'With unhealthy cards', (node) => node.cards.some((card) => card.state === 'unhealthy')],
  ['cordoned', 'Cordoned', (node) => node.cordoned || node.cards.some((card) => card.state === 'cordoned')],
  ['closed', 'Taking no new pods', (node) => node.state === 'closed'],
  ['unknown', 'Cards not known', (node) => node.state === 'unknown'],
];

/** @type {Record<string, (one: FleetNode, other: FleetNode) => number>} */
const ORDERS = {
  name: () => 0,
  free: (one, other) => other.freeMiB - one.freeMiB,
  use: (one, other) => (fraction(other, 'memory') ?? -1) - (fraction(one, 'memory') ?? -1),
};

/** @param {FleetNode} node @param {string[]} words */
function matches(node, words) {
  return words.every((word) => node.text.includes(word));
}

/** @param {{live: import('../stream.js').Live}} props */
function View({ live }) {
  const model = useRef(/** @type {FleetModel|null} */ (null));
  model.current ??= new FleetModel();
  const [words, setWords] = useState('');
  const [filter, setFilter] = useState('all');
  const [order, setOrder] = useState('name');
  const [metric, setMetric] = useState(/** @type {import('../fleet-model.js').Metric} */ ('memory'));
  const [view, setView] = useState('map');
  const nodes = model.current.read(live);
  const chosen = useMemo(() => {
    const test = FILTERS.find(([name]) => name === filter)?.[2] ?? (() => true);
    const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
    const found = (nodes ?? []).filter((node) => test(node) && matches(node, wanted));
    return order === 'name' ? found : found.sort(ORDERS[order]);
  }, [nodes, words, filter, order]);
  const total = useMemo(() => sums(chosen), [chosen]);
  if (!nodes) return html`<${Head} title="Fleet" /><p class="empty">Reading the fleet…</p>`;
  if (!nodes.length) return html`<${Head} title="Fleet" /><p class="empty">No node has cards. An agent on a node reports them.</p>`;
  return html`
    <${Head} title="Fleet"><span class="muted">${chosen.length === nodes.length ? plural(nodes.length, 'node') : `${chosen.length.toLocaleString('en')} of ${plural(nodes.length, 'node')}`}</span><//>
    <${Figures} total=${total} />
    <div class="tools">
      <${Search} label="Name, model, mode or state" value=${words} onChange=${setWords} />
      <select aria-label="Which nodes" value=${filter} onChange=${(/** @type {any} */ event) => setFilter(event.target.value)}>
        ${FILTERS.map(([name, text]) => html`<option value=${name}>${text}</option>`)}
      </select>
      <select aria-label="Order" value=${order} onChange=${(/** @type {any} */ event) => setOrder(event.target.value)}>
        <option value="name">By name</option><option value="free">Largest free slice first</option><option value="use">Most used first</option>
      </select>
      <${Choice} label="Colour" value=${metric} onChange=${setMetric} values=${[['memory', 'Memory'], ['cores', 'Compute'], ['slots', 'Slots']]} />
      <${Choice} label="View" value=${view} onChange=${setView} values=${[['map', 'Map'], ['table', 'Table']]} />
    </div>
    ${view === 'map' && html`<${Legend} />
      ${chosen.length ? html`<${HeatMap} nodes=${chosen} metric=${metric} onOpen=${open} />` : html`<p class="empty">No node matches.</p>`}`}
    ${view === 'table' && html`<${Rows} label="Nodes" rows=${chosen} row=${row} empty="No node matches." columns=${COLUMNS} />`}`;
}

/** @param {string} name */
function open(name) {
  location.hash = `#/node/${encodeURIComponent(name)}`;
}

/** @param {{total: ReturnType<typeof sums>}} props */
function Figures({ total }) {
  const { roomiest } = total;
  const largest = roomiest?.largest;
  const trouble = [
    total.unhealthy && plural(total.unhealthy, 'unhealthy card'),
    total.closed && `${plural(total.closed, 'node')} closed`,
    total.unknown && `${plural(total.unknown, 'node')} not known`,
  ].filter(Boolean);
  return html`<dl class="figures">
    <${Figure} name="Cards" value=${total.cards.toLocaleString('en')} detail=${`${total.idle.toLocaleString('en')} idle`} />
    <${Figure} name="Memory in use" value=${percent(total.used[0], total.total[0])} detail=${`${memory(total.used[0])} of ${memory(total.total[0])}`} />
    <${Figure} name="Compute in use" value=${percent(total.used[1], total.total[1])} detail=${`${(total.used[1] / 1000).toFixed(0)} of ${(total.total[1] / 1000).toLocaleString('en')} cards`} />
    <${Figure} name="Largest free slice" value=${roomiest ? memory(roomiest.freeMiB) : 'none'}
      detail=${largest ? `${cores(largest.total[1] - largest.used[1])}, ${roomiest?.name}` : 'no card has memory, compute and a slot free'} title=${roomiest?.name} />
    <${Figure} name="Stranded memory" value=${memory(total.strandedMiB)} detail=${`on ${plural(total.strandedCards, 'card')} without free compute or slots`} title="Free memory of cards whose compute or slots are used up" />
    <${Figure} name="Trouble" value=${(total.unhealthy + total.closed + total.unknown).toLocaleString('en')} detail=${trouble.join(', ') || 'all nodes take pods'} title=${trouble.join(', ')} />
  </dl>`;
}

function Legend() {
  return html`<p class="legend">
    <span>0 % <i class="swatch scale"></i> 100 % in use</span>
    <span><i class="swatch unhealthy"></i>unhealthy</span>
    <span><i class="swatch cordoned"></i>cordoned</span>
    <span><i class="swatch closed"></i>takes no new pods</span>
    <span><i class="swatch unknown"></i>not known</span>
  </p>`;
}

const COLUMNS = [
  { name: 'Node' }, { name: 'Cards', number: true }, { name: 'Model' }, { name: 'Memory in use' }, { name: 'Compute', number: true },
  { name: 'Slots', number: true }, { name: 'Largest free slice', number: true }, { name: 'Limits enforced by' }, { name: 'State' },
];

/** @param {FleetNode} node */
function row(node) {
  const part = fraction(node, 'memory');
  const isKnown = node.state !== 'unknown';
  return html`<tr key=${node.name}>
    <th scope="row">${nodeLink(node.name)}</th>
    <td class="number">${isKnown ? node.counted : '–'}</td>
    <td>${node.models || html`<span class="muted">not known</span>`}</td>
    <td>${part === null ? html`<span class="muted">not known</span>` : html`<${Bar} parts=${[{ part }]} label=${`${memory(node.used[0])} of ${memory(node.total[0])}`} />
      <span class="muted">${memory(node.used[0])} of ${memory(node.total[0])}</span>`}</td>
    <td class="number">${isKnown ? percent(node.used[1], node.total[1]) : '–'}</td>
    <td class="number">${isKnown ? `${node.used[2]} / ${node.total[2]}` : '–'}</td>
    <td class="number">${isKnown ? memory(node.freeMiB) : '–'}</td>
    <td class=${node.isolation === null ? 'muted' : ''}>${enforcers(node)}</td>
    <td>${isKnown ? html`<${NodeState} node=${node} />` : html`<span class="pill">not known</span>`}</td>
  </tr>`;
}

/** @param {{node: FleetNode}} props */
function NodeState({ node }) {
  const unhealthy = node.cards.filter((card) => card.state === 'unhealthy').length;
  return html`<span class="pills">
    ${node.closed && html`<span class="pill warn" title=${node.reason}>${node.closed}</span>`}
    ${node.cordoned && html`<span class="pill">cordoned</span>`}
    ${unhealthy > 0 && html`<span class="pill bad">${unhealthy} unhealthy</span>`}
    ${!node.closed && !node.cordoned && !unhealthy && html`<span class="pill good">ready</span>`}
  </span>`;
}

/** @type {import('./index.js').Section} */
export const fleet = {
  name: 'fleet',
  inNavigation: true,
  title: () => 'Fleet',
  follows: () => ['capacities', 'use'],
  View,
};
