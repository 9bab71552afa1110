// Package stream follows partitions: those that a group assigns, by goka on franz-go, and all of a topic's, for local
// copies. It knows batches, positions and bytes, and nothing of likes: what to do with a batch is a Worker's, one for
// each assigned partition, which a role supplies.
//
//	          ┌───────────────── Processor.Run ─────────────────┐
//	Kafka ──► │ group (membership, one poll loop)               │
//	          │   └► session (one per assignment)               │
//	          │        └► goka ──► Partition.Step               │
//	          │                      └► Worker.Process ─────────┼─► kafka.Txn, MySQL, …
//	          │                           └► store.Store        │
//	          └─────────────────────────────────────────────────┘
package stream
