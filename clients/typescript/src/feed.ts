// Live values for all buttons of a page: one stream per reader and user, for up to 100 posts.

import type { KudosClient, StreamEvent } from "./client.js";
import { KudosProblem } from "./http.js";
import { idText } from "./keys.js";

const maxPosts = 100; // in one stream
const joinMs = 50; // the posts of buttons that come within this time are added together

type Listener = { value(event: StreamEvent): void; failed(error: unknown): void };
/** Post has the last event of each kind, for listeners that come later. */
type Post = { listeners: Set<Listener>; last: Map<string, StreamEvent> };
/** Line is a stream; without stop, it is not connected. */
type Line = { posts: string[]; lastId: string; stop?: AbortController };

export class Feed {
  readonly #client: KudosClient;
  readonly #posts = new Map<string, Post>();
  #lines: Line[] = [];
  #timer: ReturnType<typeof setTimeout> | undefined;

  /** @param viewer a user, whose own reactions are streamed, too; cleared if the reader keeps counts only */
  constructor(client: KudosClient, public viewer?: string) {
    this.#client = client;
    globalThis.document?.addEventListener("visibilitychange", () => this.#plan());
  }

  /** join calls listener with a post's values and changes, until the returned function is called. */
  join(id: string, listener: Listener): () => void {
    const key = idText(id, "post");
    const post = this.#posts.get(key) ?? { listeners: new Set(), last: new Map() };
    this.#posts.set(key, post);
    post.listeners.add(listener);
    queueMicrotask(() => post.listeners.has(listener) && post.last.forEach((event) => listener.value(event)));
    this.#plan();
    return () => {
      post.listeners.delete(listener);
      if (post.listeners.size === 0 && this.#posts.get(key) === post) this.#posts.delete(key);
      this.#plan();
    };
  }

  #plan(): void { this.#timer ??= setTimeout(() => this.#connect(), joinMs); }

  /** connect opens the streams that are missing, and closes those that nobody reads. */
  #connect(): void {
    this.#timer = undefined;
    const read = (line: Line) => line.posts.filter((post) => this.#posts.has(post));
    const streamed = new Set(this.#lines.flatMap(({ posts }) => posts));
    for (const post of [...this.#posts.keys()].filter((id) => !streamed.has(id))) {
      let line = this.#lines.find((l) => read(l).length < maxPosts);
      if (!line) this.#lines.push(line = { posts: [], lastId: "" });
      line.posts = [...read(line), post];
      this.#disconnect(line); // to connect again, with this post
    }
    // A hidden page has no streams: with HTTP/1.1, a browser opens only 6 connections per host, across all tabs.
    const hidden = globalThis.document?.visibilityState === "hidden";
    for (const line of this.#lines) {
      if (hidden || read(line).length === 0) this.#disconnect(line);
      else if (!line.stop) void this.#follow(line, line.stop = new AbortController());
    }
    this.#lines = this.#lines.filter((line) => read(line).length > 0);
  }

  #disconnect(line: Line): void {
    line.stop?.abort();
    line.stop = undefined;
  }

  async #follow(line: Line, { signal }: AbortController): Promise<void> {
    const { posts, lastId: lastEventId } = line;
    try {
      for await (const event of this.#client.stream({ posts, viewer: this.viewer, lastEventId, signal })) {
        line.lastId = event.id;
        const post = this.#posts.get(event.data.post_id);
        post?.last.set(event.event, event);
        post?.listeners.forEach((listener) => listener.value(event));
      }
    } catch (error) {
      if (error instanceof KudosProblem && error.is("no-reactions") && this.viewer) {
        this.viewer = undefined;
        this.#disconnect(line);
        this.#plan();
      } else posts.forEach((post) => this.#posts.get(post)?.listeners.forEach((listener) => listener.failed(error)));
    }
  }
}
