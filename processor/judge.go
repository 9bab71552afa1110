package processor

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.opentelemetry.io/otel/trace"

	"kudos/processor/fold"
	"kudos/schema"
	"kudos/stream/tracing"
)

// verdict is what becomes of the records of a batch: each is an event, is forwarded
// to the partition of its post, or is a dead letter.
type verdict struct {
	events []fold.Event
	// forwards and deadLetters are ready to be produced.
	forwards, deadLetters []*kgo.Record
	reasons               []schema.PoisonReason // of deadLetters
	capped, badRegions    int
	// traced are the steps of the events that are followed, in spans.
	traced []traced
	// layouts is how many there were before the one that is judged by; reset leaves it.
	layouts uint32
}

// traced is an event that is followed.
type traced struct {
	key  fold.PairKey
	span trace.Span
}

func (v *verdict) reset() {
	*v = verdict{events: v.events[:0], forwards: v.forwards[:0], deadLetters: v.deadLetters[:0], reasons: v.reasons[:0], traced: v.traced[:0], layouts: v.layouts}
}

// judge looks at one record. It depends on nothing but the record and the layout, so that
// it says the same whoever asks, and when.
func (v *verdict) judge(rec *kgo.Record, layout schema.Layout) {
	var e fold.Event
	if err := schema.DecodeEvent(rec.Key, rec.Value, &e.Event); err != nil {
		v.bury(rec, err.(*schema.PoisonError))
		return
	}
	if e.RegionMalformed {
		v.badRegions++
	}
	if e.ResolveTime(rec.Timestamp.UnixMilli()) {
		v.capped++
	}
	if home := layout.Home(e.PostID, e.UserID); home != rec.Partition {
		v.forward(rec, &e.Event, home, layout)
		return
	}
	e.Offset = rec.Offset
	if sc, ok := tracing.Of(rec); ok && len(v.traced) < tracing.PerBatch {
		v.traced = append(v.traced, traced{fold.PairKey{PostID: e.PostID, UserID: e.UserID}, tracing.Begin(sc, "fold", rec, time.Now())})
	}
	v.events = append(v.events, e)
}

// forward sends an event home, with its time settled: the time at which it arrives
// there must not count. It does so once in each layout: one that was on its way when
// partitions were added may have to go on.
func (v *verdict) forward(rec *kgo.Record, e *schema.Event, home int32, layout schema.Layout) {
	if from := header(rec, schema.HeaderForwarded); from != "" && forwardedIn(from) >= uint64(v.layouts) {
		v.bury(rec, &schema.PoisonError{Reason: schema.Misplaced,
			Detail: fmt.Sprintf("was forwarded and still is in partition %d instead of %d", rec.Partition, home)})
		return
	}
	forwarded := &kgo.Record{
		Topic:     schema.TopicLikes,
		Partition: home,
		Key:       layout.AppendKey(nil, e.PostID, e.UserID),
		Value:     schema.AppendEvent(nil, e),
		Headers: []kgo.RecordHeader{{
			Key:   schema.HeaderForwarded,
			Value: fmt.Appendf(nil, "%d@%d", rec.Partition, rec.Offset),
		}},
	}
	if v.layouts > 0 {
		forwarded.Headers[0].Value = fmt.Appendf(forwarded.Headers[0].Value, "/%d", v.layouts)
	}
	if sc, ok := tracing.Of(rec); ok {
		tracing.GiveTo(forwarded, sc)
	}
	v.forwards = append(v.forwards, forwarded)
}

// forwardedIn reads in which layout an event was forwarded.
func forwardedIn(header string) uint64 {
	_, layouts, found := strings.Cut(header, "/")
	if !found {
		return 0
	}
	n, err := strconv.ParseUint(layouts, 10, 32)
	if err != nil {
		return math.MaxUint64 // nothing of ours: it goes nowhere
	}
	return n
}

// bury makes a dead letter: the original, and why and whence in its headers.
func (v *verdict) bury(rec *kgo.Record, why *schema.PoisonError) {
	key, value, headers := fit(rec)
	v.reasons = append(v.reasons, why.Reason)
	v.deadLetters = append(v.deadLetters, &kgo.Record{
		Topic:     schema.TopicDLT,
		Partition: rec.Partition,
		Key:       key,
		Value:     value,
		Headers: append(headers[:len(headers):len(headers)],
			kgo.RecordHeader{Key: schema.HeaderDLTError, Value: fmt.Appendf(nil, "%s: %s", why.Reason, why)},
			kgo.RecordHeader{Key: schema.HeaderDLTTopic, Value: []byte(rec.Topic)},
			kgo.RecordHeader{Key: schema.HeaderDLTPartition, Value: strconv.AppendInt(nil, int64(rec.Partition), 10)},
			kgo.RecordHeader{Key: schema.HeaderDLTOffset, Value: strconv.AppendInt(nil, rec.Offset, 10)},
		),
	})
}

const (
	// headerTruncated marks a dead letter that was cut, and tells the bytes of the
	// original: key, value and headers together.
	headerTruncated = "kudos.truncated"
	// maxCutKey is what is left of the key then, in bytes.
	maxCutKey = 1 << 10
	// ownHeaderBytes is room for the record itself and what bury adds.
	ownHeaderBytes = 4 << 10
)

// fit returns what a dead letter takes of a record. The broker measures batches as
// they are sent, so a compressed batch of likes may bring more than fits likes.dlt:
// then the beginning has to do, for the partition must not stop. The whole lies in
// likes, at the offset that the dead letter names.
func fit(rec *kgo.Record) (key, value []byte, headers []kgo.RecordHeader) {
	size := len(rec.Key) + len(rec.Value)
	for _, h := range rec.Headers {
		size += 10 + len(h.Key) + len(h.Value) // two lengths, at most 5 bytes each
	}
	if size <= int(schema.BatchMaxBytes(schema.TopicDLT))-ownHeaderBytes {
		return rec.Key, rec.Value, rec.Headers
	}
	return rec.Key[:min(len(rec.Key), maxCutKey)], rec.Value[:min(len(rec.Value), schema.MaxEventBytes)],
		[]kgo.RecordHeader{{Key: headerTruncated, Value: strconv.AppendInt(nil, int64(size), 10)}}
}

func header(rec *kgo.Record, key string) string {
	for _, h := range rec.Headers {
		if h.Key == key {
			return string(h.Value)
		}
	}
	return ""
}
