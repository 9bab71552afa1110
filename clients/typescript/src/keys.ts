// Ids, record keys and partitions, for programs that write to Kafka or read MySQL themselves.

/** A post or user: 1 to 2^64-1. Numbers are accepted up to 2^53, where they stop being exact. */
export type Id = string | bigint | number;

export interface LikeEvent {
  post: Id;
  user: Id;
  action: "LIKE" | "UNLIKE" | "DISLIKE";
  timeMs?: number | bigint; // Unix milliseconds; absent: the log-append time
  region?: string; // ISO 3166-1 or 3166-2, such as DE or US-CA
}

/** integerText returns an integer in decimal, or throws a RangeError. */
function integerText(value: Id, name: string, min: bigint, max: bigint): string {
  if (typeof value === "number" && !Number.isSafeInteger(value)) {
    throw new RangeError(`${name} ${value} is not an exact integer: numbers are exact up to 2^53; pass a string or a bigint`);
  }
  const n = /^[0-9]{1,64}$/.test(String(value)) ? BigInt(value) : -1n;
  if (n < min || n > max) throw new RangeError(`${name} "${value}" is not an integer from ${min} to ${max}`);
  return n.toString();
}

export const idText = (id: Id, name: string) => integerText(id, name, 1n, 2n ** 64n - 1n);
export const timeText = (timeMs: number | bigint) => integerText(timeMs, "timeMs", 0n, 2n ** 63n - 1n);

/** keyOf returns the record key in the topic likes: post, or post/bucket if the post has user buckets (["42:16"]). */
export function keyOf(post: Id, user: Id, userBuckets: readonly string[] = []): string {
  const key = idText(post, "post");
  const [, buckets] = userBuckets.map((item) => item.trim().split(":")).find(([id]) => idText(id!, "user bucket's post") === key) ?? [];
  return buckets === undefined ? key : `${key}/${partitionOf(idText(user, "user"), Number(buckets))}`;
}

/** partitionOf returns the partition of a key by Kafka's default partitioner. */
export const partitionOf = (key: string, partitions: number) =>
  (murmur2(new TextEncoder().encode(key)) & 0x7fffffff) % atLeastOne(partitions, "partitions");

/** databaseOf returns which of several databases has the rows of a partition, from 0, in the order of mysql.shards. */
export const databaseOf = (partition: number, databases: number) => partition % atLeastOne(databases, "databases");

function atLeastOne(n: number, name: string): number {
  if (!Number.isInteger(n) || n < 1) throw new RangeError(`${name} ${n} is not an integer above 0`);
  return n;
}

/** encodeEvent returns the value of a record in the topic likes, in its JSON form. Its key is keyOf. */
export function encodeEvent({ post, user, action, timeMs, region }: LikeEvent): string {
  const time_ms = timeMs === undefined ? undefined : timeText(timeMs);
  return JSON.stringify({ post_id: idText(post, "post"), user_id: idText(user, "user"), action, time_ms, region });
}

/** murmur2 is MurmurHash2 with the seed of Kafka's org.apache.kafka.common.utils.Utils.murmur2. */
function murmur2(bytes: Uint8Array): number {
  const m = 0x5bd1e995;
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const tail = bytes.length & ~3;
  let h = 0x9747b28c ^ bytes.length;
  for (let at = 0; at < tail; at += 4) {
    const k = Math.imul(view.getInt32(at, true), m);
    h = Math.imul(h, m) ^ Math.imul(k ^ (k >>> 24), m);
  }
  for (let at = bytes.length - 1; at >= tail; at--) h ^= bytes[at]! << (8 * (at - tail));
  if (bytes.length > tail) h = Math.imul(h, m);
  h = Math.imul(h ^ (h >>> 13), m);
  return h ^ (h >>> 15);
}
