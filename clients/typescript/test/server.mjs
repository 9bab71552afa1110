// A producer and reader on 127.0.0.1 that answers as a test says.

import { once } from "node:events";
import { createServer } from "node:http";

/**
 * serve starts a server until the test ends.
 * @param handle (request, response, number) => …, where number counts requests from 1
 * @returns its url, and the requests that have arrived: { method, path, query, headers, body }
 */
export async function serve(t, handle) {
  const requests = [];
  const server = createServer(async (request, response) => {
    const { pathname: path, searchParams: query } = new URL(request.url, "http://x");
    const seen = { method: request.method, path, query, headers: request.headers, body: "" };
    requests.push(seen);
    const number = requests.length;
    for await (const chunk of request) seen.body += chunk;
    await handle(seen, response, number);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => {
    server.close();
    server.closeAllConnections();
  });
  return { url: `http://127.0.0.1:${server.address().port}`, requests };
}

export function json(response, body, status = 200, headers = {}) {
  response.writeHead(status, { "Content-Type": "application/json", ...headers });
  response.end(typeof body === "string" ? body : JSON.stringify(body));
}

export function problem(response, status, type, headers = {}) {
  json(response, { type: `urn:kudos:problem:${type}`, title: type, status, detail: "as the test says" }, status, headers);
}

/** openStream begins a stream; write to the response and end it. */
export function openStream(response) {
  response.writeHead(200, { "Content-Type": "text/event-stream" });
  response.flushHeaders();
  return response;
}

/** likes is an event of a stream. */
export function likes(post, likes, offset, epoch = "00000001") {
  const data = JSON.stringify({ post_id: String(post), likes, dislikes: 0, as_of: { partition: 4, offset } });
  return `id: ${epoch}.4:${offset}\nevent: likes\ndata: ${data}\n\n`;
}

/** until waits for a condition, and throws after 20 s. */
export async function until(what, condition) {
  for (const begun = performance.now(); !condition();) {
    if (performance.now() - begun > 20_000) throw new Error(`not within 20 s: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}
