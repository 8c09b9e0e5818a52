/** What the scheduler decided last, with its reasons, as it happens. */

import { html, useMemo, useState } from '../vendor/preact-htm.js';
import { time } from '../format.js';
import { Choice, Head, nodeLink, podLink, Rows, Search } from '../ui.js';

/** @param {{live: import('../stream.js').Live}} props */
function View({ live }) {
  const [words, setWords] = useState('');
  const [type, setType] = useState('');
  const [frozen, setFrozen] = useState(/** @type {any[]|null} */ (null));
  const table = live.rows('decisions');
  const version = live.version('decisions');
  const all = useMemo(() => [...(table ?? [])].map(([key, row]) => ({ key: Number(key), ...row })).sort((one, other) => other.key - one.key), [version]);
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  const rows = (frozen ?? all).filter((each) => (!type || each.type === type)
    && wanted.every((word) => `${each.name} ${each.reason} ${each.note}`.toLowerCase().includes(word)));
  if (!table) return html`<${Head} title="Decisions" /><p class="empty">Reading the decisions…</p>`;
  return html`
    <${Head} title="Decisions"><span class="muted">the last ${all.length} of this replica</span><//>
    <div class="tools">
      <${Search} label="Pod, reason or text" value=${words} onChange=${setWords} />
      <${Choice} label="Which" value=${type} onChange=${setType} values=${[['', 'All'], ['Normal', 'Placed'], ['Warning', 'Not placed']]} />
      <button type="button" aria-pressed=${String(frozen !== null)} onClick=${() => setFrozen(frozen ? null : all)}>${frozen ? 'Follow again' : 'Pause'}</button>
    </div>
    <${Rows} label="Decisions" rows=${rows} empty=${all.length ? 'No decision matches.' : 'Nothing was decided since this replica started.'}
      columns=${[{ name: 'Time' }, { name: 'Object' }, { name: 'Decision' }, { name: 'Reasons' }]} row=${row} />`;
}

/** @param {any} each */
function row(each) {
  return html`<tr key=${each.key}>
    <td class="nowrap muted">${time(each.at * 1000)}</td>
    <td>${each.kind === 'Pod' ? podLink(each.name) : each.kind === 'Node' ? nodeLink(each.name) : html`<span class="break">${each.kind} ${each.name}</span>`}</td>
    <td><span class=${`pill ${each.type === 'Warning' ? 'warn' : 'good'}`}>${each.reason}</span></td>
    <td><span class="clamp" title=${each.note}>${each.note}</span></td>
  </tr>`;
}

/** @type {import('./index.js').Section} */
export const decisions = {
  name: 'decisions',
  inNavigation: true,
  title: () => 'Decisions',
  follows: () => ['decisions'],
  View,
};
