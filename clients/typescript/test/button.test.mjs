// The button without a browser: its state, its likes and the streams that buttons share. browser.test.mjs has the rest.

import assert from "node:assert/strict";
import { test } from "node:test";
import { KudosClient } from "../dist/index.js";
import { Feed } from "../dist/feed.js";
import { ButtonModel } from "../dist/model.js";
import { ButtonState } from "../dist/state.js";
import { json, likes, openStream, problem, serve, until } from "./server.mjs";

const at = (offset, partition = 4) => ({ partition, offset: String(offset) });
const like = (likes) => ({ likes, reaction: "LIKE" });
const none = (likes) => ({ likes, reaction: "NONE" });

function shows(state, { likes, reaction }) {
  assert.deepEqual({ likes: state.shown.likes, reaction: state.shown.reaction }, { likes, reaction });
}

/** counted is a state that shows 5 likes as of offset 10. */
function counted() {
  const state = new ButtonState();
  shows(state, none(undefined));
  state.counted(5, at(10));
  shows(state, none(5));
  return state;
}

test("a click shows at once, and counts that do not cover it are not shown", () => {
  const state = counted();
  const click = state.click();
  shows(state, like(6));
  state.counted(9, at(12)); // unknown whether it has the like
  shows(state, like(6));
  state.accepted(click, at(12)); // it has not: as of 12 means before 12
  state.reacted("NONE", at(12));
  shows(state, like(6));
  state.counted(10, at(13));
  shows(state, like(10));
  state.reacted("NONE", at(12)); // older than the own like
  state.counted(9, at(12));
  shows(state, like(10));
  state.reacted("NONE", at(14)); // withdrawn elsewhere
  shows(state, none(10));
});

test("a refused click shows the newest counts", () => {
  const state = counted();
  const click = state.click();
  state.counted(9, at(12));
  assert.equal(state.refused(click), true);
  shows(state, none(9));
});

test("the last click decides", () => {
  const state = counted();
  const first = state.click();
  const second = state.click();
  shows(state, none(5));
  state.accepted(first, at(11));
  assert.equal(state.refused(first), false);
  state.counted(6, at(12)); // covers the first only
  shows(state, none(5));
  state.accepted(second, at(12));
  shows(state, none(5));
  state.counted(5, at(13));
  shows(state, none(5));
  state.counted(7, at(14));
  shows(state, none(7));
});

test("counts that arrive before the position cover the click", () => {
  const state = counted();
  const click = state.click();
  state.counted(8, at(13));
  state.accepted(click, at(12));
  shows(state, like(8));
});

test("a like that changes nothing is settled by the response to min_offset", () => {
  const state = counted();
  state.reacted("DISLIKE", at(10));
  const click = state.click();
  state.accepted(click, at(12));
  state.covered(click, { posts: [{ post_id: "42", likes: 5, dislikes: 0, reaction: "LIKE" }], as_of: [at(13)], reactions_as_of: [at(13)] });
  shows(state, like(5));
});

test("positions of other partitions and unknown offsets are settled by the response to min_offset only", () => {
  for (const position of [at(3, 1), at(-1)]) {
    const state = counted();
    const click = state.click();
    state.accepted(click, position);
    state.counted(7, at(20));
    shows(state, like(6));
    state.covered(click, { posts: [{ post_id: "42", likes: 8, dislikes: 0, reaction: "LIKE" }], as_of: [at(21)], reactions_as_of: [at(21)] });
    shows(state, like(8));
  }
});

test("positions of a recreated log are not compared with earlier ones", () => {
  const state = new ButtonState();
  state.epoch("00000001.4:10");
  state.counted(5, at(10));
  state.epoch("00000001.4:11");
  shows(state, none(5));
  state.epoch("00000002.4:1");
  state.counted(1, at(1));
  shows(state, none(1));
});

/** page serves a producer and a reader, and makes buttons. */
async function page(t, { put, viewer = "7" } = {}) {
  const streams = [];
  const server = await serve(t, (request, response) => {
    if (request.path === "/v1/stream") return streams.push(openStream(response));
    if (request.path === "/v1/likes") {
      const as_of = [{ partition: 4, offset: 21 }];
      return json(response, { posts: [{ post_id: "42", likes: 9, dislikes: 0, reaction: "LIKE" }], as_of, reactions_as_of: as_of });
    }
    return put ? put(request, response) : json(response, '{"partition":4,"offset":20}', 202);
  });
  const client = new KudosClient({ producerUrl: server.url, readerUrl: server.url, retryForMs: 1_000 });
  const feed = new Feed(client, viewer || undefined);
  const models = [];
  t.after(() => models.forEach((model) => model.close()));
  const button = (post, user = viewer || undefined) => {
    const seen = { shown: [], errors: [] };
    seen.model = new ButtonModel({
      client, feed, post, user, changed: () => seen.shown.push(seen.model.shown.likes), failed: (error) => seen.errors.push(error),
    });
    models.push(seen.model);
    return seen;
  };
  return { ...server, streams, feed, button };
}

const streamed = ({ requests }) => requests.filter(({ path }) => path === "/v1/stream").map(({ query }) => query.get("post_ids"));

test("buttons share one stream per 100 posts, and close it", async (t) => {
  const p = await page(t);
  const buttons = Array.from({ length: 101 }, (_, i) => p.button(String(i + 1)));
  const twin = p.button("1");
  await until("two streams", () => p.streams.length === 2);
  assert.deepEqual(streamed(p).map((posts) => posts.split(",").length).sort(), [1, 100]);
  assert.equal(p.requests[0].query.get("viewer"), "7");
  for (const stream of p.streams) stream.write(likes(1, 5, 10) + likes(101, 6, 10));
  await until("values", () => buttons[0].model.shown.likes === 5 && twin.model.shown.likes === 5 && buttons[100].model.shown.likes === 6);

  const late = p.button("1"); // gets the last value without a new stream
  await until("the last value", () => late.model.shown.likes === 5);
  let closed = 0;
  for (const stream of p.streams) stream.on("close", () => closed++);
  for (const { model } of [...buttons, twin]) model.close();
  await until("one stream to be closed", () => closed === 1);
  late.model.close();
  await until("both streams to be closed", () => closed === 2);
  assert.equal(p.streams.length, 2);
});

test("a button that comes later joins the stream, which resumes", async (t) => {
  const p = await page(t);
  const early = p.button("1");
  await until("a stream", () => p.streams.length === 1);
  p.streams[0].write(likes(1, 5, 10));
  await until("a value", () => early.model.shown.likes === 5);
  const first = p.button("2");
  await until("a second stream", () => p.streams.length === 2);
  assert.deepEqual(streamed(p), ["1", "1,2"]);
  assert.deepEqual(p.requests.map(({ headers }) => headers["last-event-id"]), [undefined, "00000001.4:10"]);
  p.streams[1].write(likes(2, 3, 9));
  await until("a value", () => first.model.shown.likes === 3);
});

test("one invalid post does not break the others", async (t) => {
  const p = await page(t);
  assert.throws(() => p.button("x"), /post "x" is not an integer/);
  p.button("1");
  await until("a stream", () => p.streams.length === 1);
  assert.deepEqual(streamed(p), ["1"]);
});

test("a reader without reactions is asked for counts only", async (t) => {
  const streams = [];
  const server = await serve(t, (request, response) => {
    if (request.query.has("viewer")) return problem(response, 404, "no-reactions");
    streams.push(openStream(response).write(likes(1, 5, 10)));
  });
  const client = new KudosClient({ readerUrl: server.url });
  const feed = new Feed(client, "7");
  const values = [];
  t.after(feed.join("1", { value: (event) => values.push(event.data.likes), failed: assert.fail }));
  await until("a value", () => values.length === 1);
  assert.equal(feed.viewer, undefined);
});

test("a toggle is sent, and settled by the counts that cover it", async (t) => {
  const p = await page(t);
  const { model, shown, errors } = p.button("42");
  await until("a stream", () => p.streams.length === 1);
  p.streams[0].write(likes(42, 5, 10));
  await until("a value", () => model.shown.likes === 5);
  await model.toggle();
  shows(model, like(9));
  assert.deepEqual(shown.filter((likes, i) => likes !== shown[i - 1]), [5, 6, 9]);
  const [put, get] = p.requests.slice(1);
  assert.equal(`${put.method} ${put.path}`, "PUT /v1/posts/42/likes/7");
  assert.equal(decodeURIComponent(get.query), "post_ids=42&viewer=7&min_offset=4:20");
  p.streams[0].write(likes(42, 5, 15) + likes(42, 10, 22)); // the first from a reader that is behind
  await until("the next value", () => model.shown.likes === 10);
  assert.ok(!shown.slice(shown.indexOf(6)).includes(5));
  assert.deepEqual(errors, []);
  await model.toggle();
  assert.equal(p.requests.filter(({ method }) => method === "DELETE").length, 1);
});

test("a refused like is rolled back with one error", async (t) => {
  const p = await page(t, { put: (_, response) => problem(response, 403, "forbidden") });
  const { model, errors } = p.button("42");
  await until("a stream", () => p.streams.length === 1);
  p.streams[0].write(likes(42, 5, 10));
  await until("a value", () => model.shown.likes === 5);
  const toggled = model.toggle();
  shows(model, like(6));
  await toggled;
  shows(model, none(5));
  assert.equal(errors.length, 1);
  assert.ok(errors[0].is("forbidden"));
});

test("a second click replaces the first, with a later time", { timeout: 10_000 }, async (t) => {
  t.mock.method(Date, "now", () => 1_700_000_000_000);
  let aborted = false;
  const p = await page(t, {
    put: (request, response) => {
      if (request.method === "DELETE") return json(response, '{"partition":4,"offset":20}', 202);
      response.on("close", () => { aborted = true; }); // never answered
    },
  });
  const { model, errors } = p.button("42");
  const first = model.toggle();
  await until("the first", () => p.requests.some(({ method }) => method === "PUT"));
  await Promise.all([first, model.toggle()]);
  const [put, remove] = ["PUT", "DELETE"].map((wanted) => p.requests.find(({ method }) => method === wanted));
  assert.deepEqual([put, remove].map(({ query }) => query.get("time_ms")), ["1700000000000", "1700000000001"]);
  await until("the first to be aborted", () => aborted);
  assert.deepEqual(errors, []);
});

test("without a user, a click fails and sends nothing", async (t) => {
  const p = await page(t, { viewer: "" });
  const { model, errors } = p.button("42");
  await model.toggle();
  assert.match(errors[0].message, /nobody is signed in/);
  assert.equal(p.requests.filter(({ method }) => method !== "GET").length, 0);
});

test("the button can be imported where there is no DOM", async () => {
  const { configure, KudosButton } = await import("../dist/button.js");
  assert.equal(typeof KudosButton, "function");
  configure({ token: "secret" });
});
