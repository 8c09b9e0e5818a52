/** Gangs, GpuClaims and GPUBindings, and how far their pods are. */

import { html, useMemo, useState } from '../vendor/preact-htm.js';
import { memory, plural } from '../format.js';
import { Head, nodeLink, podLink, Rows, Search } from '../ui.js';

/**
 * A section of one table with a search.
 * @param {{name: string, title: string, empty: string, columns: {name: string, number?: boolean}[], row: (key: string, row: any) => any, label: string}} how
 * @returns {import('./index.js').Section}
 */
function list({ name, title, empty, columns, row, label }) {
  return {
    name,
    inNavigation: true,
    title: () => title,
    follows: () => [name],
    View: ({ live }) => {
      const [words, setWords] = useState('');
      const table = live.rows(name);
      const version = live.version(name);
      const rows = useMemo(() => [...(table ?? [])].sort(([one], [other]) => (one < other ? -1 : 1))
        .filter(([key, each]) => `${key} ${JSON.stringify(each)}`.toLowerCase().includes(words.toLowerCase())), [version, words]);
      if (!table) return html`<${Head} title=${title} /><p class="empty">Reading…</p>`;
      return html`<${Head} title=${title}><span class="muted">${table.size.toLocaleString('en')}</span><//>
        ${table.size > 0 && html`<div class="tools"><${Search} label=${label} value=${words} onChange=${setWords} /></div>`}
        <${Rows} label=${title} rows=${rows} columns=${columns} empty=${table.size ? 'Nothing matches.' : empty}
          row=${(/** @type {[string, any]} */ [key, each]) => row(key, each)} />`;
    },
  };
}

/** @type {Record<string, string>} */
const TONES = { Running: 'good', Bound: 'good', Finished: '', Failed: 'bad', Partial: 'bad' };

/** @param {string} word */
function pill(word) {
  return html`<span class=${`pill ${TONES[word] ?? 'warn'}`}>${word}</span>`;
}

export const gangs = list({
  name: 'gangs',
  title: 'Gangs',
  label: 'Gang or state',
  empty: 'No pods wait for each other.',
  columns: [{ name: 'Gang' }, { name: 'State' }, { name: 'With nodes', number: true }, { name: 'Waiting', number: true }, { name: 'Needs', number: true }, { name: 'Block' }, { name: 'Why' }],
  row: (key, each) => html`<tr key=${key}>
    <th scope="row" class="break">${key}</th><td>${pill(each.state)}</td><td class="number">${each.placed}</td><td class="number">${each.waiting}</td>
    <td class="number">${each.size}</td><td>${each.block || html`<span class="muted">any</span>`}</td>
    <td><span class="clamp" title=${each.message}>${each.disagreement || each.message}</span></td></tr>`,
});

export const claims = list({
  name: 'claims',
  title: 'Claims',
  label: 'Claim, pod or phase',
  empty: 'There are no GpuClaims.',
  columns: [{ name: 'Claim' }, { name: 'Gives each pod' }, { name: 'Phase' }, { name: 'Pods' }],
  row: (key, each) => html`<tr key=${key}>
    <th scope="row" class="break">${key}</th>
    <td>${plural(each.count, 'card')}, ${each.exclusivity}${each.profile && `, ${each.profile}`}${each.memoryMiB ? `, ${memory(each.memoryMiB)}` : ''}${each.cores ? `, ${each.cores} %` : ''}</td>
    <td>${pill(each.phase)}</td>
    <td><ul class="plain">${each.users.slice(0, 5).map((/** @type {any} */ user) => html`<li key=${user.pod}>${podLink(`${key.split('/')[0]}/${user.pod}`)}
      ${user.node ? html` on ${nodeLink(user.node)}, cards ${user.cards.join(', ')}` : html`<span class="clamp muted" title=${user.message}>${user.message}</span>`}</li>`)}
      ${each.pods > 5 && html`<li class="muted">${plural(each.pods - 5, 'more pod')}</li>`}${!each.pods && html`<li class="muted">no pod names it</li>`}</ul></td></tr>`,
});

export const bindings = list({
  name: 'bindings',
  title: 'Bindings',
  label: 'Binding, application or card',
  empty: 'There are no GPUBindings, or the scheduler does not apply them.',
  columns: [{ name: 'Binding' }, { name: 'Application' }, { name: 'Namespace' }, { name: 'Card' }, { name: 'Memory', number: true }, { name: 'Problems' }],
  row: (key, each) => html`<tr key=${key}>
    <th scope="row" class="break">${key}</th><td>${each.app}${each.owner && html` <span class="muted">of ${each.owner}</span>`}</td>
    <td>${each.namespace || html`<span class="pill warn">every namespace</span>`}</td>
    <td><span class="mono break">${each.uuid}</span>${each.node && html`<div>on ${nodeLink(each.node)}</div>`}</td>
    <td class="number">${each.memory || '–'}</td>
    <td><span class="pills">${each.problems.map((/** @type {string} */ problem) => html`<span class="pill bad">${problem}</span>`)}</span></td></tr>`,
});
