/** Says when what is shown may be old, and why. */

import { html } from './vendor/preact-htm.js';
import { time } from './format.js';
import { SignIn } from './sign_in.js';

/** @param {{live: import('./stream.js').Live}} props */
export function Banner({ live }) {
  const [text, detail] = says(live);
  return html`<div role="status" class=${text ? 'banner' : ''}>
    ${text && html`<strong>${text}</strong> <span>${detail}</span>`}
    ${live.connection === 'refused' && live.refusal.status === 401 && html`<${SignIn} live=${live} />`}
  </div>`;
}

/** @param {import('./stream.js').Live} live @returns {[string, string]} */
function says({ connection, refusal, replica, heardAt, failed }) {
  const since = heardAt ? `What is shown is from ${time(heardAt)}.` : 'Nothing was received yet.';
  if (connection === 'lost') return ['No connection to the scheduler.', `${since} Trying again.`];
  if (connection === 'refused') return ['The scheduler does not show this page.', `${refusal.text} (${refusal.status})`];
  if (!replica) return ['', ''];
  if (replica.state === 'standby') {
    const leader = replica.leader ? `${replica.leader} leads.` : 'Another replica leads.';
    return ['This replica stands by.', `${leader} This page shows the cluster as soon as this replica leads.`];
  }
  if (replica.state === 'unready') return ['The scheduler is not ready.', `It schedules no pods: ${replica.problem}.`];
  if (failed.size) return ['A section is out of date.', `An internal error keeps ${[...failed].join(', ')} from being read; the scheduler's log has it.`];
  return ['', ''];
}
