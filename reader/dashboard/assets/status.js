// The status at the top of the page: the worst state that any part reports. While the reader cannot be reached, all
// figures are marked as old: the page asserts nothing that it does not know.

import { secondsOfDay } from './format.js';

const order = ['not ready', 'reconnecting', 'catching up', 'live'];

export class Status {
  #element;
  #parts = new Map();
  #known = null; // when all parts were last up to date

  constructor(element) {
    this.#element = element;
  }

  /** stale reports whether the figures are old. */
  get stale() {
    return document.body.dataset.stale === 'true';
  }

  /** set a part's state: one of order, or closed. */
  set(part, state) {
    if (state === 'closed') this.#parts.delete(part);
    else this.#parts.set(part, state);
    const said = [...this.#parts.values()];
    const shown = order.find((state) => said.includes(state)) ?? 'connecting';
    const stale = shown === 'reconnecting' || shown === 'not ready';
    if (!stale && shown !== 'connecting') this.#known = new Date();
    document.body.dataset.stale = String(stale);
    if (this.#element.dataset.state === shown) return; // screen readers announce changes only
    this.#element.dataset.state = shown;
    this.#element.textContent = this.#text(shown);
  }

  #text(shown) {
    const asOf = this.#known ? `as of ${secondsOfDay(this.#known)}, ` : '';
    if (shown === 'reconnecting') return `${asOf}connection lost`;
    if (shown === 'not ready') return `${asOf}not ready`;
    return shown === 'connecting' ? 'connecting…' : shown;
  }
}
