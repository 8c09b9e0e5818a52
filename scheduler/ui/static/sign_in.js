/** Asks for a bearer token, where the page is exposed and nothing in front of it sends one. */

import { html, useState } from './vendor/preact-htm.js';

/** @param {{live: import('./stream.js').Live}} props */
export function SignIn({ live }) {
  const [token, setToken] = useState('');
  /** @param {Event} event */
  const submit = (event) => {
    event.preventDefault();
    if (token.trim()) live.signIn(token.trim());
  };
  return html`
    <form class="sign-in" onSubmit=${submit}>
      <label>Token
        <input type="password" autocomplete="off" spellcheck=${false} value=${token}
          onInput=${(/** @type {any} */ event) => setToken(event.target.value)} />
      </label>
      <button>Show the page</button>
      <p>A bearer token of the cluster, such as <code>kubectl create token</code> prints. It is kept in this tab until
        it is closed or loaded again.</p>
    </form>`;
}
