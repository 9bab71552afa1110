// The word at the top: how the page stands with its reader. Each part of the page says
// how it stands by itself; the worst of it is shown.

const order = ['not ready', 'reconnecting', 'catching up', 'live'];
const words = { 'reconnecting': 'reconnecting…', 'connecting': 'connecting…' };

export class Status {
  #element;
  #parts = new Map();

  constructor(element) {
    this.#element = element;
  }

  /** set what a part says: one of order, or closed. */
  set(part, state) {
    if (state === 'closed') this.#parts.delete(part);
    else this.#parts.set(part, state);
    const said = [...this.#parts.values()];
    const shown = order.find((state) => said.includes(state)) ?? 'connecting';
    if (this.#element.dataset.state === shown) return; // a screen reader is told of changes only
    this.#element.dataset.state = shown;
    this.#element.textContent = words[shown] ?? shown;
  }
}
