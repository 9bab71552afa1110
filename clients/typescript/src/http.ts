// Requests: which are retried, when, and what their errors are.

import type { components as producer } from "./generated/producer.js";
import type { components as reader } from "./generated/reader.js";

export type Problem = producer["schemas"]["Problem"] | reader["schemas"]["Problem"];

/** KudosProblem is an error response (RFC 9457). */
export class KudosProblem extends Error {
  override readonly name = "KudosProblem";
  timeMs?: string; // of the like that failed: to repeat it later, pass this timeMs

  /** @param problem of type about:blank if it is not a response of kudos; @param retryAfterMs 0 if absent */
  constructor(readonly status: number, readonly problem: Problem, readonly retryAfterMs: number) {
    super(`kudos: ${status} ${problem.title}: ${problem.detail}`);
  }

  /** is compares the problem's type, such as "rate-limited". */
  is(type: string): boolean { return this.problem.type === `urn:kudos:problem:${type}`; }

  /** temporary reports whether a later attempt may succeed. (502 and 504 come from proxies.) */
  get temporary(): boolean { return [429, 502, 503, 504].includes(this.status); }
}

/** KudosConnectionError means that there was no response: the request may or may not have had its effect. */
export class KudosConnectionError extends Error {
  override readonly name = "KudosConnectionError";
  timeMs?: string; // as in KudosProblem
}

export interface Transport {
  fetch: typeof fetch;
  timeoutMs: number; // of an attempt
  retryForMs: number; // no attempt starts later than this after the first
}

/** send repeats a request until it is answered, and returns the response's body. */
export async function send(t: Transport, url: string, init: RequestInit, signal?: AbortSignal): Promise<unknown> {
  const giveUpAt = Date.now() + t.retryForMs;
  for (let attempt = 1; ; attempt++) {
    signal?.throwIfAborted();
    let failure: unknown;
    try {
      const timeout = AbortSignal.timeout(t.timeoutMs);
      const response = await t.fetch(url, { ...init, signal: signal ? AbortSignal.any([signal, timeout]) : timeout });
      if (response.ok) return parseJSON(await response.text());
      failure = await problemOf(response);
    } catch (error) {
      failure = error; // no response, or half of one
    }
    signal?.throwIfAborted();
    const problem = failure instanceof KudosProblem ? failure : undefined;
    const wait = jitter(problem?.retryAfterMs || Math.min(200 * 2 ** (attempt - 1), 5_000));
    if (problem?.temporary === false || Date.now() + wait > giveUpAt) {
      throw problem ?? new KudosConnectionError(`kudos: ${init.method} ${url}: no response (attempts: ${attempt})`, { cause: failure });
    }
    await pause(wait, signal);
  }
}

/** problemOf reads an error response. */
export async function problemOf(response: Response): Promise<KudosProblem> {
  const { status, statusText: title } = response;
  const body = await response.json().catch(() => null) as Problem | null; // null: a proxy's page
  const problem = body?.type ? body : { type: "about:blank", title, status, detail: "not a response of kudos" };
  const after = response.headers.get("Retry-After") ?? "";
  const ms = /^\d+$/.test(after) ? Number(after) * 1_000 : Date.parse(after) - Date.now();
  return new KudosProblem(status, problem, Math.max(0, ms || 0));
}

/** Position is an event's place in the topic likes. Its offset is in decimal, because it may exceed 2^53. */
export type Position = { partition: number; offset: string };

/** Exact is a response's type, with such positions. */
export type Exact<T> = T extends { partition: number; offset: number } ? Position
  : T extends (infer U)[] ? Exact<U>[] : T extends object ? { [K in keyof T]: Exact<T[K]> } : T;

/** parseJSON makes offsets strings. (Inside a JSON string, the quotes would be escaped.) */
export const parseJSON = (text: string): unknown => JSON.parse(text.replace(/"offset":\s*(-?\d+)/g, '"offset":"$1"'));
export const stringifyJSON = (value: unknown) => JSON.stringify(value).replace(/"offset":"(\d+)"/g, '"offset":$1');

/** jitter adds up to a quarter: clients come back at different times, and none too early. */
export const jitter = (ms: number) => ms * (1 + Math.random() / 4);

/** pause waits, at most until signal aborts. */
export function pause(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(done, ms);
    function done() {
      clearTimeout(timer);
      signal?.removeEventListener("abort", done); // a signal may outlive many pauses
      resolve();
    }
    signal?.addEventListener("abort", done);
  });
}
