/** The pods without a node: why each waits, and what would help. */

import { html, useMemo, useState } from '../vendor/preact-htm.js';
import { cores, duration, memory, plural } from '../format.js';
import { Bar, Choice, Head, meaning, nodeLink, podLink, Rows, Search, useNow } from '../ui.js';

/** What each kind of event is, in words for "when …". @type {Record<string, string>} */
const EVENTS = {
  pod_removed: 'a pod ends',
  pod_added: 'another pod gets a node',
  node_changed: 'a node is added or changed',
  node_opened: 'a closed node takes pods again',
  cards_changed: 'cards are added or recover',
  quota_changed: 'a quota is raised',
  namespace_changed: 'labels of a namespace change',
  storage_changed: 'storage changes',
  gpu_claim_added: 'its GpuClaim is created',
  gpu_queue_changed: 'its GpuQueue is created or changed',
  gpu_binding_changed: 'a GPUBinding of its application changes',
  gang_changed: 'another pod of its gang comes',
  device_class_changed: 'a DeviceClass gives up the resource',
};

/** @type {Record<string, [string, string]>} */
const PLACES = {
  active: ['next', 'It is scheduled next.'],
  binding: ['binding', 'A node was chosen; its Binding is being written.'],
  backoff: ['pausing', 'Its Binding failed; it is tried again after a pause.'],
  unschedulable: ['waiting', 'No node takes it now.'],
  held: ['held', 'Only a change of the pod helps.'],
  external: ['in kube-scheduler', 'kube-scheduler has the queue, and the reasons.'],
};

/** What would let a pod have a node. @param {any} row */
export function cure(row) {
  if (row.place === 'held') return 'only a change of the pod itself';
  if (row.place !== 'unschedulable') return PLACES[row.place]?.[1] ?? '';
  if (row.hold) return `${plural(row.hold.awaited, 'pod')} on ${row.hold.node} ${row.hold.awaited === 1 ? 'has' : 'have'} to end: cards are held for it`;
  const [first, ...others] = row.events.map((/** @type {string} */ each) => EVENTS[each] ?? each);
  return first ? `when ${[first, ...others].slice(0, 3).join(' or ')}` : 'not known';
}

/** What a container requests, in words. @param {any[]|null} requested */
export function request(requested) {
  if (!requested) return 'cannot be read';
  if (!requested.length) return 'no cards';
  return requested.map((each) => {
    const size = each.memoryMiB === null ? `${each.memoryPercent} % of the memory` : each.memoryMiB ? memory(each.memoryMiB) : '';
    const compute = each.cores ? cores(each.cores) : '';
    return [plural(each.cards, 'card'), [size, compute].filter(Boolean).join(', ')].filter(Boolean).join(' × ').replace('1 card × ', '');
  }).join(' + ');
}

/** @param {{live: import('../stream.js').Live}} props */
function View({ live }) {
  const now = useNow();
  const [words, setWords] = useState('');
  const [reason, setReason] = useState('');
  const [order, setOrder] = useState('rank');
  const table = live.rows('waiting');
  const ranks = live.rows('ranks');
  const version = `${live.version('waiting')}.${live.version('ranks')}`;
  const all = useMemo(() => [...(table ?? [])].map(([name, row]) => ({ name, rank: ranks?.get(name)?.rank ?? Infinity, ...row })), [version]);
  const byReason = useMemo(() => {
    /** @type {Map<string, number>} */
    const counts = new Map();
    for (const each of all) for (const code of each.reasons) counts.set(code, (counts.get(code) ?? 0) + 1);
    return [...counts].sort((one, other) => other[1] - one[1]);
  }, [all]);
  const chosen = useMemo(() => {
    const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
    const found = all.filter((each) => (!reason || each.reasons.includes(reason))
      && wanted.every((word) => `${each.name} ${each.queue} ${each.gang}`.toLowerCase().includes(word)));
    return found.sort(order === 'rank' ? (one, other) => one.rank - other.rank || one.since - other.since : (one, other) => one.since - other.since);
  }, [all, words, reason, order]);
  if (!table) return html`<${Head} title="Waiting" /><p class="empty">Reading the queue…</p>`;
  return html`
    <${Head} title="Waiting"><span class="muted">${plural(all.length, 'pod')} without a node</span><//>
    ${byReason.length > 0 && html`<${Reasons} counts=${byReason} pods=${all.length} chosen=${reason} onChange=${setReason} />`}
    <div class="tools">
      <${Search} label="Pod, queue or gang" value=${words} onChange=${setWords} />
      <${Choice} label="Order" value=${order} onChange=${setOrder} values=${[['rank', 'By place in the queue'], ['age', 'Longest wait first']]} />
    </div>
    <${Rows} label="Waiting pods" rows=${chosen} empty=${all.length ? 'No pod matches.' : 'No pod waits for a node.'}
      columns=${[{ name: '#', number: true }, { name: 'Pod' }, { name: 'Requests, of each card' }, { name: 'Waits', number: true }, { name: 'Why' }, { name: 'What would help' }]}
      row=${(/** @type {any} */ each) => row(each, now)} />`;
}

/** @param {any} each @param {number} now */
function row(each, now) {
  return html`<tr key=${each.name}>
    <td class="number muted">${Number.isFinite(each.rank) ? each.rank : '–'}</td>
    <td>${podLink(each.name)}
      <div class="muted">${each.queue.startsWith('namespace/') ? '' : `queue ${each.queue} `}${each.priority ? `priority ${each.priority} ` : ''}${each.gang ? `gang ${each.gang}` : ''}</div></td>
    <td class="nowrap">${request(each.requested)}</td>
    <td class="number">${each.since ? duration(now / 1000 - each.since) : 'not known'}</td>
    <td><span class="pills">
      ${each.place !== 'unschedulable' && html`<span class="pill warn" title=${PLACES[each.place]?.[1]}>${PLACES[each.place]?.[0] ?? each.place}</span>`}
      ${each.reasons.slice(0, 4).map((/** @type {string} */ code) => html`<span class="pill" title=${meaning(code)}>${code}</span>`)}
      ${each.reasons.length > 4 && html`<span class="muted">and ${each.reasons.length - 4} more</span>`}
      ${!each.reasons.length && each.place === 'unschedulable' && html`<span class="muted">not known yet</span>`}
    </span></td>
    <td class="muted">${cure(each)}${each.hold && html` (${each.hold.cause}, ${nodeLink(each.hold.node)})`}</td>
  </tr>`;
}

/** @param {{counts: [string, number][], pods: number, chosen: string, onChange: (code: string) => void}} props */
function Reasons({ counts, pods, chosen, onChange }) {
  return html`<section class="card gap-below"><h2>Reasons</h2><ul class="plain reasons">
    ${counts.slice(0, 8).map(([code, count]) => html`<li key=${code}>
      <button type="button" class="link" aria-pressed=${String(code === chosen)} onClick=${() => onChange(code === chosen ? '' : code)}>${code}</button>
      <${Bar} parts=${[{ part: count / pods }]} label=${`${count} of ${pods} pods`} />
      <span class="number">${count.toLocaleString('en')}</span><span class="muted">${meaning(code)}</span></li>`)}
  </ul></section>`;
}

/** @type {import('./index.js').Section} */
export const waiting = {
  name: 'waiting',
  inNavigation: true,
  title: () => 'Waiting',
  follows: () => ['waiting', 'ranks'],
  View,
};
