/**
 * Server-sent events by fetch: unlike an EventSource, it can send a bearer token, and knows why it was refused.
 */

/** The token of the reader. It is kept here only, so it is gone with the page. */
let token = '';

/** @param {string} value */
export function setToken(value) {
  token = value;
}

/** The headers that show the token of the reader. @returns {Record<string, string>} */
export function authorisation() {
  return token ? { 'X-Tranche-Token': token } : {};
}

/**
 * Dispatches `open`, the server's events as MessageEvents, and then one of `end`, if the server ended the stream, `lost`,
 * or `refused` with status and text as its detail. After `close` it dispatches nothing.
 */
export class Events extends EventTarget {
  /** @param {string} url */
  constructor(url) {
    super();
    this.controller = new AbortController();
    void this.run(url);
  }

  close() {
    this.controller.abort();
  }

  /** @param {string} url */
  async run(url) {
    const { signal } = this.controller;
    try {
      const response = await fetch(url, { headers: authorisation(), signal, cache: 'no-store' });
      if (!response.ok || !response.body) {
        const detail = { status: response.status, text: (await response.text()).slice(0, 500) };
        this.tell(new CustomEvent('refused', { detail }));
        return;
      }
      this.tell(new Event('open'));
      await this.read(response.body);
      this.tell(new Event('end'));
    } catch {
      this.tell(new Event('lost'));
    }
  }

  /** @param {ReadableStream<Uint8Array<ArrayBuffer>>} body */
  async read(body) {
    const reader = body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = '';
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const blocks = (rest + value).split('\n\n');
      rest = blocks.pop() ?? '';
      for (const block of blocks) this.tell(parse(block));
    }
  }

  /** @param {Event} event */
  tell(event) {
    if (!this.controller.signal.aborted) this.dispatchEvent(event);
  }
}

/** One event of the server, each of whose fields has one line. @param {string} block */
function parse(block) {
  /** @type {Record<string, string>} */
  const fields = {};
  for (const line of block.split('\n')) {
    const colon = line.indexOf(': ');
    if (colon > 0) fields[line.slice(0, colon)] = line.slice(colon + 2);
  }
  return new MessageEvent(fields.event ?? 'message', { data: fields.data ?? '', lastEventId: fields.id ?? '' });
}
