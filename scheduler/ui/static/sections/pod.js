/** One pod: its way to a node, why it waits, what its containers see, and what enforces their limits. */

import { html } from '../vendor/preact-htm.js';
import { cores, duration, memory, plural, stamp } from '../format.js';
import { Head, meaning, nodeLink, useFetched, useNow } from '../ui.js';
import { enforcement } from './node.js';
import { request } from './waiting.js';

const SHOWN_NODES = 40;

/** @param {{argument: string, live: import('../stream.js').Live}} props */
function View({ argument, live }) {
  const now = useNow();
  const table = live.rows(`pod:${argument}`);
  const row = table?.get(argument);
  if (!table) return html`<${Head} title=${argument} /><p class="empty">Reading the pod…</p>`;
  if (!row) return html`<${Head} title=${argument} /><p class="empty">There is no such pod, or it is not shown to you.</p>`;
  const waits = row.state === 'waiting' || row.state === 'binding' || row.state === 'gated';
  return html`
    <${Head} title=${argument}><span class=${`pill ${row.state === 'placed' ? 'good' : row.state === 'waiting' ? 'warn' : ''}`}>${row.state === 'placed' ? row.phase.toLowerCase() : row.state}</span><//>
    <section class="card"><${Way} row=${row} now=${now / 1000} /></section>
    <section><dl class="facts card">
      <dt>Requests, of each card</dt><dd>${request(row.requested)}</dd>
      <dt>Node</dt><dd>${row.node ? nodeLink(row.node) : html`<span class="muted">none yet</span>`}</dd>
      <dt>Queue</dt><dd>${row.queue || html`<span class="muted">not known</span>`}</dd>
      ${row.node && html`<dt>Limits enforced by</dt><dd>${enforcement(row.isolation)}</dd>`}
    </dl></section>
    ${row.problem && html`<p class="note bad gap">Its allocation cannot be read: ${row.problem}</p>`}
    ${waits && html`<${Why} name=${argument} user=${live.user} version=${`${row.decisions.length}.${Math.floor(now / 10_000)}`} />`}
    ${row.containers.map((/** @type {any} */ each) => html`<${Container} key=${each.name} container=${each} />`)}
    <section><h2>Decisions</h2>
      ${row.decisions.length ? html`<ul class="plain card">${[...row.decisions].reverse().map((/** @type {any} */ each) => html`
        <li><span class="muted nowrap">${stamp(each.at)}</span> <span class=${`pill ${each.type === 'Warning' ? 'warn' : 'good'}`}>${each.reason}</span> <span class="break">${each.note}</span></li>`)}</ul>`
        : html`<p class="card muted">None that this replica still knows. The pod’s events have them: kubectl describe pod.</p>`}
    </section>`;
}

/** @param {{row: any, now: number}} props */
function Way({ row, now }) {
  const isPlaced = row.state === 'placed' || row.state === 'finished';
  const waited = row.decided && row.created ? duration(row.decided - row.created) : '';
  /** @type {[string, string, 'done'|'now'|'', string][]} */
  const steps = [
    ['Admitted', row.created ? stamp(row.created) : 'not known', 'done', 'the API server created it'],
    ['Decided', row.decided ? stamp(row.decided) : isPlaced ? 'not known any more' : row.state === 'gated' ? 'held by a scheduling gate' : `waits ${row.waitsSince ? duration(now - row.waitsSince) : ''}`,
      row.decided || isPlaced || row.state === 'binding' ? 'done' : 'now', waited && `after ${waited}`],
    ['Bound', isPlaced ? (row.decided ? stamp(row.decided) : 'not known any more') : row.state === 'binding' ? 'being written' : 'not yet', isPlaced ? 'done' : row.state === 'binding' ? 'now' : '', row.node],
    ['Started', row.started ? stamp(row.started) : isPlaced ? 'not reported yet' : 'not yet', row.started ? 'done' : isPlaced ? 'now' : '', row.started && row.decided ? `${duration(row.started - row.decided)} after its Binding` : ''],
  ];
  return html`<ol class="way">${steps.map(([name, when, state, detail]) => html`<li class=${state} key=${name}>
    <strong>${name}</strong><p>${when}</p><p class="muted break">${detail}</p></li>`)}</ol>`;
}

/** @param {{name: string, user: string, version: string}} props */
function Why({ name, user, version }) {
  const [namespace, pod] = name.split('/').map(encodeURIComponent);
  const address = user ? `../api/namespaces/${namespace}/pods/${pod}/explanation` : `../api/explain/${namespace}/${pod}`;
  const { content, error } = useFetched(address, version);
  if (!content) return html`<section><h2>Why it waits</h2><p class="card muted">${error || 'Asking the scheduler…'}</p></section>`;
  return html`<section><h2>Why it waits</h2>
    ${!content.reasons.length && html`<p class="note">${content.answer}</p>`}
    <div class="grid gap-small">
      ${content.reasons.length > 0 && html`<div class="card"><h3>Nodes that do not take it</h3><ul class="plain">
        ${content.reasons.map((/** @type {any} */ each) => html`<li key=${each.reason}>
          <strong>${plural(each.nodes.length, 'node')}</strong> <span class="break">${each.reason}</span>
          <p class="muted">${explained(each.reason)}${each.resolvable ? ' A pod that ends could change it.' : ''}</p></li>`)}
        </ul></div>`}
      <div class="card"><h3>What would help</h3><ul class="plain">${remedies(content).map((each) => html`<li class="break">${each}</li>`)}</ul></div>
    </div>
    <${Verdicts} nodes=${content.nodes} /></section>`;
}

/** @param {any} content @returns {any[]} */
function remedies(content) {
  const { preemption, gpuQueue, gang, queue, quota } = content;
  const found = content.hints.map(sentence);
  if (quota) found.push(sentence(`the quota leaves too little: ${quota}`));
  if (preemption?.held) found.push(`Cards of ${preemption.node} are held for it (${preemption.held}): ${plural(preemption.leaving, 'pod')} there ${preemption.leaving === 1 ? 'has' : 'have'} to end.`);
  else if (preemption?.node) found.push(`It would preempt ${plural(preemption.count, 'pod')} on ${preemption.node}: ${preemption.victims.slice(0, 5).map((/** @type {any} */ each) => `${each.namespace}/${each.name}`).join(', ')}.`);
  else if (preemption?.why) found.push(sentence(`it preempts no pod: ${preemption.why}`));
  if (gang) found.push(`Gang ${gang.name}: ${gang.placed} of ${gang.size} have nodes${gang.fitting === null ? '' : `, ${gang.fitting} would fit now`}${gang.why ? `: ${gang.why}` : ''}.`);
  if (gpuQueue?.rank) found.push(`It is number ${gpuQueue.rank} of ${plural(gpuQueue.waiting, 'waiting pod')}${gpuQueue.ahead ? `, behind queue ${gpuQueue.ahead.name}` : ''}.`);
  if (gpuQueue?.waitsFor) found.push(`Pods of GpuQueue ${gpuQueue.waitsFor}, of a higher tier, come first.`);
  if (queue?.pauseSeconds) found.push(`It is tried again in ${duration(queue.pauseSeconds)}.`);
  if (content.resolvable) found.push('A pod that ends may make room for it.');
  return found.length ? found : ['Nothing that the scheduler knows of.'];
}

/** What the codes in a reason mean. @param {string} reason */
function explained(reason) {
  const codes = [...new Set(reason.match(/[A-Z]\w+/g) ?? [])].filter(meaning);
  return codes.map((code) => `${code}: ${meaning(code)}.`).join(' ');
}

/** @param {string} text */
function sentence(text) {
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? '' : '.'}`;
}

/** Each card's verdict, by node. @param {{nodes: any[]}} props */
function Verdicts({ nodes }) {
  const detailed = nodes.filter((each) => each.cards.some((/** @type {any} */ card) => card.verdicts.length))
    .sort((one, other) => Number(other.fits) - Number(one.fits));
  if (!detailed.length) return null;
  return html`<h3 class="gap-small">Card by card</h3><div class="scroll" tabindex="0" role="region" aria-label="Verdict on each card"><table>
    <thead><tr><th scope="col">Node</th><th scope="col">Cards</th><th scope="col">Why</th></tr></thead>
    <tbody>${detailed.slice(0, SHOWN_NODES).map((each) => html`<tr key=${each.name}>
      <th scope="row">${nodeLink(each.name)}</th>
      <td><span class="verdicts">${each.cards.map((/** @type {any} */ card) => {
        const verdict = card.verdicts[0]?.verdict ?? each.code;
        const text = `Card ${card.index}: ${verdict || 'not evaluated'}${meaning(verdict) ? `, ${meaning(verdict)}` : ''}; ${card.memoryMiB.free === null ? 'free memory not shown' : `${memory(card.memoryMiB.free)} free`}`;
        const state = !card.healthy ? 'unhealthy' : card.cordoned ? 'closed' : verdict === 'FITS' ? 'fits' : '';
        const used = card.memoryMiB.free === null ? 0 : 1 - card.memoryMiB.free / card.memoryMiB.total;
        return html`<i class=${state} style=${{ '--used': `${Math.round(100 * used)}%` }} role="img" aria-label=${text} title=${text}></i>`;
      })}</span></td>
      <td class="break">${each.fits ? 'It fits.' : each.reason}</td></tr>`)}</tbody></table></div>
    ${detailed.length > SHOWN_NODES && html`<p class="muted">${plural(detailed.length - SHOWN_NODES, 'more node')}.</p>`}`;
}

/** @param {{container: any}} props */
function Container({ container }) {
  return html`<section><h2>Container ${container.name}</h2><div class="grid">
    <div class="card"><h3>Shares</h3><ul class="plain">${container.shares.map((/** @type {any} */ each) => html`<li key=${each.uuid}>
      Card ${each.index}: ${each.whole ? 'whole' : `${memory(each.memoryMiB)}, ${each.cores ? `${cores(each.cores)} of its compute` : 'compute not limited'}`}
      <p class="mono muted break">${each.uuid}</p></li>`)}</ul></div>
    <div class="card"><h3>Environment</h3><dl class="facts mono">${Object.entries(container.environment).map(([name, value]) => html`<dt key=${name} class="break">${name}</dt><dd>${value}</dd>`)}</dl></div>
  </div></section>`;
}

/** @type {import('./index.js').Section} */
export const pod = {
  name: 'pod',
  inNavigation: false,
  title: (argument) => argument,
  follows: (argument) => [`pod:${argument}`],
  View,
};
