// Package refusal has the answers of a Kafka that says no, for tests that give them to an
// embedded broker (kfake's ControlKey): in comes a request, out goes its refusal.
package refusal

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Produce refuses each partition of a Produce request.
func Produce(request kmsg.Request, why *kerr.Error) kmsg.Response {
	answer := request.ResponseKind().(*kmsg.ProduceResponse)
	for _, topic := range request.(*kmsg.ProduceRequest).Topics {
		t := kmsg.NewProduceResponseTopic()
		t.Topic, t.TopicID = topic.Topic, topic.TopicID
		for _, partition := range topic.Partitions {
			p := kmsg.NewProduceResponseTopicPartition()
			p.Partition, p.ErrorCode = partition.Partition, why.Code
			t.Partitions = append(t.Partitions, p)
		}
		answer.Topics = append(answer.Topics, t)
	}
	return answer
}

// EpochEnd says of each partition of an OffsetForLeaderEpoch request that what was read of its epoch up to end is all
// that there is of it; below zero, that the epoch is not known.
func EpochEnd(request kmsg.Request, end int64) kmsg.Response {
	answer := request.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
	for _, topic := range request.(*kmsg.OffsetForLeaderEpochRequest).Topics {
		t := kmsg.NewOffsetForLeaderEpochResponseTopic()
		t.Topic = topic.Topic
		for _, partition := range topic.Partitions {
			p := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			p.Partition, p.LeaderEpoch, p.EndOffset = partition.Partition, partition.LeaderEpoch, end
			t.Partitions = append(t.Partitions, p)
		}
		answer.Topics = append(answer.Topics, t)
	}
	return answer
}
