// Package refusal builds Kafka error responses for tests to return from an embedded broker (kfake's ControlKey).
package refusal

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Produce returns an error for each partition of a Produce request.
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

// EpochEnd answers an OffsetForLeaderEpoch request: each requested epoch ends at end, or is unknown if end is negative.
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

// EndsUnknown answers a ListOffsets request: an error for one partition, offset 10 for the others.
func EndsUnknown(request kmsg.Request, partition int32, why *kerr.Error) kmsg.Response {
	answer := request.ResponseKind().(*kmsg.ListOffsetsResponse)
	for _, topic := range request.(*kmsg.ListOffsetsRequest).Topics {
		t := kmsg.NewListOffsetsResponseTopic()
		t.Topic = topic.Topic
		for _, asked := range topic.Partitions {
			p := kmsg.NewListOffsetsResponseTopicPartition()
			if p.Partition, p.Offset = asked.Partition, 10; asked.Partition == partition {
				p.Offset, p.ErrorCode = -1, why.Code
			}
			t.Partitions = append(t.Partitions, p)
		}
		answer.Topics = append(answer.Topics, t)
	}
	return answer
}
