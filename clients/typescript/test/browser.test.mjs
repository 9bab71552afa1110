// The element in a real browser: KUDOS_CHROMIUM=/usr/bin/chromium npm test

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { json, likes, openStream, problem, serve } from "./server.mjs";

const chromium = process.env.KUDOS_CHROMIUM;
const html = `<!doctype html><html lang="de"><title>test</title>
<kudos-button id="a" post="42" user="7" producer="/" reader="/"></kudos-button>
<kudos-button id="b" post="43" user="7" producer="/" reader="/" label="Gefällt {count}"></kudos-button>
<kudos-button id="c" post="x" user="7" producer="/" reader="/"></kudos-button>
<kudos-button id="d" post="42" reader="/"></kudos-button>
<script type="module" src="/page.js"></script>`;

/** page runs in the browser, and returns what the test checks. */
async function page() {
  const errors = [];
  document.addEventListener("kudos-error", ({ target, detail }) => errors.push(`${target.id}: ${detail.message}`));
  const { KudosButton } = await import("/dist/button.js");
  const [a, b, , d] = document.querySelectorAll("kudos-button");
  const until = async (condition) => { while (!condition()) await new Promise((resolve) => setTimeout(resolve, 5)); };
  const look = (element) => {
    const button = element.shadowRoot.querySelector("button");
    const [icon, count] = button.children;
    return [button.getAttribute("aria-label"), button.getAttribute("aria-pressed"), button.getAttribute("aria-disabled"), button.part.value,
      icon.part.value, icon.textContent, count.part.value, count.textContent].join("|");
  };
  const seen = {};
  await until(() => a.shown.likes === 1234 && b.shown.likes === 1 && d.shown.likes === 1234);
  seen.start = [a, b, d].map(look);
  seen.isElement = a instanceof KudosButton;

  a.focus();
  seen.focus = [document.activeElement.id, a.shadowRoot.activeElement.localName];
  a.shadowRoot.activeElement.click();
  seen.clicked = look(a);
  await until(() => a.shown.likes === 1240);
  seen.counted = look(a);
  seen.color = getComputedStyle(a.shadowRoot.querySelector("button")).color;

  b.shadowRoot.querySelector("button").click();
  seen.optimistic = look(b);
  await until(() => errors.length > 1);
  seen.refused = look(b);
  d.shadowRoot.querySelector("button").click();

  const moved = document.createElement("kudos-button"); // attributes after the element is on the page
  document.body.append(moved);
  for (const [name, value] of Object.entries({ post: "42", user: "7", producer: "/", reader: "/" })) moved.setAttribute(name, value);
  await until(() => moved.shown.likes === 1234); // the last value of the stream
  for (const element of document.querySelectorAll("kudos-button")) element.remove();
  await new Promise((resolve) => setTimeout(resolve, 200));
  return { ...seen, errors, violations };
}
const script = `const violations = [];
document.addEventListener("securitypolicyviolation", (e) => violations.push(e.violatedDirective));
${page}
page().then((seen) => fetch("/report", { method: "POST", body: JSON.stringify(seen) }),
  (error) => fetch("/report", { method: "POST", body: JSON.stringify({ error: error.stack }) }));`;

test("the element works in a browser, under a strict Content-Security-Policy", { skip: !chromium && "KUDOS_CHROMIUM is not set", timeout: 120_000 }, async (t) => {
  let report;
  const reported = new Promise((resolve) => { report = resolve; });
  let open = 0;
  const { url, requests } = await serve(t, ({ method, path, body }, response) => {
    const send = (type, text) => {
      response.writeHead(200, { "Content-Type": type, "Content-Security-Policy": "default-src 'self'" });
      response.end(text);
    };
    if (path === "/") return send("text/html; charset=utf-8", html);
    if (path === "/page.js") return send("text/javascript", script);
    if (/^\/dist\/[a-z]+\.js$/.test(path)) return send("text/javascript", readFileSync(new URL(`..${path}`, import.meta.url)));
    if (path === "/report") return report(JSON.parse(body)), response.end();
    if (path === "/v1/stream") {
      open++;
      response.on("close", () => open--);
      return openStream(response).write(`retry: 1000\n\n${likes(42, 1234, 10)}${likes(43, 1, 10)}`);
    }
    if (path === "/v1/likes") {
      const as_of = [{ partition: 4, offset: 21 }];
      return json(response, { posts: [{ post_id: "42", likes: 1240, dislikes: 0, reaction: "LIKE" }], as_of, reactions_as_of: as_of });
    }
    if (method === "PUT" && path === "/v1/posts/42/likes/7") return json(response, '{"partition":4,"offset":20}', 202);
    if (method === "PUT") return problem(response, 403, "forbidden");
    response.writeHead(404).end();
  });

  const profile = await mkdtemp(join(tmpdir(), "kudos-client-"));
  const browser = spawn(chromium, ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", `--user-data-dir=${profile}`, "--remote-debugging-port=0", url],
    { stdio: "ignore" });
  t.after(async () => {
    browser.kill();
    await once(browser, "exit");
    await rm(profile, { recursive: true, force: true, maxRetries: 10 });
  });
  const seen = await reported;
  assert.equal(seen.error, undefined);
  assert.deepEqual(seen.start, [
    "Like, 1.234 likes|false|false|button|icon|♡|count|1234",
    "Gefällt 1|false|false|button|icon|♡|count|1",
    "Like, 1.234 likes|false|true|button|icon|♡|count|1234",
  ]);
  assert.equal(seen.isElement, true);
  assert.deepEqual(seen.focus, ["a", "button"]);
  assert.equal(seen.clicked, "Like, 1.235 likes|true|false|button liked|icon|♥|count|1235");
  assert.equal(seen.counted, "Like, 1.240 likes|true|false|button liked|icon|♥|count|1240");
  assert.equal(seen.color, "rgb(194, 24, 91)");
  assert.match(seen.optimistic, /^Gefällt 2\|true/);
  assert.match(seen.refused, /^Gefällt 1\|false/);
  assert.deepEqual(seen.errors, [
    'c: post "x" is not an integer from 1 to 18446744073709551615', "b: kudos: 403 forbidden: as the test says",
    "d: kudos: nobody is signed in: the attribute user is missing",
  ]);
  assert.deepEqual(seen.violations, []);
  assert.equal(open, 0, "removed buttons leave no stream");
  const streams = requests.filter(({ path }) => path === "/v1/stream").map(({ query }) => `${query.get("post_ids")} ${query.get("viewer")}`);
  assert.deepEqual(streams.sort(), ["42 null", "42,43 7"]);
});
