/** Cordons a card in the name of the reader, who needs the right to change its node. */

import { html, useState } from '../vendor/preact-htm.js';
import { fetchJson, useFetched } from '../ui.js';

/** @param {string} node */
function address(node) {
  return `nodes/${encodeURIComponent(node)}/cordon`;
}

/** Whether the reader may cordon cards of a node; no reader may where the page knows no users. @param {string} node @param {string} user */
export function useMayCordon(node, user) {
  return useFetched(user ? address(node) : '', `${user}/${node}`).content?.allowed === true;
}

/** @param {{node: string, card: any}} props */
export function CordonButton({ node, card }) {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState('');
  const word = card.cordoned ? 'Uncordon' : 'Cordon';
  const change = async () => {
    setBusy(true);
    setError('');
    const body = JSON.stringify({ uuid: card.uuid, cordoned: !card.cordoned });
    try {
      await fetchJson(address(node), { method: 'POST', body, headers: { 'Content-Type': 'application/json' } });
    } catch (failure) {
      setError(/** @type {Error} */ (failure).message);
    }
    setBusy(false);
  };
  return html`<p><button type="button" disabled=${busy} onClick=${change} aria-label=${`${word} card ${card.index}`}
      title=${card.cordoned ? 'Let new pods use this card.' : 'Keep new pods off this card; its pods keep their shares.'}>${word}</button></p>
    ${error && html`<p class="note bad" role="alert">${error}</p>`}`;
}
