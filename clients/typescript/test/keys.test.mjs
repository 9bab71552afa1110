import assert from "node:assert/strict";
import { test } from "node:test";
import { databaseOf, encodeEvent, keyOf, partitionOf } from "../dist/index.js";

test("partitionOf hashes as Kafka does", () => {
  const answers = { // of Kafka's own test of Utils.murmur2; schema/partition_test.go has the same
    21: -973932308, foobar: -790332482, "a-little-bit-long-string": -985981536, "a-little-bit-longer-string": -1486304829,
    lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8: -58897971, abc: 479470107,
  };
  for (const [key, hash] of Object.entries(answers)) {
    for (const n of [1, 2, 3, 16, 1000, 2 ** 31 - 1]) assert.equal(partitionOf(key, n), (hash & 0x7fffffff) % n, `${key} of ${n}`);
  }
});

test("posts have the partitions that schema/partition_test.go and docs/reading.md name", () => {
  assert.deepEqual([1, 2, 3, 4, 5, 6, 7, 8].map((post) => partitionOf(keyOf(post, 1), 16)), [15, 8, 15, 1, 6, 6, 3, 11]);
  assert.deepEqual([42, 43].map((post) => partitionOf(keyOf(post, 1), 8)), [4, 2]);
  assert.deepEqual([42, 43].map((post) => databaseOf(partitionOf(keyOf(post, 1), 8), 3)), [1, 2]);
  assert.throws(() => partitionOf("42", 0), /partitions 0 is not an integer above 0/);
});

test("keyOf adds the bucket of a user", () => {
  assert.equal(keyOf(42, 7, ["42:5", "43:1024"]), "42/4"); // as in schema/layout_test.go
  assert.equal(keyOf(41, 7, ["42:5", "43:1024"]), "41");
  assert.equal(keyOf("0042", 7n, [" 42:5"]), "42/4");
});

test("ids are exact or rejected", () => {
  const largest = 2n ** 64n - 1n;
  assert.equal(keyOf(largest, 1), "18446744073709551615");
  assert.equal(keyOf("9007199254740993", 1), "9007199254740993");
  assert.throws(() => keyOf(2 ** 53, 1), { name: "RangeError", message: /post 9007199254740992 is not an exact integer.*pass a string or a bigint/ });
  for (const wrong of [0, -1, 1.5, NaN, "", "x", "1e3", "0x10", " 1", "18446744073709551616", largest + 1n, null, undefined]) {
    assert.throws(() => keyOf(wrong, 1), RangeError, String(wrong));
  }
});

test("encodeEvent writes ids and times as strings", () => {
  const event = { post: 2n ** 64n - 1n, user: "9007199254740993", action: "DISLIKE", timeMs: 1_700_000_000_000, region: "DE" };
  assert.equal(encodeEvent(event),
    '{"post_id":"18446744073709551615","user_id":"9007199254740993","action":"DISLIKE","time_ms":"1700000000000","region":"DE"}');
  assert.equal(encodeEvent({ post: 42, user: 7, action: "LIKE" }), '{"post_id":"42","user_id":"7","action":"LIKE"}');
  for (const timeMs of [-1, 1.5, NaN, 2n ** 63n]) assert.throws(() => encodeEvent({ ...event, timeMs }), RangeError);
});
