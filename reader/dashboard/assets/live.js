// A live stream: an EventSource that is recreated after any error.
//
// A browser reconnects by itself, but not after a response such as 503 (the reader is
// starting), and without exponential backoff. So any error closes the EventSource, and a
// new one resumes from the last event id. A hidden page has no stream: with HTTP/1.1, a
// browser opens only 6 connections per host, across all tabs.

const firstPause = 500; // ms, doubles with each attempt
const longestPause = 4_000;

export class LiveStream {
  #query;
  #event;
  #onData;
  #onState;
  #source = null;
  #timer = 0;
  #attempts = 0;
  #lastId = '';
  #stop = new AbortController();

  /**
   * @param {object} query  of /v1/stream: post_ids, or trending and window
   * @param {string} event  name of the events to receive
   * @param {(data: object, id: string) => void} onData
   * @param {(state: 'live'|'reconnecting'|'closed') => void} onState
   */
  constructor(query, event, onData, onState) {
    this.#query = query;
    this.#event = event;
    this.#onData = onData;
    this.#onState = onState;
    const signal = this.#stop.signal;
    for (const [target, event] of [[document, 'visibilitychange'], [window, 'online']]) {
      target.addEventListener(event, () => this.#follow(), { signal });
    }
    this.#follow();
  }

  close() {
    this.#stop.abort();
    this.#disconnect();
    this.#onState('closed');
  }

  #follow() {
    if (document.hidden) this.#disconnect();
    else this.#connect();
  }

  #disconnect() {
    clearTimeout(this.#timer);
    this.#source?.close();
    this.#source = null;
  }

  #connect() {
    this.#disconnect();
    const query = new URLSearchParams(this.#query);
    if (this.#lastId) query.set('last_event_id', this.#lastId);
    const source = new EventSource(`/v1/stream?${query}`);
    this.#source = source;
    source.addEventListener('open', () => {
      this.#attempts = 0;
      this.#onState('live');
    });
    source.addEventListener(this.#event, (message) => {
      this.#lastId = message.lastEventId || this.#lastId;
      this.#onData(JSON.parse(message.data), message.lastEventId);
    });
    source.addEventListener('error', () => {
      this.#disconnect();
      this.#onState('reconnecting');
      // Jitter, so that pages don't reconnect all at once.
      const pause = Math.min(longestPause, firstPause * 2 ** this.#attempts++) * (0.5 + Math.random() / 2);
      this.#timer = setTimeout(() => this.#connect(), pause);
    });
  }
}
