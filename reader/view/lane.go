package view

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"kudos/reader/wire"
	"kudos/schema"
	"kudos/stream"
	"kudos/stream/kafka"
	"kudos/stream/store"
)

// Lane is a materialized view of one of the topics that the fold writes. Each transaction ends with a progress record,
// so what is read from a partition is as of a position in likes. Each lane moves by itself: none waits for another.
type Lane struct {
	topic  string
	action string // if there is no progress record
	kafka  kafka.Options
	log    *slog.Logger
	stores *store.Set
	view   *stream.View
	lag    *lagProbe
	owners *owners // where posts are
	leads  bool    // this lane's progress records tell owners the layout
}

func (o Options) newLane(topic, dir, action string, owners *owners, kafka kafka.Options,
	copy func(partition int32) stream.Copy, log *slog.Logger,
) *Lane {
	l := &Lane{topic: topic, action: action, owners: owners, kafka: kafka, log: log}
	l.stores, l.view = o.newView(topic, dir, o.CacheBytes, kafka, copy, log)
	l.lag = &lagProbe{log: log, partitions: l.Partitions, asOf: l.AsOf, wait: l.Wait}
	return l
}

func (l *Lane) collectors(role string) []prometheus.Collector {
	return []prometheus.Collector{store.NewCollector(role, l.stores), stream.NewRoleCollector(role, l.view.Status)}
}

// View returns the lane's view, for a caller that drives its partitions itself: without Run, and with Close at the end.
func (l *Lane) View() *stream.View { return l.view }

// Close releases what the partitions share.
func (l *Lane) Close() { l.stores.Close() }

func (l *Lane) run(ctx context.Context, cl *kgo.Client) error {
	defer l.Close()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return l.view.Run(ctx) })
	g.Go(func() error { return l.lag.run(ctx, cl) })
	return g.Wait()
}

// Ready returns nil when all partitions that it keeps can be read.
func (l *Lane) Ready() error {
	n, err := l.view.Partitions()
	if err != nil {
		return err
	}
	var errs []error
	for p := range n {
		if _, err := l.AsOf(p); !stream.IsNotKept(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Partitions returns the number of partitions.
func (l *Lane) Partitions() (int32, error) { return l.view.Partitions() }

// PartitionsOf returns the partitions that have a post, in order: one, unless the post has user buckets. While
// partitions are being added, it returns all.
func (l *Lane) PartitionsOf(post uint64) ([]int32, error) {
	n, err := l.view.Partitions()
	if err != nil {
		return nil, err
	}
	return l.owners.now(n).append(nil, post), nil
}

// Layout returns the layout that the partitions of posts go by.
func (l *Lane) Layout() Layout { return l.owners.now(0).layout() }

// state returns the state of a partition, and a channel that is closed when there is a newer one.
func (l *Lane) state(partition int32) (state laneState, moved <-chan struct{}, err error) {
	err = l.view.Read(partition, func(_ *store.Store, c stream.Copy) (err error) {
		state, moved, err = c.(presenter).present()
		return err
	}, nil)
	return state, moved, err
}

// AsOf returns the position in likes that reads of a partition reflect.
func (l *Lane) AsOf(partition int32) (wire.Position, error) {
	state, _, err := l.state(partition)
	return state.asOf(partition), err
}

// Epoch identifies the log that a partition's positions are in.
func (l *Lane) Epoch(partition int32) (string, error) {
	state, _, err := l.state(partition)
	return epoch(state.progress.SourceID), err
}

const readyPoll = 20 * time.Millisecond // how often Wait checks whether a partition has become ready

// Wait waits until reads of a partition cover a position, or returns ctx's error.
func (l *Lane) Wait(ctx context.Context, want wire.Position) error {
	return l.await(ctx, want.Partition, func(p *schema.Progress) bool { return p.NextOffset >= want.Offset })
}

func (l *Lane) await(ctx context.Context, partition int32, reached func(*schema.Progress) bool) error {
	for {
		state, moved, err := l.state(partition)
		if err == nil && reached(&state.progress) {
			return nil
		}
		var again <-chan time.Time
		if err != nil {
			if _, notReady := errors.AsType[*NotReadyError](err); !notReady {
				return err
			}
			moved, again = nil, time.After(readyPoll)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-moved:
		case <-again:
		}
	}
}

// Lag returns how many events of likes are not in the view yet, and how long ago, at most, the view had all that there
// were, as of the last measurement. known is false before the first.
func (l *Lane) Lag() (events int64, behind time.Duration, open []wire.OpenTransaction, known bool) {
	return l.lag.present()
}

// pin calls find with a partition's store while nothing is written to it, then use, unless nil. Both read as of asOf.
func (l *Lane) pin(partition int32, find func(*store.Store, stream.Copy) error, use func() error,
) (asOf wire.Position, err error) {
	err = l.view.Read(partition, func(s *store.Store, c stream.Copy) error {
		state, _, err := c.(presenter).present()
		if err != nil {
			return err
		}
		asOf = state.asOf(partition)
		return find(s, c)
	}, use)
	return asOf, err
}

// read calls use with a snapshot reader of the partition, as of asOf.
func (l *Lane) read(partition int32, use func(r *store.Reader) error) (asOf wire.Position, err error) {
	var r *store.Reader
	open := func(s *store.Store, _ stream.Copy) (err error) {
		r, err = s.NewReader()
		return err
	}
	return l.pin(partition, open, func() error {
		defer r.Close()
		return use(r)
	})
}

// laneCopy is what the partitions of all lanes have in common: their progress. The lock of stream.View guards it: Open
// and Applied exclude readers.
type laneCopy struct {
	lane      *Lane
	partition int32
	state     laneState
	staged    laneState     // what applied makes visible
	moved     chan struct{} // closed when there is a newer state
}

// laneState is the state of a partition outside its store, as of the same position.
type laneState struct {
	progress schema.Progress
	known    bool // there is a progress record
}

type presenter interface {
	present() (laneState, <-chan struct{}, error)
}

func newLaneCopy(of *Lane, partition int32) laneCopy {
	return laneCopy{lane: of, partition: partition, moved: make(chan struct{})}
}

func (s *laneState) asOf(partition int32) wire.Position {
	return wire.Position{Partition: partition, Offset: s.progress.NextOffset}
}

func (c *laneCopy) Open(s *store.Store) (err error) {
	c.state = laneState{}
	c.state.known, err = s.Find([]byte(schema.StateProgressKey), func(value []byte) error {
		return schema.DecodeProgress(value, &c.state.progress)
	})
	c.staged = c.state
	c.tellLayout()
	return err
}

func (c *laneCopy) tellLayout() {
	if c.state.known && c.lane.leads {
		c.lane.owners.tell(c.partition, &c.state.progress)
	}
}

// Whole ends with the last progress record, which is the last record of each of the fold's transactions.
func (c *laneCopy) Whole(records []*kgo.Record) int {
	for i, rec := range slices.Backward(records) {
		if string(rec.Key) == schema.StateProgressKey {
			return i + 1
		}
	}
	return 0
}

// PartitionsOf returns the number of partitions in the last progress record. The first record with more of them comes
// before anything moves to the new ones.
func (c *laneCopy) PartitionsOf(records []*kgo.Record) int32 { return c.last(records).Partitions }

// MissesDeletions reports whether there is another layout than before: what has moved away was deleted here.
func (c *laneCopy) MissesDeletions(records []*kgo.Record) bool {
	return c.state.known && c.last(records).Layouts != c.state.progress.Layouts
}

// last returns the last progress record, or the present one.
func (c *laneCopy) last(records []*kgo.Record) *schema.Progress {
	for _, rec := range slices.Backward(records) {
		var p schema.Progress
		if string(rec.Key) == schema.StateProgressKey && schema.DecodeProgress(rec.Value, &p) == nil {
			return &p
		}
	}
	return &c.state.progress
}

// stage begins with the present state: a failed Apply may have left another.
func (c *laneCopy) stage() { c.staged = c.state }

// apply stages a record that is not the lane's own. A progress record without a value says that records are missing.
func (c *laneCopy) apply(w *store.Write, rec *kgo.Record) error {
	if string(rec.Key) != schema.StateProgressKey {
		return nil
	}
	if c.staged.known = rec.Value != nil; c.staged.known {
		if err := schema.DecodeProgress(rec.Value, &c.staged.progress); err != nil {
			return err
		}
	}
	return w.Set(rec.Key, rec.Value)
}

// applied makes the staged state visible and wakes whoever waits for it.
func (c *laneCopy) applied() {
	c.state = c.staged
	c.tellLayout()
	close(c.moved)
	c.moved = make(chan struct{})
}

// present returns the state, and a channel that is closed when there is a newer one. A partition without a progress
// record is not ready: the fold could not use it either.
func (c *laneCopy) present() (laneState, <-chan struct{}, error) {
	if !c.state.known {
		return laneState{}, nil, &NotReadyError{Topic: c.lane.topic, Partition: c.partition, Behind: -1,
			Reason: "it has no progress record", Action: c.lane.action}
	}
	return c.state, c.moved, nil
}
