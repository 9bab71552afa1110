package main

import (
	"time"

	"github.com/IBM/sarama"
	"github.com/lovoo/goka"
)

// partitionChannel is how many messages wait for a partition's callback; goka has none. The consumer then goes on
// decoding while a callback is at work.
const partitionChannel = 1000

// configure replaces what goka has for all its clients. See README.md for what each gave.
func configure() {
	config := goka.DefaultConfig()
	config.Version = sarama.V3_9_1_0 // newest requests: fewer conversions at the broker

	// From the beginning of the topic, which is full when the peer starts.
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Fetch.Default = 4 << 20
	config.ChannelBufferSize = 4096

	// Durable and in order, whatever is sent again: goka's default of one acknowledgement is neither.
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Idempotent = true
	config.Net.MaxOpenRequests = 1 // which idempotence wants
	// One request at a time fills the next batch meanwhile; goka waits for 100 ms or 64 KiB, in each of three hops.
	config.Producer.Flush.Frequency = time.Millisecond
	config.Producer.Flush.Bytes = 512 << 10
	config.Producer.Compression = sarama.CompressionSnappy
	goka.ReplaceGlobalConfig(config)
}

// topicConfig is for the topics that goka makes. Its defaults are two replicas, which a broker alone cannot have, and an
// hour of streams, after which a processor that was away would have lost likes.
func topicConfig(brokers int) *goka.TopicManagerConfig {
	config := goka.NewTopicManagerConfig()
	replicas := 1
	if brokers >= 3 {
		replicas = 3
	}
	config.Table.Replication, config.Stream.Replication = replicas, replicas
	config.Stream.Retention = 7 * 24 * time.Hour
	return config
}
