package view

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/reader/wire"
	"kudos/schema"
	"kudos/stream/kafka"
)

// lagProbe measures how far the copy is behind the end of likes, over the whole way: it
// looks where the log ends, and how long it takes until all of that is in the copy.
type lagProbe struct {
	log *slog.Logger
	// of is what is measured.
	partitions func() (int32, error)
	asOf       func(partition int32) (wire.Position, error)
	wait       func(ctx context.Context, want wire.Position) error

	mu struct {
		sync.Mutex
		known   bool
		events  int64
		last    time.Duration
		waiting time.Time // since when something is waited for; zero: nothing is
		looked  time.Time // when it last could be told where the logs end
	}
}

const (
	lagInterval = time.Second
	lagTimeout  = 5 * time.Second
	// lagBlind is longer than a look, the wait after it and the pause take.
	lagBlind = lagTimeout + 3*lagInterval
	// tail is how many offsets at the end of a log are searched for its last data
	// record: behind it may be markers of transactions that forwarded events.
	tail = 16
)

func (l *lagProbe) run(ctx context.Context, cl *kgo.Client) error {
	tick := time.NewTicker(lagInterval)
	defer tick.Stop()
	var want []wire.Position // what is waited for
	for {
		ends, err := l.look(ctx, cl)
		if err != nil {
			l.log.Debug("measuring the lag", "error", err) // the partitions' own readers say what is wrong
		}
		if err == nil {
			want = still(want, ends)
		}
		if err == nil && len(want) == 0 {
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

// still returns what of want has not come and may yet: what is behind the end of a log
// never will, since likes was made anew or cut off. ends has all that has not come.
func still(want, ends []wire.Position) []wire.Position {
	return slices.DeleteFunc(want, func(w wire.Position) bool {
		return !slices.ContainsFunc(ends, func(e wire.Position) bool { return e.Partition == w.Partition && e.Offset >= w.Offset })
	})
}

// look finds the events that are not in the copy, and returns where they end in each
// partition that has some.
func (l *lagProbe) look(ctx context.Context, cl *kgo.Client) (ends []wire.Position, err error) {
	ctx, cancel := context.WithTimeout(ctx, lagTimeout)
	defer cancel()
	n, err := l.partitions()
	if err != nil {
		return nil, err
	}
	offsets, err := kadm.NewClient(cl).ListCommittedOffsets(ctx, schema.TopicLikes)
	if err == nil {
		err = offsets.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("listing the ends of %s: %w", schema.TopicLikes, err)
	}
	events := int64(0)
	for p := range n {
		asOf, err := l.asOf(p)
		if err != nil {
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
	l.mu.known, l.mu.events, l.mu.looked = true, events, time.Now()
	return ends, nil
}

// dataEnd is the offset behind the last record that is data, or from.
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

// await waits for what is still wanted, and returns what of it has not come.
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

func (l *lagProbe) present() (events int64, behind time.Duration, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	behind = l.mu.last
	if !l.mu.waiting.IsZero() {
		behind = max(behind, time.Since(l.mu.waiting))
	}
	// While nobody can tell where the logs end, what is in the copy grows old.
	if blind := time.Since(l.mu.looked); blind > lagBlind {
		behind = max(behind, blind)
	}
	return l.mu.events, behind, l.mu.known
}
