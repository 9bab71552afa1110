// One button: its state, its likes and its live values. button.ts adds the DOM.

import type { KudosClient } from "./client.js";
import type { Feed } from "./feed.js";
import { pause } from "./http.js";
import { ButtonState, type Shown } from "./state.js";

export type ModelOptions = {
  client: KudosClient; feed: Feed; post: string; region?: string | undefined;
  user?: string | undefined; // absent: nobody is signed in
  changed(): void; failed(error: unknown): void;
};

export class ButtonModel {
  readonly #o: ModelOptions;
  readonly #state = new ButtonState();
  readonly #leave: () => void;
  #sending: AbortController | undefined;
  #lastMs = 0;
  #closed = false;

  constructor(options: ModelOptions) {
    this.#o = options;
    this.#leave = options.feed.join(options.post, {
      value: ({ event, id, data }) => {
        this.#state.epoch(id);
        if (event === "likes") this.#state.counted(data.likes, data.as_of);
        else this.#state.reacted(data.reaction, data.as_of);
        this.#changed();
      },
      failed: options.failed,
    });
  }

  get shown(): Shown { return this.#state.shown; }

  /** toggle likes, or withdraws the like. It resolves once that is counted or has failed, and never rejects. */
  async toggle(): Promise<void> {
    const { client, feed, post, user, region, failed } = this.#o;
    if (user === undefined) return failed(new Error("kudos: nobody is signed in: the attribute user is missing"));
    const click = this.#state.click();
    this.#changed();
    this.#sending?.abort(); // The later click decides, even if both arrive: its time is later.
    const { signal } = this.#sending = new AbortController();
    const timeMs = this.#lastMs = Math.max(Date.now(), this.#lastMs + 1);
    try {
      const like = click.reaction === "LIKE" ? client.like : client.unlike;
      this.#state.accepted(click, await like.call(client, post, user, { timeMs, region, signal }));
    } catch (error) {
      if (this.#state.refused(click) && !this.#closed) failed(error);
      return this.#changed();
    }
    this.#changed();
    try {
      // The stream sends nothing if the like changed nothing. If the position is unknown (rare), waiting has to do.
      if (click.position!.offset === "-1") await pause(1_000);
      if (this.#closed || this.#state.shown !== click) return;
      this.#state.covered(click, await client.counts([post], { viewer: feed.viewer, minOffset: click.position }));
      this.#changed();
    } catch {
      // The like was accepted. The next value of the stream covers it.
    }
  }

  /** close leaves the stream. A like in flight is still sent. */
  close(): void {
    this.#closed = true;
    this.#leave();
  }

  #changed(): void { if (!this.#closed) this.#o.changed(); }
}
