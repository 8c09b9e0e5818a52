/** Who has how much: queues against what they are entitled to, and quotas of namespaces. */

import { html, useMemo } from '../vendor/preact-htm.js';
import { memory, percent, resource, stamp } from '../format.js';
import { Bar, Head, Rows } from '../ui.js';

/** @param {{live: import('../stream.js').Live}} props */
function View({ live }) {
  const queues = live.rows('queues');
  const quotas = live.rows('quotas');
  const version = `${live.version('queues')}.${live.version('quotas')}`;
  const sorted = useMemo(() => [...(queues ?? new Map()).values()].sort((one, other) => (other.queue.share ?? 2) - (one.queue.share ?? 2) || (one.queue.name < other.queue.name ? -1 : 1)), [version]);
  const limits = useMemo(() => [...(quotas ?? new Map()).values()].sort((one, other) => (one.namespace < other.namespace ? -1 : 1)), [version]);
  if (!queues || !quotas) return html`<${Head} title="Shares" /><p class="empty">Reading the queues…</p>`;
  const fair = sorted[0]?.fairSharing;
  return html`
    <${Head} title="Shares"><span class="muted">${fair ? 'the mark is what a queue is entitled to' : 'without a GpuQueue, pods come by priority and age, whatever the namespaces have'}</span><//>
    <${Rows} label="Queues" rows=${sorted} empty="No pod has cards or waits for them." row=${row}
      columns=${[{ name: 'Queue' }, { name: 'Share of the fleet' }, { name: 'Entitled', number: true }, { name: 'Holds' }, { name: 'Running', number: true }, { name: 'Waiting', number: true }, { name: 'Weight', number: true }, { name: 'State' }]} />
    <section><h2>Quotas</h2>
      <${Rows} label="Quotas" rows=${limits} empty="No quota limits GPUs." row=${quota}
        columns=${[{ name: 'Namespace' }, { name: 'Quota' }, { name: 'Used' }, { name: 'Pods', number: true }, { name: 'One pod' }]} />
    </section>
    <${Usage} table=${live.rows('usage')} version=${live.version('usage')} />
    <${Hours} table=${live.rows('hours')} version=${live.version('hours')} />`;
}

/** What pods have reserved against what they use; what is not measured is in no sum. @param {{table: Map<string, any>|null, version: number}} props */
function Usage({ table, version }) {
  const rows = useMemo(() => [...(table ?? [])].map(([namespace, each]) => ({ namespace, ...each }))
    .sort((one, other) => other.reservedMiB - one.reservedMiB || (one.namespace < other.namespace ? -1 : 1)), [version]);
  if (!table) return html`<section><h2>Reserved and used</h2><p class="empty">Reading what pods use…</p></section>`;
  return html`<section><h2>Reserved and used</h2>
    ${table.get('off')?.off ? html`<p class="empty">Not known: the scheduler does not read measurements (scheduler.measurements.read_seconds is 0).</p>`
    : html`<${Rows} label="Reserved and used" rows=${rows} empty="No pod has a card." row=${usage}
      columns=${[{ name: 'Namespace' }, { name: 'Memory in use, of what is reserved' }, { name: 'Shares', number: true }, { name: 'Idle', number: true }, { name: 'Not known', number: true }]} />`}
  </section>`;
}

/** @param {any} each */
function usage(each) {
  const isKnown = each.unknown < each.shares;
  const text = `${memory(each.usedMiB)} of ${memory(each.reservedMiB)}`;
  return html`<tr key=${each.namespace}>
    <th scope="row">${each.namespace}</th>
    <td>${isKnown ? html`<${Bar} parts=${[{ part: each.reservedMiB ? each.usedMiB / each.reservedMiB : 0 }]} label=${text} /><span class="muted">${text}</span>` : html`<span class="muted">not known</span>`}</td>
    <td class="number">${each.shares}</td><td class="number">${each.idle}</td><td class="number">${each.unknown}</td></tr>`;
}

/** What this replica has counted since it leads; what was before, only Prometheus knows. @param {{table: Map<string, any>|null, version: number}} props */
function Hours({ table, version }) {
  const rows = useMemo(() => [...(table ?? [])].filter(([key]) => key !== 'since').map(([, each]) => each)
    .sort((one, other) => other.hours - one.hours || (one.namespace < other.namespace ? -1 : 1)), [version]);
  const since = table?.get('since')?.since;
  if (!since) return html`<section><h2>GPU-hours</h2><p class="empty">Reading the GPU-hours…</p></section>`;
  return html`<section><h2>GPU-hours</h2>
    <p class="muted gap-below">Since ${stamp(since)}, when this replica began to lead. What pods held before is not known here: <code>kubectl gpu report</code> reads it from Prometheus.</p>
    <${Rows} label="GPU-hours" rows=${rows} empty="No pod has held a card since then." row=${hours}
      columns=${[{ name: 'Namespace' }, { name: 'Queue' }, { name: 'Holds now', number: true }, { name: 'GPU-hours', number: true }]} />
  </section>`;
}

/** @param {any} each */
function hours(each) {
  return html`<tr key=${`${each.namespace}/${each.queue}`}>
    <th scope="row">${each.namespace || html`<span class="muted">others, which are not counted separately</span>`}</th>
    <td>${each.queue || html`<span class="muted">of the namespace</span>`}</td>
    <td class="number">${each.cards.toLocaleString('en')} ${each.cards === 1 ? 'card' : 'cards'}</td><td class="number">${each.hours.toLocaleString('en', { minimumFractionDigits: 2 })}</td></tr>`;
}

/** @param {any} each */
function row({ queue, fairSharing }) {
  const share = queue.share ?? 1;
  const name = queue.name.startsWith('namespace/') ? html`${queue.name.slice(10)} <span class="muted">namespace</span>` : queue.name;
  const holds = Object.entries(queue.allocated).filter(([, amount]) => amount).map(([each, amount]) => resource(each, Number(amount)));
  return html`<tr key=${queue.name}>
    <th scope="row">${name}</th>
    <td><${Bar} parts=${[{ part: share, name: queue.overused && fairSharing ? 'over' : '' }]} mark=${fairSharing ? queue.entitlement : null} label=${`${percent(share, 1)} of ${queue.dominantResource || 'nothing'}`} />
      <span class="muted">${queue.share === null ? 'more than the fleet has' : percent(share, 1)}${queue.dominantResource && ` of ${resource(queue.dominantResource)}`}</span></td>
    <td class="number">${fairSharing ? percent(queue.entitlement, 1) : '–'}</td>
    <td>${holds.join(', ') || html`<span class="muted">nothing</span>`}</td>
    <td class="number">${queue.running}</td><td class="number">${queue.waiting}</td>
    <td class="number">${queue.weight}${queue.priority ? html` <span class="muted">tier ${queue.priority}</span>` : ''}</td>
    <td><span class="pills">
      ${!queue.exists && html`<span class="pill bad">does not exist</span>`}${queue.suspended && html`<span class="pill warn">suspended</span>`}
      ${fairSharing && queue.overused && html`<span class="pill warn">borrows</span>`}${fairSharing && queue.underused && html`<span class="pill">is owed</span>`}
    </span></td></tr>`;
}

/** @param {any} each */
function quota(each) {
  const single = each.single ? Object.entries(each.single.limits).map(([name, most]) => `at most ${resource(name, Number(most))}`) : [];
  return html`<tr key=${`${each.namespace}/${each.kind}/${each.name}`}>
    <th scope="row">${each.namespace}</th>
    <td>${each.name} <span class="muted">${each.kind}</span></td>
    <td>${each.limits.map((/** @type {any} */ limit) => html`<div key=${limit.resource}>
      <${Bar} parts=${[{ part: limit.limit ? limit.used / limit.limit : 1, name: limit.nearlyFull ? 'over' : '' }]} label=${`${limit.used} of ${limit.limit}`} />
      <span class="muted">${resource(limit.resource, limit.used)} of ${resource(limit.resource, limit.limit)}</span></div>`)}
      ${!each.limits.length && html`<span class="muted">not limited together</span>`}</td>
    <td class="number">${each.pods}</td>
    <td class="muted">${[...single, ...(each.single?.maxCards != null ? [`at most ${each.single.maxCards} cards`] : [])].join(', ') || '–'}</td></tr>`;
}

/** @type {import('./index.js').Section} */
export const shares = {
  name: 'shares',
  inNavigation: true,
  title: () => 'Shares',
  follows: () => ['queues', 'quotas', 'usage', 'hours'],
  View,
};
