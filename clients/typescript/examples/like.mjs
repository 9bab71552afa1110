// Likes a post, reads its count, and follows it until the next change.
//
//   PRODUCER_URL=http://localhost:8080 READER_URL=http://localhost:8081 node examples/like.mjs

import { KudosClient } from "kudos-client";

const kudos = new KudosClient({ producerUrl: process.env.PRODUCER_URL, readerUrl: process.env.READER_URL });
const post = "42";
const user = String(1 + Math.floor(Math.random() * 2 ** 40));

const position = await kudos.like(post, user, { region: "DE" });
console.log(`user ${user} likes post ${post}: partition ${position.partition}, offset ${position.offset}`);

const { likes } = await kudos.count(post, { minOffset: position });
console.log(`post ${post} has ${likes} likes, this one included`);

const stop = new AbortController();
let before;
for await (const { event, data } of kudos.stream({ posts: [post], signal: stop.signal })) {
  if (event !== "likes") continue;
  console.log(before === undefined ? `live: ${data.likes}` : `live: ${data.likes}, after ${before}`);
  if (before === undefined) await kudos.unlike(post, user); // a change to see
  else if (data.likes !== before) stop.abort();
  before ??= data.likes;
}
