// The status at the top of the page: the worst state that any part reports.

const order = ['not ready', 'reconnecting', 'catching up', 'live'];
const words = { 'reconnecting': 'reconnecting…', 'connecting': 'connecting…' };

export class Status {
  #element;
  #parts = new Map();

  constructor(element) {
    this.#element = element;
  }

  /** set a part's state: one of order, or closed. */
  set(part, state) {
    if (state === 'closed') this.#parts.delete(part);
    else this.#parts.set(part, state);
    const said = [...this.#parts.values()];
    const shown = order.find((state) => said.includes(state)) ?? 'connecting';
    if (this.#element.dataset.state === shown) return; // screen readers announce changes only
    this.#element.dataset.state = shown;
    this.#element.textContent = words[shown] ?? shown;
  }
}
