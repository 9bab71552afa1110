// Package kafka is what kudos asks of Kafka beside consuming: client options and security, the transactions of one
// partition, topics and offsets, and the committed records of one partition, read to a definite end.
//
//	options.go, security.go    how brokers are reached
//	txn.go                     records and the consumer offset, visible together or not at all
//	inspect.go                 what a topic is, and where its logs begin and end
//	log_reader.go, read_log.go a partition's committed records, by plain fetches
package kafka
