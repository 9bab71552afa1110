// Package audit compares MySQL with the stream while everything runs.
//
//	MySQL, snapshots ────────► like_count, like_hourly ─┐
//	                     └──► applied_offset            ├─► ledger (on disk, by post) ─► Report
//	                              │ as of this position │
//	like-updates ────────────► the last counts of each ─┤  plain
//	state table ─► pairs, recounted, minus later updates┘  deep
//
// The snapshot says up to which update MySQL has counted, so what the stream says is
// worked out as of the same update. Plain, that is the counts in the last update of
// each post before it. Deep, it is what the pairs of the state table come to (which is
// somewhat further) without what the updates since have changed: there nothing is
// taken on trust but who likes what.
//
// Each shard has a snapshot of its own, which says so of its own partitions; what is in
// one and belongs to another is a difference.
//
// In come Kafka and sql.Shards, out goes a Report. Nothing is written but temporary
// files; memory does not grow with the number of posts.
package audit
