// Package kafka is what kudos needs from Kafka besides consumer groups: client options and security, the transactions
// of one partition, topic and offset lookups, and reading the committed records of one partition to a definite end.
//
//	options.go, security.go  connections to the brokers
//	txn.go, fencing.go       records and the consumer offset, committed atomically
//	inspect.go               topic metadata, log bounds and committed offsets
//	log_reader.go            a partition's committed records, by plain fetches
package kafka
