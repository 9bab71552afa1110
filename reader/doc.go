// Package reader answers reads: counts, who likes what, rankings and history over HTTP,
// and all of it live (openapi.yaml describes it).
//
// In come the state table and the topic trending, kept as local copies; MySQL only for
// likes over time. Out go answers, each as of a definite place in the log.
//
//	latest-like-action-table ─► view.Likes ────┬─► API (counts, likers, reactions)
//	trending ─────────────────► view.Rankings ─┼─► API (rankings)
//	                                           └─► live.Hub ─► SSE, WebSocket ─► dashboard
//	MySQL like_hourly ────────────────────────────► API (likes over time)
package reader
