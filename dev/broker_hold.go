//go:build !nodev

package dev

import (
	"github.com/twmb/franz-go/pkg/kmsg"
)

// hold keeps transactions from beginning in one partition.
type hold struct {
	topic     string
	topicID   [16]byte
	partition int32
	released  chan struct{} // closed when transactions may begin again
}

// hold has transactions that would begin in the partition wait until release is called. Those
// that are open go on, and end.
func (b *Broker) hold(topic string, topicID [16]byte, partition int32) (release func()) {
	h := &hold{topic: topic, topicID: topicID, partition: partition, released: make(chan struct{})}
	b.held.Store(h)
	return func() {
		b.held.Store(nil)
		close(h.released)
	}
}

// waitWhileHeld is kfake's control function of produce requests. kfake handles no other
// request while it runs, so what it finds still holds when the request is handled.
func (b *Broker) waitWhileHeld(request kmsg.Request) (kmsg.Response, error, bool) {
	produce, h := request.(*kmsg.ProduceRequest), b.held.Load()
	if h == nil || produce.TransactionID == nil || !h.concerns(produce) {
		return nil, nil, false
	}
	if p := b.cluster.PartitionInfo(h.topic, h.partition); p != nil && p.LastStableOffset < p.HighWatermark {
		return nil, nil, false // more of a transaction that is open
	}
	b.cluster.SleepControl(func() { <-h.released })
	return nil, nil, false
}

func (h *hold) concerns(produce *kmsg.ProduceRequest) bool {
	for i := range produce.Topics {
		t := &produce.Topics[i]
		if t.Topic != h.topic && t.TopicID != h.topicID {
			continue
		}
		for j := range t.Partitions {
			if t.Partitions[j].Partition == h.partition {
				return true
			}
		}
	}
	return false
}
