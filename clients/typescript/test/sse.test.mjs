import assert from "node:assert/strict";
import { test } from "node:test";
import { EventParser } from "../dist/sse.js";

const stream = ": a comment\nretry: 1500\n\nid: 1\nevent: likes\ndata: {\"a\":\ndata: 1}\n\n:\n\ndata\ndata:x\nother: y\n\nid: 2\n\ndata: cut off\n";
const events = [
  { id: "1", event: "likes", data: '{"a":\n1}' },
  { id: "1", event: "message", data: "\nx" },
];

test("events are the same however the stream is split, with any line end", () => {
  for (const end of ["\n", "\r\n", "\r"]) {
    const text = stream.replaceAll("\n", end);
    for (let size = 1; size <= text.length; size++) {
      const parser = new EventParser();
      const got = [];
      for (let at = 0; at < text.length; at += size) got.push(...parser.push(text.slice(at, at + size)), ...parser.push(""));
      assert.deepEqual(got, events, `${JSON.stringify(end)}, ${size} bytes`);
      assert.equal(parser.retryMs, 1500);
    }
  }
});

test("invalid fields are ignored", () => {
  const parser = new EventParser();
  assert.deepEqual(parser.push("id: a\0b\nretry: 5s\ndata:  two spaces\n\n"), [{ id: "", event: "message", data: " two spaces" }]);
  assert.equal(parser.retryMs, undefined);
});
