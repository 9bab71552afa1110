// Package stream is the partition runtime. It consumes the partitions that a consumer group assigns (goka on franz-go),
// and, without a group, all partitions of a topic, for local views and standby replicas. It handles batches, positions
// and bytes and knows nothing about likes: a role supplies a Worker for each partition, which processes the batches.
//
//	          ┌───────────────── Processor.Run ─────────────────┐
//	Kafka ──► │ group (membership)                              │
//	          │   └► session (one client, one poll loop)        │
//	          │        └► goka (each partition) ► Partition.Step│
//	          │                      └► Worker.Process ─────────┼─► kafka.Txn, MySQL, …
//	          │                           └► store.Store        │
//	          └─────────────────────────────────────────────────┘
package stream
