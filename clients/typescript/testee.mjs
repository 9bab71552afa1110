// The conformance testee of this client: clients/conformance/README.md. Build first: npm ci && npm run build.

import { createInterface } from "node:readline";
import { databaseOf, encodeEvent, keyOf, KudosClient, KudosProblem, partitionOf } from "./dist/index.js";

const methods = { LIKE: "like", UNLIKE: "unlike", DISLIKE: "dislike" };

const clientOf = ({ base_url }) => new KudosClient({ producerUrl: base_url, readerUrl: base_url });
const timeOf = ({ time_ms }) => (time_ms === undefined ? undefined : BigInt(time_ms));

const operations = {
  event(r) {
    const event = { post: r.post_id, user: r.user_id, action: r.action, timeMs: timeOf(r), region: r.region };
    return { key: keyOf(r.post_id, r.user_id), value: Buffer.from(encodeEvent(event)).toString("hex") };
  },
  partition({ post_id, user_id, user_buckets, partitions }) {
    const key = keyOf(post_id, user_id, user_buckets);
    return { key, partition: partitionOf(key, partitions) };
  },
  database: ({ partition, databases }) => ({ database: databaseOf(partition, databases) }),
  react: (r) => clientOf(r)[methods[r.action]](r.post_id, r.user_id, { timeMs: timeOf(r), region: r.region }),
  async count(r) {
    const { likes, dislikes } = await clientOf(r).count(r.post_id, { minOffset: r.min_offset });
    return { likes: String(likes), dislikes: String(dislikes) };
  },
  async stream(r) {
    const likes = [];
    for await (const { event, data } of clientOf(r).stream({ posts: [r.post_id] })) {
      if (event === "likes") likes.push(String(data.likes));
      if (likes.length === r.events) break;
    }
    return { likes };
  },
};

async function answer(request) {
  if (!Object.hasOwn(operations, request.op)) return { unsupported: true };
  try {
    return await operations[request.op](request);
  } catch (error) {
    if (error instanceof KudosProblem) return { problem: error.problem.type.replace("urn:kudos:problem:", "") };
    return { error: error.message };
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  const request = JSON.parse(line);
  process.stdout.write(`${JSON.stringify({ id: request.id, ...await answer(request) })}\n`);
}
