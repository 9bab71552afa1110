package view

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/reader/wire"
	"kudos/schema"
	"kudos/stream"
	"kudos/stream/kafka"
)

// BeyondEndError says that likes has no event at a position yet.
type BeyondEndError struct {
	Want wire.Position // as_of of the event: the offset after its own
	End  int64         // the offset of the next event
	// Partitions is the number of partitions of likes if it does not have that one; otherwise 0.
	Partitions int
}

func (e *BeyondEndError) Error() string {
	if e.Partitions > 0 {
		return fmt.Sprintf("partition %d does not exist; the topic %s has %d, starting at 0", e.Want.Partition,
			schema.TopicLikes, e.Partitions)
	}
	return fmt.Sprintf("there is no event at partition %d, offset %d: that partition of the topic %s ends at %d",
		e.Want.Partition, e.Want.Offset-1, schema.TopicLikes, e.End)
}

// logEnds asks Kafka for the end offsets of likes, for callers that wait for an event that may not exist. One query
// answers every caller that came before it started. An earlier one says nothing: the caller's event may be newer.
type logEnds struct {
	asked chan chan kadm.ListedOffsets // each caller's channel for the answer, which is nil if Kafka gives none
}

const (
	endsPause = 50 * time.Millisecond // at least, between queries to Kafka, however many callers there are
	// endsLooks is how many queries must find no such event. A writer that does not wait for all in-sync replicas
	// (acks=1) knows its event's offset shortly before Kafka shows the event to anybody.
	endsLooks = 2
)

func newLogEnds() *logEnds { return &logEnds{asked: make(chan chan kadm.ListedOffsets)} }

func (e *logEnds) run(ctx context.Context, cl *kgo.Client) error {
	return e.serve(ctx, func() (kadm.ListedOffsets, error) {
		bounded, cancel := context.WithTimeout(ctx, lagTimeout)
		defer cancel()
		// Up to the high watermark: acknowledged events are below it, but an open transaction may hide them.
		return kadm.NewClient(cl).ListEndOffsets(bounded, schema.TopicLikes)
	})
}

func (e *logEnds) serve(ctx context.Context, list func() (kadm.ListedOffsets, error)) error {
	for {
		var waiting []chan kadm.ListedOffsets
		select {
		case <-ctx.Done():
			return nil
		case first := <-e.asked:
			waiting = e.others(first)
		}
		ends, err := list()
		if err != nil {
			ends = nil
		}
		for _, answer := range waiting {
			answer <- ends
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(endsPause):
		}
	}
}

// others appends all callers that are asking now.
func (e *logEnds) others(waiting ...chan kadm.ListedOffsets) []chan kadm.ListedOffsets {
	for {
		select {
		case answer := <-e.asked:
			waiting = append(waiting, answer)
		default:
			return waiting
		}
	}
}

// look returns the end offsets from a query that starts after now.
func (e *logEnds) look(ctx context.Context) (ends kadm.ListedOffsets) {
	answer := make(chan kadm.ListedOffsets, 1)
	select {
	case <-ctx.Done():
		return nil
	case e.asked <- answer:
	}
	select {
	case <-ctx.Done():
	case ends = <-answer:
	}
	return ends
}

// check returns a *BeyondEndError if a position is beyond the end of its log, nil if none is or Kafka does not answer.
func (e *logEnds) check(ctx context.Context, want []wire.Position) (beyond error) {
	for range endsLooks {
		if beyond = firstBeyond(e.look(ctx), want); beyond == nil {
			return nil
		}
	}
	return beyond
}

// Ends returns the positions after all events that are in these partitions now; nil if Kafka does not answer.
func (l *Likes) Ends(ctx context.Context, partitions []int32) (ends []wire.Position) {
	listed := l.ends.look(ctx)
	for _, p := range partitions {
		end, ok := listed.Lookup(schema.TopicLikes, p)
		if !ok || end.Err != nil {
			return nil
		}
		ends = append(ends, wire.Position{Partition: p, Offset: end.Offset})
	}
	return ends
}

// AskKafka adds to h the open transactions, the last audit, and what Kafka does not answer. It returns the last stable
// offsets.
func (l *Likes) AskKafka(ctx context.Context, h *wire.Health) kadm.ListedOffsets {
	cl := l.client.Load()
	if cl == nil {
		h.Errors = append(h.Errors, "the reader is starting")
		return nil
	}
	adm := kadm.NewClient(cl)
	ends, stable, err := kafka.ListEnds(ctx, cl, schema.TopicLikes, schema.TopicState, schema.TopicCounts,
		schema.TopicUpdates, schema.TopicTrending)
	h.Transactions = openTransactions(ends, stable)
	audits, auditErr := adm.FetchOffsetsForTopics(ctx, schema.GroupAudit, schema.TopicState)
	last, _ := audits.Lookup(schema.TopicState, 0)
	if last.Metadata != "" {
		auditErr = errors.Join(auditErr, json.Unmarshal([]byte(last.Metadata), &h.Audit))
	}
	for what, err := range map[string]error{
		"the end offsets": errors.Join(err, ends.Error(), stable.Error()),
		"the last audit":  errors.Join(auditErr, last.Err),
	} {
		if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
			h.Errors = append(h.Errors, fmt.Sprintf("Kafka did not return %s: %s", what, err))
		}
	}
	return stable
}

func openTransactions(high, stable kadm.ListedOffsets) []wire.OpenTransaction {
	open := []wire.OpenTransaction{}
	for _, at := range stable.Offsets().Sorted() {
		if end, ok := high.Lookup(at.Topic, at.Partition); ok && end.Err == nil && at.At < end.Offset {
			open = append(open, wire.OpenTransaction{
				Topic: at.Topic, Position: wire.Position{Partition: at.Partition, Offset: at.At}, End: end.Offset})
		}
	}
	return open
}

func firstBeyond(ends kadm.ListedOffsets, want []wire.Position) error {
	for _, w := range want {
		if end, ok := ends.Lookup(schema.TopicLikes, w.Partition); ok && end.Err == nil && w.Offset > end.Offset {
			return &BeyondEndError{Want: w, End: end.Offset}
		} else if n := len(ends[schema.TopicLikes]); !ok && int(w.Partition) >= n && n > 0 {
			return &BeyondEndError{Want: w, Partitions: n}
		}
	}
	return nil
}

// lagProbe measures the lag end to end: it reads where likes ends, and times how long the view takes to get there.
type lagProbe struct {
	log        *slog.Logger
	partitions func() (int32, error) // of the view, like asOf and wait
	asOf       func(partition int32) (wire.Position, error)
	wait       func(ctx context.Context, want wire.Position) error

	mu struct {
		sync.Mutex
		events  int64
		last    time.Duration
		waiting time.Time              // start of the current wait; zero: none
		looked  time.Time              // when the end offsets were last known; zero: never
		open    []wire.OpenTransaction // in likes, when the end offsets were last known
	}
}

const (
	lagInterval = time.Second
	lagTimeout  = 5 * time.Second
	lagBlind    = lagTimeout + 3*lagInterval // longer than a query, the wait after it and the pause take
	// tail is how many last offsets are searched for a data record: markers of forwarding transactions may follow it.
	tail = 16
)

func (l *lagProbe) run(ctx context.Context, cl *kgo.Client) error {
	tick := time.NewTicker(lagInterval)
	defer tick.Stop()
	var want []wire.Position // what the probe waits for
	for {
		ends, err := l.look(ctx, cl)
		if err != nil {
			l.log.Debug("measuring the lag failed", "error", err) // the status of the partitions says what is wrong
		} else if want = still(want, ends); len(want) == 0 {
			want = ends
			l.begin()
		}
		within, cancel := context.WithTimeout(ctx, lagInterval)
		want = l.await(within, want)
		cancel()
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// still returns the positions of want that the view has not reached and still may. What is beyond the end of a log
// never comes, since likes was recreated or truncated. ends has everything that the view has not reached.
func still(want, ends []wire.Position) []wire.Position {
	return slices.DeleteFunc(want, func(w wire.Position) bool {
		return !slices.ContainsFunc(ends, func(e wire.Position) bool {
			return e.Partition == w.Partition && e.Offset >= w.Offset
		})
	})
}

// look counts the events that are not in the view, and returns the end offset of each partition that has some.
func (l *lagProbe) look(ctx context.Context, cl *kgo.Client) (ends []wire.Position, err error) {
	ctx, cancel := context.WithTimeout(ctx, lagTimeout)
	defer cancel()
	n, err := l.partitions()
	if err != nil {
		return nil, err
	}
	high, offsets, err := kafka.ListEnds(ctx, cl, schema.TopicLikes)
	if err == nil {
		err = offsets.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("listing the end offsets of %s: %w", schema.TopicLikes, err)
	}
	events := int64(0)
	for p := range n {
		asOf, err := l.asOf(p)
		switch {
		case stream.IsNotKept(err):
			continue
		case err != nil:
			return nil, err
		}
		end, _ := offsets.Lookup(schema.TopicLikes, p)
		if end.Offset <= asOf.Offset {
			continue
		}
		last, err := dataEnd(ctx, cl, p, max(asOf.Offset, end.Offset-tail), end.Offset)
		if err != nil {
			return nil, err
		}
		if last > asOf.Offset {
			events += last - asOf.Offset
			ends = append(ends, wire.Position{Partition: p, Offset: last})
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	open := openTransactions(high, offsets)
	for i := range open {
		for _, was := range l.mu.open {
			if was.Position == open[i].Position {
				open[i].OpenMs = was.OpenMs + time.Since(l.mu.looked).Milliseconds()
			}
		}
	}
	l.mu.events, l.mu.open, l.mu.looked = events, open, time.Now()
	return ends, nil
}

// dataEnd returns the offset after the last data record, or from if there is none.
func dataEnd(ctx context.Context, cl *kgo.Client, partition int32, from, end int64) (int64, error) {
	last := from
	err := kafka.ReadLog(ctx, cl, schema.TopicLikes, partition, from, func(c kafka.LogChunk) (bool, error) {
		if n := len(c.Records); n > 0 {
			last = c.Records[n-1].Offset + 1
		}
		return c.Next < end, nil
	})
	return last, err
}

func (l *lagProbe) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.waiting = time.Now()
}

// await waits for the positions of want, and returns those not reached when ctx ends.
func (l *lagProbe) await(ctx context.Context, want []wire.Position) []wire.Position {
	for i, w := range want {
		if l.wait(ctx, w) != nil {
			return want[i:]
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.mu.waiting.IsZero() {
		l.mu.last, l.mu.waiting = time.Since(l.mu.waiting), time.Time{}
	}
	return nil
}

func (l *lagProbe) present() (events int64, behind time.Duration, open []wire.OpenTransaction, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	behind = l.mu.last
	if !l.mu.waiting.IsZero() {
		behind = max(behind, time.Since(l.mu.waiting))
	}
	// While the end offsets are unknown, the view may fall behind unnoticed.
	if blind := time.Since(l.mu.looked); blind > lagBlind {
		behind = max(behind, blind)
	}
	return l.mu.events, behind, l.mu.open, !l.mu.looked.IsZero()
}
