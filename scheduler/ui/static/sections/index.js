/** The sections of the page, in the order of the navigation. */

import { card } from './card.js';
import { decisions } from './decisions.js';
import { fleet } from './fleet.js';
import { node } from './node.js';
import { bindings, claims, gangs } from './objects.js';
import { pod } from './pod.js';
import { shares } from './shares.js';
import { waiting } from './waiting.js';
import { whatIf } from './what-if.js';

/**
 * @typedef {object} Section
 * @property {string} name The first part of its address.
 * @property {boolean} inNavigation Whether the navigation has it; others are reached from rows.
 * @property {(argument: string) => string} title
 * @property {(argument: string) => string[]} follows The tables that it shows.
 * @property {(props: {argument: string, live: import('../stream.js').Live}) => any} View
 */

/** @type {Section[]} */
export const SECTIONS = [fleet, waiting, shares, decisions, whatIf, gangs, claims, bindings, node, card, pod];

/** @param {string} route What follows `#/`. @returns {{section: Section, argument: string}} */
export function sectionOf(route) {
  const [name, ...rest] = route.split('/');
  const section = SECTIONS.find((each) => each.name === name) ?? fleet;
  return { section, argument: rest.map(decoded).join('/') };
}

/** @param {string} part */
function decoded(part) {
  try { return decodeURIComponent(part); } catch { return part; }
}
