// Package classify decides what each record of likes becomes: an event to fold, an event to forward to the partition
// that owns it, or a dead letter. It is a pure function of the record and the layout.
package classify

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
	"kudos/stream/kafka/tracing"
)

// Classified is what a batch's records become: each an event, forwarded to its post's partition, or a dead letter.
type Classified struct {
	Events                []fold.Event
	Forwards, DeadLetters []*kgo.Record         // ready to be produced
	Reasons               []schema.PoisonReason // of DeadLetters
	Ahead                 int                   // events over 1 s ahead of the log-append time: a clock is wrong
	Capped, BadRegions    int
	Traced                []Traced
	Layouts               uint32         // before the current one; Reset keeps it
	Regions               schema.Regions // Reset keeps them
	Voids                 bool           // events from the offset VoidsFrom on may void users; Reset keeps both
	VoidsFrom             int64
}

// Traced is an event that is traced.
type Traced struct {
	Key  fold.PairKey
	Span trace.Span
}

// Reset empties it for the next batch and keeps its memory.
func (v *Classified) Reset() {
	*v = Classified{Events: v.Events[:0], Forwards: v.Forwards[:0], DeadLetters: v.DeadLetters[:0],
		Reasons: v.Reasons[:0], Traced: v.Traced[:0], Layouts: v.Layouts, Regions: v.Regions,
		Voids: v.Voids, VoidsFrom: v.VoidsFrom}
}

// Add classifies one record. The result depends only on the record and what the state table's progress says: it is the
// same in every process.
func (v *Classified) Add(rec *kgo.Record, layout schema.Layout) {
	var e fold.Event
	decode := schema.DecodeEvent
	if v.Voids && rec.Offset >= v.VoidsFrom {
		decode = schema.DecodeRecord
	}
	if err := decode(rec.Key, rec.Value, &e.Event); err != nil {
		v.deadLetter(rec, err.(*schema.PoisonError))
		return
	}
	if e.RegionMalformed {
		v.BadRegions++
	}
	if e.ResolveTime(rec.Timestamp.UnixMilli()) {
		v.Capped++
	}
	if e.Action.OfUser() { // of this partition
		e.Offset = rec.Offset
		v.Events = append(v.Events, e)
		return
	}
	if owner := layout.PartitionOf(e.PostID, e.UserID); owner != rec.Partition {
		v.forward(rec, &e.Event, owner, layout)
		return
	}
	if e.TimeMs > rec.Timestamp.UnixMilli()+1000 { // here, so that a forwarded event counts once
		v.Ahead++
	}
	var known bool
	if e.Region, known = v.Regions.Of(e.Region, rec.Offset); !known {
		v.BadRegions++
	}
	e.Offset = rec.Offset
	if sc, ok := tracing.Of(rec); ok && len(v.Traced) < tracing.PerBatch {
		key := fold.PairKey{PostID: e.PostID, UserID: e.UserID}
		v.Traced = append(v.Traced, Traced{key, tracing.Begin(sc, "fold", rec, time.Now())})
	}
	v.Events = append(v.Events, e)
}

// forward sends an event to the partition that owns it, with its time resolved: its arrival time there must not count.
// It does so once per layout: an event that was in flight when partitions were added may have to be forwarded again.
func (v *Classified) forward(rec *kgo.Record, e *schema.Event, owner int32, layout schema.Layout) {
	if from := Header(rec, schema.HeaderForwarded); from != "" && forwardedIn(from) >= uint64(v.Layouts) {
		v.deadLetter(rec, &schema.PoisonError{Reason: schema.Misplaced,
			Detail: fmt.Sprintf("was forwarded but is still in partition %d instead of %d", rec.Partition, owner)})
		return
	}
	origin := fmt.Appendf(nil, "%d@%d", rec.Partition, rec.Offset)
	if v.Layouts > 0 {
		origin = fmt.Appendf(origin, "/%d", v.Layouts)
	}
	forwarded := &kgo.Record{
		Topic:     schema.TopicLikes,
		Partition: owner,
		Key:       layout.AppendKey(nil, e.PostID, e.UserID),
		Value:     schema.AppendEvent(nil, e),
		Headers:   []kgo.RecordHeader{{Key: schema.HeaderForwarded, Value: origin}},
	}
	if sc, ok := tracing.Of(rec); ok {
		tracing.GiveTo(forwarded, sc)
	}
	v.Forwards = append(v.Forwards, forwarded)
}

// forwardedIn returns in which layout an event was forwarded.
func forwardedIn(header string) uint64 {
	_, layouts, found := strings.Cut(header, "/")
	if !found {
		return 0
	}
	n, err := strconv.ParseUint(layouts, 10, 32)
	if err != nil {
		return math.MaxUint64 // not our header: it is not forwarded again
	}
	return n
}

func (v *Classified) deadLetter(rec *kgo.Record, why *schema.PoisonError) {
	v.Reasons = append(v.Reasons, why.Reason)
	v.DeadLetters = append(v.DeadLetters, DeadLetter(rec, rec.Partition, why))
}

// DeadLetter returns a dead letter for a partition: the original record, with the reason and its source in headers.
func DeadLetter(rec *kgo.Record, partition int32, why *schema.PoisonError) *kgo.Record {
	key, value, headers := fit(rec)
	return &kgo.Record{
		Topic: schema.TopicDLT, Partition: partition, Key: key, Value: value,
		Headers: append(headers[:len(headers):len(headers)],
			kgo.RecordHeader{Key: schema.HeaderDLTError, Value: fmt.Appendf(nil, "%s: %s", why.Reason, why)},
			kgo.RecordHeader{Key: schema.HeaderDLTTopic, Value: []byte(rec.Topic)},
			kgo.RecordHeader{Key: schema.HeaderDLTPartition, Value: strconv.AppendInt(nil, int64(rec.Partition), 10)},
			kgo.RecordHeader{Key: schema.HeaderDLTOffset, Value: strconv.AppendInt(nil, rec.Offset, 10)}),
	}
}

const (
	// headerTruncated marks a truncated dead letter; its value is the original size of key, value and headers in bytes.
	headerTruncated = "kudos.truncated"
	maxCutKey       = 1 << 10 // bytes of its key that are kept
	ownHeaderBytes  = 4 << 10 // reserved for the record itself and for what deadLetter adds
)

// fit returns what a dead letter keeps of a record. The broker limits the size of batches as they are sent, so a
// compressed batch of likes may hold a record that is too large for likes.dlt. That record is truncated, because the
// partition must not stop; the whole record is in likes, at the offset that the dead letter names.
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

// Header returns the value of a header, or "".
func Header(rec *kgo.Record, key string) string {
	for _, h := range rec.Headers {
		if h.Key == key {
			return string(h.Value)
		}
	}
	return ""
}
