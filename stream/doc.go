// Package stream runs goka processors on franz-go: it implements goka's ports
// (consumer group, consumer, topic manager, storage, producer), so that one Kafka
// client library with one configuration serves the whole program and no sarama
// connection is ever opened.
//
// In come poll batches of a partition; out go transactions. The package knows
// batches, positions and bytes, and nothing of likes: what to do with a batch is a
// Worker's, one for each assigned partition, which a role supplies.
//
//	          ┌────────────── Processor.Run ──────────────┐
//	Kafka ──► │ Group (membership, one poll loop)         │
//	          │   └► session (one per assignment)         │
//	          │        └► claim (one per partition)       │
//	          │             └► goka ──► Worker.Process ───┼─► Txn ──► Kafka
//	          │                          └► Store (Pebble)│
//	          └───────────────────────────────────────────┘
package stream
