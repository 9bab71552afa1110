export * from "./client.js";
export { KudosConnectionError, KudosProblem, type Position, type Problem } from "./http.js";
export { databaseOf, encodeEvent, type Id, keyOf, type LikeEvent, partitionOf } from "./keys.js";
