import assert from "node:assert/strict";
import { test } from "node:test";
import { KudosClient, KudosConnectionError, KudosProblem } from "../dist/index.js";
import { json, likes, openStream, problem, serve, until } from "./server.mjs";

const accepted = '{"partition":4,"offset":1017}';

async function start(t, handle, options = {}) {
  const server = await serve(t, handle);
  return { ...server, kudos: new KudosClient({ producerUrl: server.url, readerUrl: `${server.url}/`, ...options }) };
}

test("like, dislike and unlike send what the API expects", async (t) => {
  const { kudos, requests } = await start(t, (_, response) => json(response, accepted, 202), { token: async () => "secret" });
  const before = Date.now();
  assert.deepEqual(await kudos.like(42, "9007199254740993", { region: "US-CA" }), { partition: 4, offset: "1017" });
  await kudos.dislike("42", 7n, { timeMs: 1_700_000_000_000 });
  await kudos.unlike(2n ** 64n - 1n, 7);
  assert.deepEqual(requests.map(({ method, path }) => `${method} ${path}`), [
    "PUT /v1/posts/42/likes/9007199254740993", "PUT /v1/posts/42/dislikes/7", "DELETE /v1/posts/18446744073709551615/likes/7"]);
  const [first, second] = requests.map(({ query }) => query);
  assert.ok(first.get("time_ms") >= before && first.get("time_ms") <= Date.now());
  assert.equal(first.get("region"), "US-CA");
  assert.equal(second.get("time_ms"), "1700000000000");
  assert.equal(requests[0].headers.authorization, "Bearer secret");
});

test("a like that is not answered is sent again with the same time", async (t) => {
  const { kudos, requests } = await start(t, (_, response, number) => {
    if (number === 1) return response.destroy(); // the request was read
    if (number === 2) { // half a response
      response.writeHead(202, { "Content-Length": 100 });
      response.write(accepted);
      return setTimeout(() => response.destroy(), 20);
    }
    if (number === 3) return problem(response, 503, "not-acknowledged");
    json(response, accepted, 202);
  });
  assert.equal((await kudos.like(42, 7)).offset, "1017");
  assert.equal(requests.length, 4);
  assert.equal(new Set(requests.map(({ query }) => query.get("time_ms"))).size, 1);
});

test("a server that is not reachable is tried for a while", async () => {
  const fail = async () => { throw new TypeError("fetch failed"); };
  const kudos = new KudosClient({ producerUrl: "http://producer", readerUrl: "http://reader", fetch: fail, retryForMs: 300 });
  await assert.rejects(kudos.like(42, 7, { timeMs: 5 }), (error) => {
    assert.ok(error instanceof KudosConnectionError);
    assert.equal(error.timeMs, "5");
    assert.equal(error.cause.message, "fetch failed");
    assert.match(error.message, /PUT http:\/\/producer\/v1\/posts\/42\/likes\/7\?time_ms=5: no response \(attempts: 2\)/);
    return true;
  });
});

test("429 and 503 are retried after Retry-After", async (t) => {
  const times = [];
  const { kudos } = await start(t, (_, response, number) => {
    times.push(Date.now());
    if (number === 1) return problem(response, 429, "rate-limited", { "Retry-After": "1" });
    if (number === 2) return problem(response, 503, "buffer-full", { "Retry-After": "1" });
    json(response, accepted, 202);
  });
  await kudos.like(42, 7);
  assert.ok(times[1] - times[0] >= 995, `${times[1] - times[0]} ms`); // timers may be 1 ms early
  assert.ok(times[2] - times[1] >= 995, `${times[2] - times[1]} ms`);
});

test("a Retry-After beyond the limit is not waited for", async (t) => {
  const { kudos, requests } = await start(t, (_, response) => problem(response, 429, "rate-limited", { "Retry-After": "60" }));
  await assert.rejects(kudos.like(42, 7, { timeMs: 5 }), (error) => error instanceof KudosProblem && error.is("rate-limited")
    && error.timeMs === "5" && error.retryAfterMs === 60_000);
  assert.equal(requests.length, 1);
});

test("other problems are not retried", async (t) => {
  const { kudos, requests } = await start(t, (_, response, number) => {
    if (number === 1) return problem(response, 403, "forbidden");
    response.writeHead(500);
    response.end("<html>");
  });
  await assert.rejects(kudos.like(42, 7), { name: "KudosProblem", status: 403, message: "kudos: 403 forbidden: as the test says" });
  await assert.rejects(kudos.like(42, 7), { status: 500, problem: { type: "about:blank", title: "Internal Server Error", status: 500, detail: "not a response of kudos" } });
  assert.equal(requests.length, 2);
});

test("an abort ends waiting, with the signal's reason", async (t) => {
  const { kudos, requests } = await start(t, (_, response) => problem(response, 503, "not-running", { "Retry-After": "20" }));
  const reason = new Error("left the page");
  const stop = new AbortController();
  const like = kudos.like(42, 7, { signal: stop.signal });
  await until("a request", () => requests.length === 1);
  setTimeout(() => stop.abort(reason), 20);
  await assert.rejects(like, reason);
  await assert.rejects(kudos.count(42, { signal: stop.signal }), reason);
  assert.equal(requests.length, 1);
});

test("an attempt has a timeout", async (t) => {
  const { kudos, requests } = await start(t, (_, response, number) => number > 1 && json(response, accepted, 202), { timeoutMs: 50 });
  await kudos.like(42, 7);
  assert.equal(requests.length, 2);
});

test("unsafe numbers are rejected before a request", async (t) => {
  const { kudos, requests } = await start(t, (_, response) => json(response, {}));
  for (const call of [() => kudos.like(2 ** 60, 7), () => kudos.unlike(42, 2 ** 60), () => kudos.count(2 ** 60), () => kudos.counts([2 ** 60]),
    () => kudos.reaction(42, 2 ** 60), () => kudos.stream({ posts: [2 ** 60] }).next(), () => kudos.like(42, 7, { timeMs: 0.5 })]) {
    await assert.rejects(call, { name: "RangeError", message: /is not an exact integer/ });
  }
  await assert.rejects(new KudosClient({ readerUrl: "http://reader" }).like(42, 7), /producerUrl is missing/);
  assert.equal(requests.length, 0);
});

test("reads pass positions on, and keep large offsets exact", async (t) => {
  const large = '{"post_id":"42","likes":3,"dislikes":1,"as_of":{"partition":4,"offset":9007199254740993}}';
  const { kudos, requests } = await start(t, (_, response) => json(response, large));
  const { likes, as_of } = await kudos.count("42", { minOffset: { partition: 4, offset: "1017" } });
  assert.deepEqual([likes, as_of], [3, { partition: 4, offset: "9007199254740993" }]);
  await kudos.count("42", { minOffset: { partition: 4, offset: "-1" } });
  await kudos.counts(["42", 43n], { viewer: 7, minOffset: [as_of, { partition: 2, offset: "5" }] });
  await kudos.reaction(42, 7, { minOffset: as_of });
  await kudos.trending("US-CA", "24h");
  assert.deepEqual(requests.map(({ path, query }) => `${path}?${decodeURIComponent(query)}`), [
    "/v1/posts/42/likes?min_offset=4:1017", "/v1/posts/42/likes?",
    "/v1/likes?post_ids=42,43&viewer=7&min_offset=4:9007199254740993,2:5",
    "/v1/posts/42/likes/7?min_offset=4:9007199254740993", "/v1/trending/US-CA?window=24h"]);
});

test("counts of many posts are requested by POST", async (t) => {
  const { kudos, requests } = await start(t, (_, response) => json(response, { posts: [], as_of: [] }));
  const posts = Array.from({ length: 51 }, (_, i) => i + 1);
  await kudos.counts(posts, { viewer: 7, minOffset: { partition: 4, offset: "9007199254740993" } });
  const [{ method, path, body }] = requests;
  assert.deepEqual([method, path], ["POST", "/v1/likes:get"]);
  assert.equal(body, `{"post_ids":${JSON.stringify(posts.map(String))},"viewer":"7","min_offset":[{"partition":4,"offset":9007199254740993}]}`);
});

/** follow collects n counts of a stream. */
async function follow(kudos, n, options = {}) {
  const counts = [];
  for await (const { event, data } of kudos.stream({ posts: [42, 43], ...options })) {
    if (event === "likes") counts.push(data.likes);
    if (counts.length === n) break;
  }
  return counts;
}

test("a stream resumes from its last id, after the server's retry time", async (t) => {
  const times = [];
  let closed = false;
  const { kudos, requests } = await start(t, (_, response, number) => {
    times.push(Date.now());
    const stream = openStream(response);
    if (number === 1) stream.end(`retry: 100\n\n${likes(42, 1, 10)}${likes(43, 2, 11)}`);
    else if (number === 2) stream.write(`retry: 100\n\n${likes(42, 3, 12)}`, () => stream.destroy());
    else stream.write(`: heartbeat\n\n${likes(42, 4, 13)}`);
    stream.on("close", () => { closed = number === 3; });
  });
  assert.deepEqual(await follow(kudos, 4, { viewer: 7 }), [1, 2, 3, 4]);
  assert.deepEqual(requests.map(({ headers }) => headers["last-event-id"]), [undefined, "00000001.4:11", "00000001.4:12"]);
  assert.equal(decodeURIComponent(requests[2].query), "post_ids=42,43&viewer=7");
  assert.ok(times[1] - times[0] >= 99 && times[2] - times[1] >= 99, String(times));
  await until("the connection to be closed", () => closed);
});

test("a stream outlives refusals, and throws what no retry solves", async (t) => {
  const times = [];
  const { kudos } = await start(t, (_, response, number) => {
    times.push(Date.now());
    if (number === 1) return problem(response, 429, "too-many-streams", { "Retry-After": "2" });
    if (number === 2) return openStream(response).end(`retry: 1\n\n${likes(42, 1, 10)}`);
    problem(response, 404, "no-reactions");
  });
  await assert.rejects(follow(kudos, 2), (error) => error instanceof KudosProblem && error.is("no-reactions"));
  assert.equal(times.length, 3);
  assert.ok(times[1] - times[0] >= 1_995, String(times));
});

test("a stale stream is reconnected; heartbeats keep it", async (t) => {
  const { kudos, requests } = await start(t, (_, response, number) => {
    const stream = openStream(response);
    stream.write(`retry: 1\n\n${likes(42, number, 10)}`);
    if (number === 1) return; // silent from now on
    const heartbeat = setInterval(() => stream.write(":\n\n"), 50);
    setTimeout(() => { clearInterval(heartbeat); stream.write(likes(42, 3, 11)); }, 1_000);
  }, { staleMs: 500 });
  assert.deepEqual(await follow(kudos, 3), [1, 2, 3]);
  assert.equal(requests.length, 2);
});

test("an abort ends a stream without an error", async (t) => {
  const { kudos } = await start(t, (_, response) => openStream(response).write(likes(42, 1, 10)));
  const stop = new AbortController();
  const counts = [];
  for await (const { data } of kudos.stream({ posts: [42], signal: stop.signal })) {
    counts.push(data.likes);
    setTimeout(() => stop.abort(), 20);
  }
  assert.deepEqual(counts, [1]);
});
