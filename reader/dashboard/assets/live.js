// One live stream of the reader: an EventSource that is made anew whenever it is lost.
//
// A browser would reconnect by itself, but not after an answer such as 503 (a reader that
// starts), and not at a pace of ours. So any error ends the EventSource, and another one
// goes on from the last id. While nobody looks at the page there is none: a browser has
// six connections to a host, for all its tabs.

const firstPause = 500; // ms, doubled with each attempt
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
   * @param {string} event  which events are wanted
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

  /** follow whether somebody looks. */
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
      // Between half the pause and all of it: not all pages at once.
      const pause = Math.min(longestPause, firstPause * 2 ** this.#attempts++) * (0.5 + Math.random() / 2);
      this.#timer = setTimeout(() => this.#connect(), pause);
    });
  }
}
