/** What would happen to a pod that was created now, and how many more fit. Nothing is created. */

import { html, useState } from '../vendor/preact-htm.js';
import { cores, memory, plural } from '../format.js';
import { fetchJson, Head, nodeLink } from '../ui.js';

const EXAMPLE = `apiVersion: v1
kind: Pod
metadata:
  name: example
spec:
  containers:
    - name: main
      image: example
      resources:
        limits:
          nvidia.com/gpu: 1
          nvidia.com/gpumem: 8000
          nvidia.com/gpucores: 30
`;

/** What is asked, and where: users with a token ask about a namespace, in which they may create pods. */
/** @param {'simulation'|'capacity'} question @param {string} user @param {string} namespace */
function address(question, user, namespace) {
  if (user) return `../api/namespaces/${encodeURIComponent(namespace.trim())}/${question}`;
  return question === 'simulation' ? '../api/simulate-schedule' : '../api/capacity';
}

/** @param {{live: import('../stream.js').Live}} props */
function View({ live }) {
  const [namespace, setNamespace] = useState('default');
  const [manifest, setManifest] = useState(EXAMPLE);
  const [busy, setBusy] = useState('');
  const [result, setResult] = useState(/** @type {any} */ (null));
  const [capacity, setCapacity] = useState(/** @type {any} */ (null));
  const [error, setError] = useState('');
  /** @param {string} what @param {() => Promise<void>} ask */
  const run = async (what, ask) => {
    setBusy(what);
    setError('');
    try { await ask(); } catch (failure) { setError(/** @type {Error} */ (failure).message); }
    setBusy('');
  };
  /** @param {'simulation'|'capacity'} question @param {string} [body] */
  const ask = (question, body) => fetchJson(address(question, live.user, namespace), body ? { method: 'POST', body, headers: { 'Content-Type': 'application/yaml' } } : {});
  const simulate = () => run('simulate', async () => { setCapacity(null); setResult(await ask('simulation', manifest)); });
  const count = () => run('count', async () => { setResult(null); setCapacity(await ask('capacity', manifest)); });
  const survey = () => run('survey', async () => { setResult(null); setCapacity(await ask('capacity')); });
  return html`
    <${Head} title="What if"><span class="muted">a pod was created now; nothing is created</span><//>
    <div class="grid">
      <form onSubmit=${(/** @type {Event} */ event) => { event.preventDefault(); simulate(); }}>
        ${live.user && html`<div class="tools"><label>Namespace, in which you may create pods
          <input type="text" autocomplete="off" spellcheck=${false} value=${namespace} onInput=${(/** @type {any} */ event) => setNamespace(event.target.value)} /></label></div>`}
        <label class="hidden" for="manifest">Manifest of a pod, with its claims</label>
        <textarea id="manifest" spellcheck=${false} value=${manifest} onInput=${(/** @type {any} */ event) => setManifest(event.target.value)}></textarea>
        <div class="tools gap-small">
          <button class="primary" type="submit" disabled=${busy !== ''}>${busy === 'simulate' ? 'Simulating…' : 'Where would it go?'}</button>
          <button type="button" disabled=${busy !== ''} onClick=${count}>${busy === 'count' ? 'Counting…' : 'How many of it fit?'}</button>
          <button type="button" disabled=${busy !== ''} onClick=${survey}>${busy === 'survey' ? 'Counting…' : 'What still fits at all?'}</button>
        </div>
      </form>
      <div aria-live="polite">
        ${error && html`<p class="note bad">${error}</p>`}
        ${result && html`<${Simulated} result=${result} />`}
        ${capacity && html`<${Capacity} capacity=${capacity} />`}
        ${!error && !result && !capacity && html`<p class="empty card">Paste a manifest, then ask.</p>`}
      </div>
    </div>`;
}

/** @param {{result: any}} props */
function Simulated({ result }) {
  const { explanation } = result;
  if (!explanation) return html`<p class="note bad">${result.error?.message ?? 'It is not admitted.'}</p>`;
  return html`<section class="card">
    <h2>${explanation.outcome === 'fits' ? 'It fits' : 'It does not fit'}</h2>
    <p class=${`note ${explanation.outcome === 'fits' ? '' : 'warn'}`}>${explanation.answer}</p>
    ${explanation.node && html`<dl class="facts gap-small"><dt>Node</dt><dd>${nodeLink(explanation.node)}</dd>
      ${explanation.shares.map((/** @type {any} */ each) => html`<dt>${each.container}</dt><dd>card ${each.index}: ${memory(each.memoryMiB)}, ${cores(each.cores)}</dd>`)}</dl>`}
    ${(result.warnings ?? []).map((/** @type {string} */ each) => html`<p class="muted break">${each}</p>`)}
    ${explanation.reasons.length > 0 && html`<h3 class="gap-small">Nodes that do not take it</h3><ul class="plain">
      ${explanation.reasons.map((/** @type {any} */ each) => html`<li><strong>${plural(each.nodes.length, 'node')}</strong> <span class="break">${each.reason}</span></li>`)}</ul>`}
    ${explanation.hints.length > 0 && html`<h3 class="gap-small">What would help</h3><ul class="plain">${explanation.hints.map((/** @type {string} */ each) => html`<li class="break">${each}</li>`)}</ul>`}
  </section>`;
}

/** @param {{capacity: any}} props */
function Capacity({ capacity }) {
  return html`<section class="card"><h2>What fits</h2>
    <table><thead><tr><th scope="col">Shape</th><th scope="col" class="number">How many more</th><th scope="col">Then</th></tr></thead>
      <tbody>${capacity.shapes.map((/** @type {any} */ each) => html`<tr key=${each.name}><th scope="row">${each.name}</th>
        <td class="number">${each.count.toLocaleString('en')}${each.isExact ? '' : ' or more'}</td><td class="muted"><span class="clamp" title=${each.why}>${each.why}</span></td></tr>`)}</tbody></table>
    ${capacity.largest && html`<p class="gap-small">The largest slice: ${memory(capacity.largest.memoryMiB)} and ${capacity.largest.cores} % of a card${capacity.largest.node && html`, on ${nodeLink(capacity.largest.node)}`}.</p>`}
    ${(capacity.stranded ?? []).map((/** @type {any} */ each) => html`<p key=${each.lacks}>${STRANDED[each.lacks]}: ${each.cards.toLocaleString('en')} cards${each.memoryMiB ? ` with ${memory(each.memoryMiB)} of free memory` : ''}, most of it by ${each.by.slice(0, 3).map((/** @type {any} */ queue) => queue.queue).join(', ')}.</p>`)}
  </section>`;
}

/** @type {Record<string, string>} */
const STRANDED = {
  compute: 'Stranded, because their compute is used up', memory: 'Stranded, because their memory is used up',
  slots: 'Stranded, because all slots are taken', node: 'Stranded, because their node lacks CPU or memory',
};

/** @type {import('./index.js').Section} */
export const whatIf = {
  name: 'what-if',
  inNavigation: true,
  title: () => 'What if',
  follows: () => [],
  View,
};
