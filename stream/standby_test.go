package stream

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/dev/testkit"
	"kudos/integration/testrun"
	"kudos/stream/kafka"
	"kudos/stream/store"
)

// troubleLog counts what a processor logs as an error, and keeps the last of it.
type troubleLog struct {
	slog.Handler
	last *atomic.Pointer[string]
}

func newTroubleLog() troubleLog {
	return troubleLog{testkit.Log().Handler(), &atomic.Pointer[string]{}}
}

func (l troubleLog) Enabled(context.Context, slog.Level) bool { return true }
func (l troubleLog) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l troubleLog) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelError {
		text := r.Message
		r.Attrs(func(a slog.Attr) bool { text += " " + a.String(); return true })
		l.last.Store(&text)
	}
	if l.Handler.Enabled(ctx, r.Level) {
		return l.Handler.Handle(ctx, r)
	}
	return nil
}

// standbyMember is a processor of copiers that keeps standby copies.
type standbyMember struct {
	*Processor
	stores, copies *store.Set
	trouble        troubleLog
	stop           func()
}

func (c *cluster) runStandby(dir string) *standbyMember {
	m := &standbyMember{stores: store.NewSet(dir, 8<<20, testkit.Log()), trouble: newTroubleLog()}
	m.stores.BufferBytes = 1 << 20
	m.copies = m.stores.Standby()
	c.t.Cleanup(m.stores.Close)
	c.t.Cleanup(m.copies.Close)
	o := ProcessorOptions{
		Group: testGroup, Input: input, Table: true, Stores: m.stores, Standby: m.copies, Kafka: c.kafka,
		MaxBatch: 50, TickInterval: 20 * time.Millisecond, ParkInterval: 50 * time.Millisecond,
		SessionTimeout: 10 * time.Second, heartbeatInterval: 200 * time.Millisecond, ShutdownTimeout: 5 * time.Second,
	}
	m.Processor = NewProcessor(o, func(a Assignment) Worker { return &copier{c: c, a: a, stores: m.stores} }, slog.New(m.trouble))
	c.t.Cleanup(func() {
		if last := m.trouble.last.Load(); last != nil {
			c.t.Errorf("a member's errors: %s", *last)
		}
	})
	m.stop = testrun.Start(c.t, "the processor", testkit.Patience, m.Run)
	return m
}

// owned are the partitions that a member works on, all of them running.
func (m *standbyMember) owned() (partitions []int32) {
	statuses, _ := m.Status()
	for _, s := range statuses {
		if s.State == StateRunning {
			partitions = append(partitions, s.Partition)
		}
	}
	return partitions
}

// followed are the partitions whose copies are at the end of the log.
func (m *standbyMember) followed() (partitions []int32) {
	for _, f := range m.standbyCopies() {
		if state, behind := f.status(); state == standbyFollowing && behind == 0 {
			partitions = append(partitions, f.partition)
		}
	}
	slices.Sort(partitions)
	return partitions
}

// covers tells whether the copies of partitions have their logs up to the end.
func (m *standbyMember) covers(c *cluster, partitions []int32) bool {
	for _, p := range partitions {
		s := m.copies.Get(testkit.Table, p)
		if s == nil {
			return false
		}
		if offset, ok := s.Offset(); !ok || offset != c.End(testkit.Table, p)-1 {
			return false
		}
	}
	return true
}

// shares tells whether two members have both partitions between them, and a copy of what
// the other one has.
func shares(c *cluster, a, b *standbyMember) bool {
	mine, others := a.owned(), b.owned()
	return len(mine) == 1 && len(others) == 1 && slices.Equal(a.followed(), others) && slices.Equal(b.followed(), mine) &&
		a.covers(c, others) && b.covers(c, mine)
}

// TestStandbyTakesOver: what another process owns is followed, and taking it over reads nothing that
// was; what is given up is followed from then on. No session fails over a folder in use.
func TestStandbyTakesOver(t *testing.T) {
	t.Parallel()
	c := copierCluster(t, &testkit.Wire{})
	total := 0
	add := func(n int) {
		for p := range int32(2) {
			recs := make([]*kgo.Record, n)
			for i := range recs {
				recs[i] = testkit.Record(input, p, "", fmt.Sprintf("%03d", i))
			}
			c.Produce(recs...)
			testkit.WaitFor(t, "the output", func() bool { return len(c.values(output, p)) == total+n })
		}
		total += n
	}
	first := c.runStandby(t.TempDir())
	testkit.WaitFor(t, "the first member to have both", func() bool { return len(first.owned()) == 2 })
	add(500)
	require.Empty(t, first.standbyCopies(), "of what is owned there is no copy")
	second := c.runStandby(t.TempDir())
	testkit.WaitFor(t, "sharing", func() bool { return shares(c, first, second) })
	require.GreaterOrEqual(t, second.stores.Replayed(), int64(500), "of what it owns it had nothing")
	add(500)
	testkit.WaitFor(t, "the copies to follow", func() bool { return shares(c, first, second) })
	require.Equal(t, map[string]float64{
		"kudos_standby_copies group opening": 0, "kudos_standby_copies group following": 1, "kudos_standby_copies group failing": 0,
		fmt.Sprintf("kudos_standby_behind_records group %d", first.owned()[0]): 0,
	}, testkit.Gauges(t, NewStandbyCollector(second.Processor)))

	recovered := second.stores.Replayed()
	first.stop()
	testkit.WaitFor(t, "the takeover", func() bool { return len(second.owned()) == 2 })
	require.Equal(t, recovered, second.stores.Replayed(), "all of it had been followed")
	require.Empty(t, second.standbyCopies(), "what is owned is not followed")
	add(500)

	third := c.runStandby(t.TempDir())
	testkit.WaitFor(t, "sharing again", func() bool { return shares(c, second, third) })
	add(500) // what was given up is not what is followed now
	testkit.WaitFor(t, "the copies to follow again", func() bool { return shares(c, second, third) })
	recovered = second.stores.Replayed()
	third.stop()
	testkit.WaitFor(t, "the second takeover", func() bool { return len(second.owned()) == 2 })
	require.Equal(t, recovered, second.stores.Replayed(), "all of it had been followed")
	add(500)

	second.stop()
	for p := range int32(2) {
		have, _ := closed(t, second.stores, p)
		require.Len(t, have, 500)
		for _, pair := range have {
			key, value, _ := strings.Cut(pair, "=")
			require.EqualValues(t, total/500, binary.BigEndian.Uint64([]byte(value)), "all that was counted of %s, whoever counted it", key)
		}
	}
}

// TestStandbyFailsBesideWhatIsOwned: a process whose copy cannot be written is ready, and works
// on what it owns.
func TestStandbyFailsBesideWhatIsOwned(t *testing.T) {
	t.Parallel()
	c := copierCluster(t, &testkit.Wire{})
	dir := t.TempDir()
	first, second := c.runStandby(dir), c.runStandby(t.TempDir())
	testkit.WaitFor(t, "sharing", func() bool {
		return len(first.owned()) == 1 && len(second.owned()) == 1 && len(first.followed()) == 1
	})
	mine, other := first.owned()[0], first.followed()[0]
	folder := filepath.Join(dir, testkit.Table, fmt.Sprint(other))
	require.NoError(t, os.RemoveAll(folder))
	require.NoError(t, os.WriteFile(folder, nil, 0o600))
	first.copies.Get(testkit.Table, other).Distrust(errors.New("for a test")) // its next write looks at the disk
	c.Produce(append(testkit.Records(input, 0, 0, 5), testkit.Records(input, 1, 0, 5)...)...)
	testkit.WaitFor(t, "the copy to fail", func() bool {
		state, _ := first.standbyCopies()[0].status()
		return state == standbyFailing
	})
	require.NoError(t, first.Ready())
	c.Produce(testkit.Records(input, mine, 5, 5)...)
	testkit.WaitFor(t, "the output", func() bool { return len(c.values(output, mine)) == 10 })
	require.Equal(t, []int32{mine}, first.owned())
	require.NoError(t, os.Remove(folder))
	testkit.WaitFor(t, "the copy", func() bool { return slices.Equal(first.followed(), []int32{other}) && first.covers(c, []int32{other}) })
}

// standbyOf follows all partitions of the table, as a member that owns none does.
func (c *cluster) standbyOf(dir string, change ...func(*standby)) (*standby, *store.Set) {
	stores := store.NewSet(dir, 8<<20, testkit.Log())
	c.t.Cleanup(stores.Close)
	copies := stores.Standby()
	c.t.Cleanup(copies.Close)
	opts := &ProcessorOptions{Group: testGroup, Standby: copies, Kafka: c.kafka, ShutdownTimeout: testkit.Patience}
	s, err := newStandby(context.Background(), opts, c.Client(), testkit.Log())
	require.NoError(c.t, err)
	c.t.Cleanup(s.close)
	for _, change := range change {
		change(s)
	}
	s.follow(nil)
	return s, copies
}

// states are what the copies do, by partition.
func (s *standby) states() []string {
	states := make([]string, len(s.partitions))
	for _, f := range s.all() {
		states[f.partition], _ = f.status()
	}
	return states
}

// content is what a store has; nobody else may be writing.
func content(t testing.TB, s *store.Store) (have []string) {
	it, err := s.Iterator()
	require.NoError(t, err)
	defer it.Release()
	for it.Next() {
		v, err := it.Value()
		require.NoError(t, err)
		have = append(have, string(it.Key())+"="+string(v))
	}
	require.NoError(t, it.Err())
	return have
}

// closed returns what the store of a partition has that nobody uses, and up to where.
func closed(t testing.TB, stores *store.Set, partition int32) (have []string, offset int64) {
	st := stores.Get(testkit.Table, partition)
	require.NoError(t, st.Open())
	defer func() { require.NoError(t, st.Close()) }()
	offset, ok := st.Offset()
	require.True(t, ok)
	return content(t, st), offset
}

// TestStandbyCopiesWhatIsCommitted: what is not is not there, and the copy does not say
// that it covers it.
func TestStandbyCopiesWhatIsCommitted(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.Topic(testkit.Table, 1)
	c.Transact("a", testkit.Commit(), testkit.Record(testkit.Table, 0, "a", "1"))
	c.Transact("b", testkit.Abort(), testkit.Record(testkit.Table, 0, "b", "1"))
	s, copies := c.standbyOf(t.TempDir())
	covered := func(offset int64) func() bool {
		return func() bool {
			store := copies.Get(testkit.Table, 0)
			if store == nil {
				return false
			}
			at, ok := store.Offset()
			return ok && at == offset && slices.Equal(s.states(), []string{standbyFollowing})
		}
	}
	testkit.WaitFor(t, "what is settled", covered(3))
	c.Transact("c", nil, testkit.Record(testkit.Table, 0, "a", "2"), testkit.Record(testkit.Table, 0, "c", "2"))
	c.Produce(testkit.Record(testkit.Table, 0, "d", "2")) // behind what is open
	counts := c.CountRequests()
	testkit.WaitFor(t, "two fetches", func() bool { return counts.Of(kmsg.Fetch) >= 2 })
	s.close()
	have, offset := closed(t, copies, 0)
	require.EqualValues(t, 3, offset, "the last stable offset")
	require.Equal(t, []string{"a=1"}, have)
}

// TestStandbyThatFails: a copy that cannot be written harms no other, and is followed when
// it can be.
func TestStandbyThatFails(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.Topic(testkit.Table, 3)
	for p := range int32(3) {
		c.Produce(testkit.Records(testkit.Table, p, 0, 5)...)
	}
	dir := t.TempDir()
	blocked := filepath.Join(dir, testkit.Table, "1")
	require.NoError(t, os.MkdirAll(filepath.Dir(blocked), 0o755))
	require.NoError(t, os.WriteFile(blocked, nil, 0o600)) // where the folder would be
	s, copies := c.standbyOf(dir)
	testkit.WaitFor(t, "the other copies", func() bool {
		return slices.Equal(s.states(), []string{standbyFollowing, standbyFailing, standbyFollowing})
	})
	require.NoError(t, os.Remove(blocked))
	testkit.WaitFor(t, "the copy that failed", func() bool { return s.states()[1] == standbyFollowing })
	s.close()
	have, _ := closed(t, copies, 1)
	require.Len(t, have, 5)
}

// TestStandbyOfACorruptedStore: it is made again from Kafka.
func TestStandbyOfACorruptedStore(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.Topic(testkit.Table, 1)
	c.Produce(testkit.Records(testkit.Table, 0, 0, 5)...)
	s, copies := c.standbyOf(t.TempDir())
	testkit.WaitFor(t, "the copy", func() bool { return s.states()[0] == standbyFollowing })
	copies.Get(testkit.Table, 0).Distrust(errors.New("for a test"))
	c.Produce(testkit.Records(testkit.Table, 0, 5, 5)...)
	testkit.WaitFor(t, "the copy made again", func() bool {
		offset, _ := copies.Get(testkit.Table, 0).Offset()
		return offset == 9
	})
	s.close()
	have, _ := closed(t, copies, 0)
	require.Len(t, have, 10)
}

// TestStandbyOfAnotherLog: a folder that a copy of another cluster's log is in, and a topic
// that is made anew while it is followed, are begun again.
func TestStandbyOfAnotherLog(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.Topic(testkit.Table, 1)
	c.Produce(testkit.Records(testkit.Table, 0, 0, 2)...)
	dir := t.TempDir()
	left := newStore(t, dir, kafka.LogID{ClusterID: "another", TopicID: c.TopicInfo(testkit.Table).TopicID})
	require.NoError(t, left.Open())
	put(t, left, 0, "", "of-another-cluster")
	require.NoError(t, left.Close())
	s, copies := c.standbyOf(dir)
	testkit.WaitFor(t, "the copy", func() bool { return s.states()[0] == standbyFollowing })
	first := copies.Get(testkit.Table, 0).LogID()
	require.NoError(t, c.DeleteTopic(testkit.Table))
	c.Topic(testkit.Table, 1)
	c.Produce(testkit.Records(testkit.Table, 0, 10, 5)...) // longer than what was followed
	testkit.WaitFor(t, "the new log", func() bool {
		for _, f := range s.all() {
			if state, behind := f.status(); state != standbyFollowing || behind != 0 {
				return false
			}
		}
		offset, _ := copies.Get(testkit.Table, 0).Offset()
		return offset == 4
	})
	s.close()
	have, _ := closed(t, copies, 0)
	require.Len(t, have, 5)
	require.Equal(t, "key-000010=value-10", have[0], "nothing of other logs: %v", have)
	require.NotEqual(t, first, copies.Get(testkit.Table, 0).LogID())
}

// TestStandbyOfALogThatIsMadeAnewMeanwhile: between the look at what the topic is and the first
// fetch of it.
func TestStandbyOfALogThatIsMadeAnewMeanwhile(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.Topic(testkit.Table, 1)
	c.Produce(testkit.Records(testkit.Table, 0, 0, 2)...)
	dir := t.TempDir()
	s, _ := c.standbyOf(dir)
	testkit.WaitFor(t, "the copy", func() bool { return s.states()[0] == standbyFollowing })
	s.close()

	s, copies := c.standbyOf(dir, fullOfTurns)
	testkit.WaitFor(t, "the copy to wait for a turn", func() bool { return len(testkit.Goroutines(t, "kudos/stream.(*follower).read+")) == 1 })
	require.NoError(t, c.DeleteTopic(testkit.Table))
	c.Topic(testkit.Table, 1)
	c.Produce(testkit.Records(testkit.Table, 0, 10, 5)...)
	for range standbyAtATime {
		<-s.turns
	}
	testkit.WaitFor(t, "the new log", func() bool { offset, _ := copies.Get(testkit.Table, 0).Offset(); return offset == 4 })
	s.close()
	have, _ := closed(t, copies, 0)
	require.Len(t, have, 5)
	require.Equal(t, "key-000010=value-10", have[0], "nothing of the log before: %v", have)
}

// fullOfTurns has all copies wait for theirs.
func fullOfTurns(s *standby) {
	for range standbyAtATime {
		s.turns <- struct{}{}
	}
}

// TestStandbyTakesTurns: however many copies there are, few read at a time.
func TestStandbyTakesTurns(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.Topic(testkit.Table, standbyAtATime+2)
	s, _ := c.standbyOf(t.TempDir(), fullOfTurns)
	counts := c.CountRequests()
	testkit.WaitFor(t, "all copies to wait for a turn", func() bool { return len(testkit.Goroutines(t, "kudos/stream.(*follower).read+")) == standbyAtATime+2 })
	require.Zero(t, counts.Of(kmsg.Fetch))
	<-s.turns
	testkit.WaitFor(t, "all copies with one turn", func() bool {
		return !slices.ContainsFunc(s.states(), func(state string) bool { return state != standbyFollowing })
	})
	for range standbyAtATime - 1 {
		<-s.turns
	}
}

// TestStandbyReleaseIsBounded: a copy whose disk does not answer holds up neither a further
// rebalance nor, for longer than is said, its own partition; its folder is not used meanwhile.
func TestStandbyReleaseIsBounded(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.Topic(testkit.Table, 1)
	s, copies := c.standbyOf(t.TempDir())
	testkit.WaitFor(t, "the copy", func() bool { return s.states()[0] == standbyFollowing })
	owned := map[int32]*Partition{0: nil}
	store := copies.Get(testkit.Table, 0)
	require.NoError(t, s.release(testkit.Context(t), owned))
	require.NoError(t, store.Open(), "the folder is free")
	require.NoError(t, store.Close())

	hangs := newFollower(s, 0)
	s.mu.copies[0] = hangs
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, s.release(ended, owned), context.Canceled)
	require.Error(t, hangs.ctx.Err(), "it is told to end")
	s.opts.ShutdownTimeout = 10 * time.Millisecond
	require.ErrorContains(t, s.release(testkit.Context(t), owned), "the standby copy of "+testkit.Table+"/0 was not closed within 10ms")

	// The partition is given up again: a new copy waits for the one that hangs.
	s.follow(nil)
	require.NotSame(t, hangs, s.all()[0])
	testkit.WaitFor(t, "the new copy to wait", func() bool { return len(testkit.Goroutines(t, "kudos/stream.(*follower).run+")) == 1 })
	require.Same(t, store, copies.Get(testkit.Table, 0), "no store is made beside one that is being closed")
	close(hangs.done)
	testkit.WaitFor(t, "the new copy", func() bool { return s.states()[0] == standbyFollowing })
	s.opts.ShutdownTimeout = testkit.Patience
}
