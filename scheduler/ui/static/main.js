/** The page: its header, the navigation between sections, and the banner that says when what is shown may be old. */

import { html, render, useEffect, useErrorBoundary, useReducer, useState } from './vendor/preact-htm.js';
import { live } from './stream.js';
import { Banner } from './banner.js';
import { SECTIONS, sectionOf } from './sections/index.js';

function useLive() {
  const [, update] = useReducer((count) => count + 1, 0);
  useEffect(() => live.subscribe(() => update(null)), []);
}

function useRoute() {
  const [route, setRoute] = useState(location.hash.slice(2));
  useEffect(() => {
    const read = () => {
      setRoute(location.hash.slice(2));
      scrollTo(0, 0);
      document.getElementById('content')?.focus({ preventScroll: true });  // a screen reader goes on there
    };
    addEventListener('hashchange', read);
    return () => removeEventListener('hashchange', read);
  }, []);
  return route;
}

function Page() {
  useLive();
  const route = useRoute();
  const { section, argument } = sectionOf(route);
  useEffect(() => { live.follow(section.follows(argument)); }, [route]);
  useEffect(() => { document.title = `${section.title(argument)} · Tranche`; }, [route]);
  return html`
    <a class="skip" href="#content" onClick=${skip}>Skip to the content</a>
    <header class="top">
      <a class="brand" href="#/fleet"><img src="icon.svg" alt="" width="20" height="20" />Tranche</a>
      <nav aria-label="Sections">
        ${SECTIONS.filter((each) => each.inNavigation).map((each) => html`
          <a key=${each.name} href=${`#/${each.name}`} aria-current=${each === section ? 'page' : undefined}>
            ${each.title('')}
          </a>`)}
      </nav>
      <${State} />
    </header>
    <${Banner} live=${live} />
    <main id="content" tabindex="-1"><${Guarded} section=${section} argument=${argument} key=${route} /></main>`;
}

/** A section; an error in it leaves the rest of the page as it is. @param {{section: any, argument: string}} props */
function Guarded({ section, argument }) {
  const [error] = useErrorBoundary((/** @type {unknown} */ failure) => console.error(failure));
  if (error) return html`<p class="empty">This section cannot be shown because of an error in the page: ${String(error)}. Reload the page.</p>`;
  return html`<${section.View} argument=${argument} live=${live} />`;
}

/** Whether the page is current, in a word. */
function State() {
  const isCurrent = live.connection === 'open' && live.replica?.state === 'deciding';
  const text = isCurrent ? 'live' : live.connection === 'connecting' ? 'connecting' : live.replica?.state === 'standby' ? 'standby' : 'not current';
  return html`<p class="state" title=${live.replica ? `${live.user && `read as ${live.user}; `}${live.replica.leader}, ${live.replica.mode} mode, version ${live.replica.version}` : ''}>
    <i class=${isCurrent ? 'dot' : 'dot off'}></i><span>${text}</span></p>`;
}

/** @param {Event} event */
function skip(event) {
  event.preventDefault();
  document.getElementById('content')?.focus();
}

const root = /** @type {HTMLElement} */ (document.getElementById('page'));
root.textContent = '';
render(html`<${Page} />`, root);
