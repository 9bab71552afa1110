package conformance

import (
	"context"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/schema"
	"kudos/stream/kafka"
)

const maxLateMs = 24 * 60 * 60 * 1000 // an event that arrives later is worth a note: its time may be in seconds

// TopicReport is the result of CheckTopic. Forwarded events, which kudos wrote, are not in the other numbers.
type TopicReport struct {
	Topic       string                           `json:"topic"`
	Partitions  int32                            `json:"partitions"`
	Valid       int64                            `json:"valid"` // including Misrouted, Ahead and Late
	Forwarded   int64                            `json:"forwarded"`
	DeadLetters map[schema.PoisonReason]*Finding `json:"dead_letters"`
	Misrouted   *Finding                         `json:"misrouted,omitempty"`
	Ahead       *Finding                         `json:"ahead,omitempty"` // times more than schema.MaxAheadMs ahead
	Late        *Finding                         `json:"late,omitempty"`  // times more than maxLateMs behind: a note
	Next        map[int32]int64                  `json:"next"`            // where a later check may start
}

// Finding is a number of records, and the first of them.
type Finding struct {
	Records   int64  `json:"records"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
	Detail    string `json:"detail"`
}

// Passed reports whether the writers did everything right.
func (r *TopicReport) Passed() bool {
	return len(r.DeadLetters) == 0 && r.Misrouted == nil && r.Ahead == nil
}

// CheckTopic reads a topic of likes, each partition from an offset or else its start up to its current end, and reports
// what the writers did wrong. It calls read with the number of offsets read.
func CheckTopic(ctx context.Context, cl kmsg.Requestor, topic string, buckets schema.UserBuckets,
	from map[int32]int64, read func(int64),
) (*TopicReport, error) {
	topics, err := kafka.LookUpTopics(ctx, cl, topic)
	if err != nil {
		return nil, err
	}
	r := &TopicReport{Topic: topic, Partitions: topics.ByName[topic].Partitions,
		DeadLetters: map[schema.PoisonReason]*Finding{}, Next: map[int32]int64{}}
	layout, err := schema.NewLayout(r.Partitions, buckets)
	if err != nil {
		return nil, err
	}
	for p := range r.Partitions {
		start, end, err := kafka.Bounds(ctx, cl, topic, p)
		if err != nil {
			return nil, err
		}
		next := max(start, from[p])
		r.Next[p] = max(end, next)
		if next >= end {
			continue
		}
		if err := kafka.ReadLog(ctx, cl, topic, p, next, func(c kafka.LogChunk) (bool, error) {
			for _, rec := range c.Records {
				if rec.Offset < end {
					r.add(rec, layout)
				}
			}
			read(min(c.Next, end) - next)
			next = c.Next
			return next < end, nil
		}); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func (r *TopicReport) add(rec *kgo.Record, layout schema.Layout) {
	note := func(f *Finding, format string, args ...any) *Finding {
		if f == nil {
			f = &Finding{0, rec.Partition, rec.Offset, fmt.Sprintf(format, args...)}
		}
		f.Records++
		return f
	}
	if slices.ContainsFunc(rec.Headers, func(h kgo.RecordHeader) bool { return h.Key == schema.HeaderForwarded }) {
		r.Forwarded++
		return
	}
	var e schema.Event
	if err := schema.DecodeEvent(rec.Key, rec.Value, &e); err != nil {
		reason := err.(*schema.PoisonError).Reason
		r.DeadLetters[reason] = note(r.DeadLetters[reason], "%v", err)
		return
	}
	r.Valid++
	if owner := layout.PartitionOf(e.PostID, e.UserID); owner != rec.Partition {
		r.Misrouted = note(r.Misrouted, "post %d of user %d belongs in partition %d", e.PostID, e.UserID, owner)
	}
	switch ahead := e.TimeMs - rec.Timestamp.UnixMilli(); {
	case e.TimeMs == 0: // the time of arrival applies
	case ahead > schema.MaxAheadMs:
		r.Ahead = note(r.Ahead, "time_ms %d is %d s after the arrival", e.TimeMs, ahead/1000)
	case ahead < -maxLateMs:
		r.Late = note(r.Late, "time_ms %d is %d s before the arrival", e.TimeMs, -ahead/1000)
	}
}
