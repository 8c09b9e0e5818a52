/** The types of preact-htm.js beside it, for `make check`: Preact, its hooks, and htm bound to it. It is not served. */

import type { VNode } from 'preact';

export { h, render, Component, createContext } from 'preact';
export * from 'preact/hooks';
export declare function html(strings: TemplateStringsArray, ...values: unknown[]): VNode;
