/** What the fleet's tables add up to: a value for each node and card, sums, the largest free slice, what is stranded. */

const HEALTHY = 1;
const CORDONED = 2;
const SHARED = 0;
const INSTANCE = 1;

/** @typedef {'memory'|'cores'|'slots'} Metric */
/** @typedef {'ok'|'unhealthy'|'cordoned'|'closed'|'unknown'} State */

/**
 * @typedef {object} FleetCard
 * @property {number} index
 * @property {string} model
 * @property {string} mode
 * @property {number} role
 * @property {[number, number, number]} total MiB, millicards, slots.
 * @property {[number, number, number]} used
 * @property {State} state
 * @property {boolean} isCounted Whether it counts in sums: a card in MIG mode is counted by itself, not by its instances.
 */

/**
 * @typedef {object} NodeSums
 * @property {[number, number, number]} total
 * @property {[number, number, number]} used
 * @property {number} counted The cards that count in sums.
 * @property {number} idle
 * @property {number} unhealthy
 * @property {number} strandedCards Those with free memory whose compute or slots are used up.
 * @property {number} strandedMiB
 * @property {number} freeMiB The largest free slice of one card.
 * @property {FleetCard|null} largest The card that has it.
 */

/**
 * @typedef {object} NodeFields
 * @property {string} name
 * @property {FleetCard[]} cards
 * @property {State} state `unknown` if nothing reports its cards.
 * @property {string} reason Why it takes no new pods; empty if it does.
 * @property {string} closed The code of this.
 * @property {boolean} cordoned Whether it is cordoned in Kubernetes.
 * @property {string[]|null} isolation
 * @property {string} models
 * @property {string} text What a search looks at.
 */

/** @typedef {NodeFields & NodeSums} FleetNode */

/** @param {any} capacity @param {any} use @param {string} name @returns {FleetNode} */
function node(capacity, use, name) {
  const isKnown = use?.cards != null && capacity != null;
  /** @type {FleetCard[]} */
  const cards = isKnown ? capacity.cards.map((/** @type {number[]} */ each, /** @type {number} */ place) => {
    const [index, kind, memory, cores, slots, role] = each;
    const [usedMemory, usedCores, usedSlots, flags] = use.cards[place] ?? [0, 0, 0, 0];
    const state = use.cards[place] == null ? 'unknown' : !(flags & HEALTHY) ? 'unhealthy' : flags & CORDONED ? 'cordoned' : 'ok';
    return {
      index, role, model: capacity.kinds[kind][0], mode: capacity.kinds[kind][1], state,
      total: [memory, cores, slots], used: [usedMemory, usedCores, usedSlots], isCounted: role !== INSTANCE,
    };
  }) : [];
  const state = !isKnown ? 'unknown' : use.closed ? 'closed' : use.cordoned ? 'cordoned' : 'ok';
  const cordoned = Boolean(use?.cordoned);
  const models = [...new Set(cards.map((card) => card.model || 'unknown model'))].join(', ');
  const isolation = capacity?.isolation ?? null;
  const closed = use?.closed ?? '';
  return {
    name, cards, state, reason: use?.reason ?? '', closed, cordoned, isolation, models, ...sumsOf(cards, state === 'ok'),
    text: `${name} ${models} ${cards[0]?.mode ?? ''} ${(isolation ?? []).join(' ')} ${closed}`.toLowerCase(),
  };
}

/** What the cards of a node add up to. @param {FleetCard[]} cards @param {boolean} isOpen Whether the node takes pods. @returns {NodeSums} */
function sumsOf(cards, isOpen) {
  /** @type {NodeSums} */
  const sum = { counted: 0, idle: 0, unhealthy: 0, strandedCards: 0, strandedMiB: 0, freeMiB: 0, largest: null, total: [0, 0, 0], used: [0, 0, 0] };
  for (const card of cards) {
    if (card.isCounted) {
      sum.counted += 1;
      for (let kind = 0; kind < 3; kind += 1) { sum.total[kind] += card.total[kind]; sum.used[kind] += card.used[kind]; }
      if (!card.used[2]) sum.idle += 1;
      if (card.state === 'unhealthy') sum.unhealthy += 1;
    }
    if (!isOpen || !isUsable(card)) continue;
    const memory = card.total[0] - card.used[0];
    if (isFree(card)) {
      if (memory > sum.freeMiB) { sum.freeMiB = memory; sum.largest = card; }
    } else if (card.role === SHARED && (memory > 0 || card.total[1] > card.used[1])) {
      sum.strandedCards += 1;
      sum.strandedMiB += Math.max(0, memory);
    }
  }
  return sum;
}

/** @param {FleetCard} card */
function isUsable(card) {
  return card.state === 'ok' && (card.role === SHARED || card.role === INSTANCE);
}

/** @param {FleetCard} card */
function isFree(card) {
  return card.total.every((amount, kind) => amount > card.used[kind]);
}

/** The nodes of the fleet, of which only those are made again whose rows changed. */
export class FleetModel {
  constructor() {
    /** @type {Map<string, {capacity: any, use: any, node: FleetNode}>} */
    this.made = new Map();
    /** @type {FleetNode[]} */
    this.nodes = [];
    /** @type {string[]} In order. */
    this.names = [];
    this.versions = '';
  }

  /** @param {import('./stream.js').Live} live @returns {FleetNode[]|null} By name; null until the rows have come. */
  read(live) {
    const capacities = live.rows('capacities');
    const uses = live.rows('use');
    if (!capacities || !uses) return null;
    const versions = `${live.version('capacities')}.${live.version('use')}`;
    if (versions === this.versions) return this.nodes;
    this.versions = versions;
    let isOrdered = this.made.size === this.names.length;
    for (const name of this.made.keys()) if (!uses.has(name)) { this.made.delete(name); isOrdered = false; }
    for (const [name, use] of uses) {
      const capacity = capacities.get(name);
      const made = this.made.get(name);
      if (!made) isOrdered = false;
      if (made?.capacity !== capacity || made?.use !== use) this.made.set(name, { capacity, use, node: node(capacity, use, name) });
    }
    if (!isOrdered) this.names = [...this.made.keys()].sort(collator.compare);
    this.nodes = this.names.map((name) => /** @type {any} */ (this.made.get(name)).node);
    return this.nodes;
  }
}

const collator = new Intl.Collator('en', { numeric: true });

/** @param {FleetNode[]} nodes */
export function sums(nodes) {
  const result = {
    cards: 0, unknown: 0, closed: 0, unhealthy: 0, strandedCards: 0, strandedMiB: 0, total: [0, 0, 0], used: [0, 0, 0], idle: 0,
    /** @type {FleetNode|null} The node with the largest free slice of one card. */
    roomiest: null,
  };
  for (const each of nodes) {
    if (each.state === 'unknown') result.unknown += 1;
    if (each.state === 'closed') result.closed += 1;
    result.cards += each.counted;
    result.idle += each.idle;
    result.unhealthy += each.unhealthy;
    result.strandedCards += each.strandedCards;
    result.strandedMiB += each.strandedMiB;
    for (let kind = 0; kind < 3; kind += 1) { result.total[kind] += each.total[kind]; result.used[kind] += each.used[kind]; }
    if (each.freeMiB > (result.roomiest?.freeMiB ?? 0)) result.roomiest = each;
  }
  return result;
}

/** The used fraction of a card or node; null if it is not known. @param {{total: number[], used: number[]}} each @param {Metric} metric */
export function fraction({ total, used }, metric) {
  const kind = metric === 'memory' ? 0 : metric === 'cores' ? 1 : 2;
  return total[kind] ? used[kind] / total[kind] : null;
}
