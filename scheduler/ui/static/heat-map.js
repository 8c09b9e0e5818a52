/**
 * The fleet on a canvas: a block for each node, a cell for each card. Only the blocks that are visible are drawn, so
 * that five thousand nodes scroll as fluently as fifty.
 */

import { html, useEffect, useMemo, useRef, useState } from './vendor/preact-htm.js';
import { fraction } from './fleet-model.js';
import { cores, memory, plural } from './format.js';

const NAMED_UP_TO = 400;
const STEPS = 6;

/** @typedef {import('./fleet-model.js').FleetNode} FleetNode */
/** @typedef {import('./fleet-model.js').FleetCard} FleetCard */
/** @typedef {import('./fleet-model.js').Metric} Metric */

/** @param {FleetNode[]} nodes @param {number} width */
function arrange(nodes, width) {
  const most = nodes.reduce((found, each) => Math.max(found, each.cards.length), 1);
  const isNamed = nodes.length <= NAMED_UP_TO;
  const cell = isNamed ? 18 : 9;
  const perLine = isNamed ? Math.min(most, 16) : Math.min(most, 4);
  const lines = Math.ceil(most / perLine);
  const longest = isNamed ? Math.max(...nodes.map((each) => each.name.length)) : 0;
  const label = isNamed ? Math.min(longest * 7.6 + 16, 220, Math.max(80, width - perLine * cell - 32)) : 0;
  const block = label + perLine * cell + (isNamed ? 32 : 8);
  const height = lines * cell + (isNamed ? 8 : 7);
  const columns = Math.max(1, Math.floor((width - 16) / block));
  return { isNamed, cell, perLine, label, block, height, columns, rows: Math.ceil(nodes.length / columns) };
}

/** What is drawn with, in the colours of the theme. @param {CanvasRenderingContext2D} pen */
function inks(pen) {
  const style = getComputedStyle(document.documentElement);
  const read = (/** @type {string} */ name) => style.getPropertyValue(name).trim();
  const tile = document.createElement('canvas');
  tile.width = tile.height = 4;
  const brush = /** @type {CanvasRenderingContext2D} */ (tile.getContext('2d'));
  brush.strokeStyle = read('--muted');
  brush.lineWidth = 1.4;
  for (const offset of [-4, 0, 4]) { brush.moveTo(offset - 1, 5); brush.lineTo(offset + 5, -1); }
  brush.stroke();
  return {
    stripes: /** @type {CanvasPattern} */ (pen.createPattern(tile, 'repeat')),
    heat: Array.from({ length: STEPS }, (_, step) => read(`--heat-${step}`)),
    text: read('--text'), muted: read('--muted'), alert: read('--alert'), warn: read('--warn'), accent: read('--accent'),
    surface: read('--surface'), line: read('--line'),
  };
}

/** @type {Map<boolean, ReturnType<typeof inks>>} */
const known = new Map();

/** The same, read once for each theme: reading styles makes the browser compute them at once. @param {CanvasRenderingContext2D} pen @param {boolean} isDark */
function inksOf(pen, isDark) {
  const found = known.get(isDark) ?? inks(pen);
  known.set(isDark, found);
  return found;
}

/**
 * @param {CanvasRenderingContext2D} pen @param {FleetCard} card @param {FleetNode} node @param {Metric} metric
 * @param {ReturnType<typeof inks>} ink @param {number} x @param {number} y @param {number} size
 */
function drawCard(pen, card, node, metric, ink, x, y, size) {
  const part = fraction(card, metric);
  if (part === null || card.state === 'unknown') {
    pen.strokeStyle = ink.muted;
    pen.strokeRect(x + 0.5, y + 0.5, size - 1, size - 1);
    return;
  }
  const step = part <= 0 ? 0 : Math.min(STEPS - 1, Math.ceil(part * (STEPS - 1)));
  pen.fillStyle = card.state === 'unhealthy' ? ink.alert : ink.heat[step];
  pen.fillRect(x, y, size, size);
  if (card.state === 'cordoned' || node.cordoned) {
    pen.fillStyle = ink.stripes;
    pen.fillRect(x, y, size, size);
  }
}

/** The text under the pointer, and for screen readers. @param {FleetNode} node @param {FleetCard|null} card */
export function describe(node, card) {
  const state = node.state === 'unknown' ? 'its cards are not known: no agent reports them'
    : node.closed ? node.reason : node.cordoned ? 'cordoned' : 'takes pods';
  if (!card) {
    const used = node.state === 'unknown' ? '' : `${plural(node.cards.length, 'card')}, ${memory(node.used[0])} of ${memory(node.total[0])} in use; `;
    return `${node.name}: ${used}${state}`;
  }
  const health = card.state === 'ok' ? '' : `, ${card.state}`;
  return `${node.name}, card ${card.index}${health}: ${memory(card.used[0])} of ${memory(card.total[0])}, ${cores(card.used[1])} of the compute and ${card.used[2]} of ${card.total[2]} slots in use`;
}

/** @param {{nodes: FleetNode[], metric: Metric, onOpen: (name: string) => void}} props */
export function HeatMap({ nodes, metric, onOpen }) {
  const frame = useRef(/** @type {any} */ (null));
  const canvas = useRef(/** @type {any} */ (null));
  const [width, setWidth] = useState(0);
  const [at, setAt] = useState(-1);
  const [tip, setTip] = useState(/** @type {{x: number, y: number, node: FleetNode, card: FleetCard|null}|null} */ (null));
  const plan = useMemo(() => arrange(nodes, width), [nodes, width]);
  const height = plan.rows * plan.height + 16;

  useEffect(() => {
    const observer = new ResizeObserver(([entry]) => setWidth(Math.floor(entry.contentRect.width)));
    observer.observe(frame.current);
    return () => observer.disconnect();
  }, []);

  useEffect(() => {
    if (!width) return undefined;
    const pen = canvas.current.getContext('2d');
    const theme = matchMedia('(prefers-color-scheme: dark)');
    let ink = inksOf(pen, theme.matches);
    const draw = () => drawVisible(pen, frame.current, nodes, plan, { ink, metric, at, width, height });
    draw();
    const recolour = () => { ink = inksOf(pen, theme.matches); draw(); };
    theme.addEventListener('change', recolour);
    addEventListener('scroll', draw, { passive: true });
    addEventListener('resize', draw);
    return () => {
      theme.removeEventListener('change', recolour);
      removeEventListener('scroll', draw);
      removeEventListener('resize', draw);
    };
  }, [nodes, metric, width, at]);

  /** @param {PointerEvent} event */
  const find = (event) => {
    const box = frame.current.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left - 8, event.clientY - box.top - 8];
    const [column, row] = [Math.floor(x / plan.block), Math.floor(y / plan.height)];
    if (x < 0 || y < 0 || column >= plan.columns) return null;
    const node = nodes[row * plan.columns + column];
    if (!node) return null;
    const [left, top] = [x - column * plan.block - plan.label, y - row * plan.height];
    const [place, line] = [Math.floor(left / plan.cell), Math.floor(top / plan.cell)];
    const card = left >= 0 && place < plan.perLine ? node.cards[line * plan.perLine + place] ?? null : null;
    return { node, card, number: row * plan.columns + column };
  };

  /** @param {KeyboardEvent} event */
  const move = (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: plan.columns, ArrowUp: -plan.columns, Home: -nodes.length, End: nodes.length }[event.key];
    if (event.key === 'Enter' && nodes[at]) onOpen(nodes[at].name);
    if (by === undefined) return;
    event.preventDefault();
    const next = Math.min(nodes.length - 1, Math.max(0, at + by));
    setAt(next);
    const top = frame.current.getBoundingClientRect().top + scrollY + 8 + Math.floor(next / plan.columns) * plan.height;
    if (top < scrollY + 60) scrollTo({ top: top - 80 });
    else if (top > scrollY + innerHeight - 40) scrollTo({ top: top - innerHeight + 80 });
  };

  return html`
    <div class="map" ref=${frame} style=${{ height: `${height}px` }}>
      <canvas ref=${canvas} tabindex="0" role="application" aria-roledescription="heat map"
        aria-label="Nodes and their cards. Arrow keys move from node to node, Enter opens one. The view as a table has the same."
        aria-describedby="node-at"
        onKeyDown=${move} onFocus=${() => at < 0 && nodes.length && setAt(0)} onBlur=${() => setAt(-1)}
        onPointerMove=${(/** @type {PointerEvent} */ event) => { const found = find(event); setTip(found && { ...found, x: event.clientX, y: event.clientY }); }}
        onPointerLeave=${() => setTip(null)}
        onClick=${(/** @type {PointerEvent} */ event) => { const found = find(event); if (found) onOpen(found.node.name); }}></canvas>
      <span class="hidden" id="node-at" aria-live="polite">${nodes[at] ? describe(nodes[at], null) : ''}</span>
      ${tip && html`<${Tip} ...${tip} />`}
    </div>`;
}

/** What can enforce limits on a node. @param {FleetNode} node */
export function enforcers(node) {
  return node.isolation === null ? 'not known' : node.isolation.filter((each) => each !== 'none').join(', ') || 'nothing';
}

/** @param {{x: number, y: number, node: FleetNode, card: FleetCard|null}} props */
function Tip({ x, y, node, card }) {
  const place = { left: `${Math.min(x + 14, innerWidth - 330)}px`, top: `${y > innerHeight - 160 ? y - 130 : y + 16}px` };
  return html`<div class="tip" style=${place} aria-hidden="true">
    <strong>${node.name}${card ? `, card ${card.index}` : ''}</strong>
    ${card && html`<div>${memory(card.used[0])} of ${memory(card.total[0])}</div>
      <div>${cores(card.used[1])} of the compute, ${card.used[2]} of ${card.total[2]} slots</div>
      <div class="muted">${card.model || 'unknown model'}${card.mode ? `, ${card.mode}` : ''}</div>
      <div class="muted">limits enforced by ${enforcers(node)}</div>`}
    ${!card && node.state !== 'unknown' && html`<div>${memory(node.used[0])} of ${memory(node.total[0])}</div><div class="muted">${node.models}</div>`}
    ${card && card.state !== 'ok' && html`<div>${card.state}</div>`}
    ${node.state === 'unknown' && html`<div>Its cards are not known: no agent reports them.</div>`}
    ${node.closed && node.state !== 'unknown' && html`<div>Takes no new pods: ${node.reason}</div>`}
    ${node.cordoned && html`<div>Cordoned in Kubernetes.</div>`}
  </div>`;
}

/**
 * @param {CanvasRenderingContext2D} pen @param {HTMLElement} frame @param {FleetNode[]} nodes @param {ReturnType<typeof arrange>} plan
 * @param {{ink: ReturnType<typeof inks>, metric: Metric, at: number, width: number, height: number}} how
 */
function drawVisible(pen, frame, nodes, plan, { ink, metric, at, width, height }) {
  const { canvas } = pen;
  const seen = Math.min(height, innerHeight - 44);
  const ratio = devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(seen * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(seen * ratio);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${seen}px`;
  }
  const above = canvas.getBoundingClientRect().top - frame.getBoundingClientRect().top;
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, seen);
  pen.font = '12px system-ui, sans-serif';
  pen.textBaseline = 'middle';
  const first = Math.max(0, Math.floor((above - 8) / plan.height));
  const last = Math.min(plan.rows, Math.ceil((above + seen) / plan.height));
  for (let row = first; row < last; row += 1) {
    for (let column = 0; column < plan.columns; column += 1) {
      const node = nodes[row * plan.columns + column];
      if (!node) break;
      drawNode(pen, node, plan, ink, metric, 8 + column * plan.block, 8 + row * plan.height - above, row * plan.columns + column === at);
    }
  }
}

/**
 * @param {CanvasRenderingContext2D} pen @param {FleetNode} node @param {ReturnType<typeof arrange>} plan
 * @param {ReturnType<typeof inks>} ink @param {Metric} metric @param {number} x @param {number} y @param {boolean} isAt
 */
function drawNode(pen, node, plan, ink, metric, x, y, isAt) {
  const gap = plan.isNamed ? 2 : 1;
  const count = Math.max(1, node.cards.length);
  const wide = Math.min(count, plan.perLine) * plan.cell - gap;
  const high = Math.ceil(count / plan.perLine) * plan.cell - gap;
  if (plan.label) {
    pen.fillStyle = node.state === 'ok' ? ink.text : ink.muted;
    pen.fillText(fit(pen, node.name, plan.label - 12), x, y + (plan.cell - gap) / 2);
  }
  const left = x + plan.label;
  if (node.state === 'unknown') {
    pen.strokeStyle = ink.muted;
    pen.setLineDash([3, 3]);
    pen.strokeRect(left + 0.5, y + 0.5, plan.perLine * plan.cell - gap - 1, plan.cell - gap - 1);
    pen.setLineDash([]);
    if (plan.isNamed) { pen.fillStyle = ink.muted; pen.fillText('not known', left + 8, y + (plan.cell - gap) / 2); }
  }
  node.cards.forEach((card, place) => {
    const [column, line] = [place % plan.perLine, Math.floor(place / plan.perLine)];
    drawCard(pen, card, node, metric, ink, left + column * plan.cell, y + line * plan.cell, plan.cell - gap);
  });
  if (node.state === 'closed') {
    pen.strokeStyle = ink.warn;
    pen.lineWidth = plan.isNamed ? 2 : 1;
    pen.strokeRect(left - 1.5, y - 1.5, wide + 3, high + 3);
    pen.lineWidth = 1;
  }
  if (isAt) {
    pen.strokeStyle = ink.accent;
    pen.lineWidth = 2;
    pen.strokeRect(x - 3, y - 3, plan.label + plan.perLine * plan.cell + 4, high + 6);
    pen.lineWidth = 1;
  }
}

/** @type {Map<string, string>} */
const fitted = new Map();

/** A text, shortened in its middle to a width. @param {CanvasRenderingContext2D} pen @param {string} text @param {number} width */
function fit(pen, text, width) {
  const key = `${width}/${text}`;
  const known = fitted.get(key);
  if (known !== undefined) return known;
  let shown = text;
  for (let left = text.length; pen.measureText(shown).width > width && left > 6; left -= 1) {
    const half = Math.floor(left / 2);
    shown = `${text.slice(0, half)}…${text.slice(text.length - half)}`;
  }
  if (fitted.size > 5000) fitted.clear();
  fitted.set(key, shown);
  return shown;
}
