// The client of a producer and a reader.

import type { components } from "./generated/reader.js";
import { jitter, KudosConnectionError, KudosProblem, parseJSON, pause, problemOf, send, stringifyJSON } from "./http.js";
import type { Exact, Position, Transport } from "./http.js";
import { type Id, idText, timeText } from "./keys.js";
import { EventParser } from "./sse.js";

type Schemas = components["schemas"];
export type PostLikes = Exact<Schemas["PostLikes"]>;
export type ManyLikes = Exact<Schemas["ManyLikes"]>;
export type UserReaction = Exact<Schemas["UserReaction"]>;
export type Ranking = Exact<Schemas["Ranking"]>;
export type Reaction = UserReaction["reaction"];

export interface ClientOptions extends Partial<Transport> {
  producerUrl?: string; // may be relative to the page; absent: the client only reads
  readerUrl?: string;
  /** Bearer token for the producer, with producer.auth=jwt. A function is called for each like. */
  token?: string | (() => string | Promise<string>);
  /** A stream without data and heartbeats for this long is reconnected. Default: 45,000, three heartbeats. */
  staleMs?: number;
}

export interface LikeOptions {
  timeMs?: number | bigint; // when the user acted, in Unix milliseconds; default: now
  region?: string;
  signal?: AbortSignal;
}

export interface ReadOptions {
  /** Positions of events that the response must cover. An offset of -1 (rare) is ignored. */
  minOffset?: Position | Position[];
  signal?: AbortSignal;
}

export interface StreamOptions {
  posts: readonly Id[]; // up to 100
  viewer?: Id; // a user whose own reactions are events, too
  lastEventId?: string; // resumes an earlier stream
  signal?: AbortSignal; // ends the stream
}

export type StreamEvent = { id: string } & ({ event: "likes"; data: PostLikes } | { event: "reaction"; data: UserReaction });

export class KudosClient {
  readonly #o: ClientOptions;
  readonly #transport: Transport;

  constructor(options: ClientOptions) {
    this.#o = options;
    const { fetch = (...request) => globalThis.fetch(...request), timeoutMs = 15_000, retryForMs = 30_000 } = options;
    this.#transport = { fetch, timeoutMs, retryForMs };
  }

  /** like sets the user's reaction to LIKE, and returns the event's position. */
  like(post: Id, user: Id, options?: LikeOptions) { return this.#react("PUT", "likes", post, user, options); }

  dislike(post: Id, user: Id, options?: LikeOptions) { return this.#react("PUT", "dislikes", post, user, options); }

  /** unlike withdraws the user's like or dislike. */
  unlike(post: Id, user: Id, options?: LikeOptions) { return this.#react("DELETE", "likes", post, user, options); }

  async count(post: Id, { minOffset, signal }: ReadOptions = {}): Promise<PostLikes> {
    return this.#get(`/v1/posts/${idText(post, "post")}/likes`, { min_offset: join(minOffset) }, signal);
  }

  /** counts returns the counts of up to 1,000 posts, and the viewer's own reactions. */
  async counts(posts: readonly Id[], { viewer, minOffset, signal }: ReadOptions & { viewer?: Id } = {}): Promise<ManyLikes> {
    const post_ids = posts.map((post) => idText(post, "post"));
    const query = { post_ids, viewer: optional(viewer), min_offset: known(minOffset) };
    if (post_ids.length <= 50) return this.#get("/v1/likes", { ...query, post_ids: post_ids.join(), min_offset: join(minOffset) }, signal);
    // A longer URL may exceed a proxy's limit.
    const init = { method: "POST", headers: { "Content-Type": "application/json" }, body: stringifyJSON(query) };
    return await send(this.#transport, address("readerUrl", this.#o.readerUrl, "/v1/likes:get"), init, signal) as ManyLikes;
  }

  async reaction(post: Id, user: Id, { minOffset, signal }: ReadOptions = {}): Promise<UserReaction> {
    return this.#get(`/v1/posts/${idText(post, "post")}/likes/${idText(user, "user")}`, { min_offset: join(minOffset) }, signal);
  }

  /** trending returns the posts with the most likes in a window, such as 10m, 1h, 24h, day or all. */
  async trending(region = "global", window = "1h", { signal }: { signal?: AbortSignal } = {}): Promise<Ranking> {
    return this.#get(`/v1/trending/${encodeURIComponent(region)}`, { window }, signal);
  }

  /**
   * stream yields the current values, then changes, until signal aborts. After a reconnect it may repeat a value, but
   * yields none that is older. It throws a KudosProblem if a retry cannot help.
   */
  async *stream({ posts, viewer, lastEventId = "", signal }: StreamOptions): AsyncGenerator<StreamEvent, void, undefined> {
    const post_ids = posts.map((post) => idText(post, "post")).join();
    const url = address("readerUrl", this.#o.readerUrl, "/v1/stream", { post_ids, viewer: optional(viewer) });
    const session: Session = { lastId: lastEventId, retryMs: 1_000, failures: 0 };
    while (!signal?.aborted) {
      let retryAfterMs = 0;
      try {
        yield* this.#connection(url, session, signal);
      } catch (error) {
        if (error instanceof KudosProblem) {
          if (!error.temporary) throw error;
          retryAfterMs = Math.min(error.retryAfterMs, 300_000);
        }
      }
      const backoff = Math.min(session.retryMs * 2 ** session.failures++, Math.max(30_000, session.retryMs));
      if (!signal?.aborted) await pause(jitter(retryAfterMs || backoff), signal);
    }
  }

  /** connection yields the events of one connection, until it ends, breaks or is stale. */
  async *#connection(url: string, session: Session, signal?: AbortSignal): AsyncGenerator<StreamEvent> {
    const stop = new AbortController();
    const stale = () => setTimeout(() => stop.abort(new KudosConnectionError("kudos: stale stream")), this.#o.staleMs ?? 45_000);
    let timer = stale();
    try {
      const headers: HeadersInit = { Accept: "text/event-stream", ...(session.lastId && { "Last-Event-ID": session.lastId }) };
      const either = signal ? AbortSignal.any([signal, stop.signal]) : stop.signal;
      const response = await this.#transport.fetch(url, { headers, cache: "no-store", signal: either });
      if (!response.ok) throw await problemOf(response);
      const chunks = response.body!.getReader();
      const [decoder, parser] = [new TextDecoder(), new EventParser()];
      for (let chunk = await chunks.read(); !chunk.done; chunk = await chunks.read()) {
        clearTimeout(timer); // the caller may take its time
        const events = parser.push(decoder.decode(chunk.value, { stream: true }));
        session.retryMs = parser.retryMs ?? session.retryMs;
        for (const { id, event, data } of events) {
          [session.lastId, session.failures] = [id || session.lastId, 0];
          if (event === "likes" || event === "reaction") yield { event, id, data: parseJSON(data) } as StreamEvent;
          if (signal?.aborted) return;
        }
        timer = stale();
      }
    } finally {
      clearTimeout(timer);
      stop.abort();
    }
  }

  async #react(method: string, list: string, post: Id, user: Id, { timeMs = Date.now(), region, signal }: LikeOptions = {}) {
    const time_ms = timeText(timeMs); // of all attempts, so that a late one cannot override what the user does in between
    const path = `/v1/posts/${idText(post, "post")}/${list}/${idText(user, "user")}`;
    try {
      const { token, producerUrl } = this.#o;
      const bearer = typeof token === "function" ? await token() : token;
      const init = { method, headers: bearer ? { Authorization: `Bearer ${bearer}` } : undefined };
      return await send(this.#transport, address("producerUrl", producerUrl, path, { time_ms, region }), init, signal) as Position;
    } catch (error) {
      if (error instanceof KudosProblem || error instanceof KudosConnectionError) error.timeMs = time_ms;
      throw error;
    }
  }

  async #get<T>(path: string, query: Query, signal?: AbortSignal): Promise<T> {
    return await send(this.#transport, address("readerUrl", this.#o.readerUrl, path, query), { method: "GET" }, signal) as T;
  }
}

type Session = { lastId: string; retryMs: number; failures: number }; // failures: since the last event
type Query = Record<string, string | undefined>;

function address(option: string, base: string | undefined, path: string, query: Query = {}): string {
  if (base === undefined) throw new TypeError(`kudos: ${option} is missing`);
  const url = new URL(base.replace(/\/+$/, "") + path, globalThis.document?.baseURI);
  url.search = Object.entries(query).filter(([, value]) => value)
    .map(([name, value]) => `${name}=${encodeURIComponent(value!).replaceAll("%2C", ",").replaceAll("%3A", ":")}`).join("&");
  return url.href;
}

const optional = (viewer?: Id) => (viewer === undefined ? undefined : idText(viewer, "viewer"));
const known = (minOffset: Position | Position[] = []) => [minOffset].flat().filter(({ offset }) => offset !== "-1");
const join = (minOffset?: Position | Position[]) => known(minOffset).map(({ partition, offset }) => `${partition}:${offset}`).join();
