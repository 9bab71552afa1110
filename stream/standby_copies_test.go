package stream

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/dev/testkit"
	"kudos/stream/store"
)

// standbyOf starts replicas of all partitions of the table, as a member that owns none does.
func (c *cluster) standbyOf(dir string, change ...func(*standby)) (*standby, *store.Set) {
	stores := store.NewSet(dir, 8<<20, testkit.Log())
	c.t.Cleanup(stores.Close)
	copies := stores.Standby()
	c.t.Cleanup(copies.Close)
	s := newStandby(context.Background(), &ProcessorOptions{Group: testGroup, Standby: copies, Kafka: c.kafka,
		ShutdownTimeout: testkit.Patience}, testkit.Log())
	c.t.Cleanup(s.close)
	for _, change := range change {
		change(s)
	}
	s.follow(nil)
	return s, copies
}

func (s *standby) states() (states []string) {
	statuses, _ := s.Status()
	for _, status := range statuses {
		states = append(states, standbyStates[status.State])
	}
	return states
}

// ends reports whether the replica of a partition exists and its last offset is this one.
func ends(copies *store.Set, partition int32, last int64) bool {
	s := copies.Get(testkit.Table, partition)
	if s == nil {
		return false
	}
	offset, ok := s.Offset()
	return ok && offset == last
}

func (s *standby) follows() bool { return slices.Equal(s.states(), []string{"following"}) }

// content returns what a store has; nobody else may be writing.
func content(t testing.TB, s *store.Store) (have []string) {
	require.NoError(t, store.Scan(s, nil, nil, func(key, value []byte) (bool, error) {
		have = append(have, string(key)+"="+string(value))
		return true, nil
	}))
	return have
}

// closed returns the content and the offset of the store of a partition, which nobody may be using.
func closed(t testing.TB, stores *store.Set, partition int32) (have []string, offset int64) {
	st := stores.Get(testkit.Table, partition)
	require.NoError(t, st.Open())
	defer func() { require.NoError(t, st.Close()) }()
	offset, ok := st.Offset()
	require.True(t, ok)
	return content(t, st), offset
}

// A replica has committed records only, and its offset covers nothing else.
func TestStandbyCopiesWhatIsCommitted(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.Topic(testkit.Table, 1)
	c.Transact("a", testkit.Commit(), testkit.Record(testkit.Table, 0, "a", "1"))
	c.Transact("b", testkit.Abort(), testkit.Record(testkit.Table, 0, "b", "1"))
	s, copies := c.standbyOf(t.TempDir())
	testkit.WaitFor(t, "the committed records", func() bool { return s.follows() && ends(copies, 0, 3) })
	c.Transact("c", nil, testkit.Record(testkit.Table, 0, "a", "2"), testkit.Record(testkit.Table, 0, "c", "2"))
	c.Produce(testkit.Record(testkit.Table, 0, "d", "2")) // after the open transaction
	counts := c.CountRequests()
	testkit.WaitFor(t, "two more fetches", func() bool { return counts.Of(kmsg.Fetch) >= 2 })
	s.close()
	have, offset := closed(t, copies, 0)
	require.EqualValues(t, 3, offset, "the last stable offset")
	require.Equal(t, []string{"a=1"}, have)
}

// A replica that cannot be written does not affect the others, and is followed once it can be written.
func TestStandbyThatFails(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.Fill(testkit.Table, 3, 5)
	dir := t.TempDir()
	blocked := filepath.Join(dir, testkit.Table, "1")
	require.NoError(t, os.MkdirAll(filepath.Dir(blocked), 0o755))
	require.NoError(t, os.WriteFile(blocked, nil, 0o600)) // where the directory would be
	s, copies := c.standbyOf(dir)
	testkit.WaitFor(t, "the other replicas", func() bool {
		return slices.Equal(s.states(), []string{"following", "failing", "following"})
	})
	require.NoError(t, os.Remove(blocked))
	testkit.WaitFor(t, "the replica that failed", func() bool {
		return slices.Equal(s.states(), []string{"following", "following", "following"})
	})
	s.close()
	have, _ := closed(t, copies, 1)
	require.Len(t, have, 5)
}

// A corrupted replica is rebuilt from Kafka.
func TestStandbyOfACorruptedStore(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.Fill(testkit.Table, 1, 5)
	s, copies := c.standbyOf(t.TempDir())
	testkit.WaitFor(t, "the replica to follow", s.follows)
	copies.Get(testkit.Table, 0).Distrust(errors.New("for a test"))
	c.Produce(testkit.Records(testkit.Table, 0, 5, 5)...)
	testkit.WaitFor(t, "the replica to be rebuilt", func() bool { return ends(copies, 0, 9) })
	s.close()
	have, _ := closed(t, copies, 0)
	require.Len(t, have, 10)
}

// A directory with a replica of another cluster's log, and a topic recreated while followed: the replica is rebuilt.
func TestStandbyOfAnotherLog(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.Fill(testkit.Table, 1, 2)
	dir := t.TempDir()
	another := newCluster(t)
	another.Topic(testkit.Table, 1)
	another.Produce(testkit.Record(testkit.Table, 0, "of-another-cluster", ""))
	left, err := another.catchUp(dir)
	require.NoError(t, err)
	require.NoError(t, left.Close())
	s, copies := c.standbyOf(dir)
	testkit.WaitFor(t, "the replica to follow", s.follows)
	first := copies.Get(testkit.Table, 0).LogID()
	c.recreate()
	c.Produce(testkit.Records(testkit.Table, 0, 10, 5)...) // longer than what was followed
	testkit.WaitFor(t, "the new log", func() bool { return ends(copies, 0, 4) && s.follows() })
	s.close()
	have, _ := closed(t, copies, 0)
	require.Len(t, have, 5)
	require.Equal(t, "key-000010=value-10", have[0], "no records of other logs: %v", have)
	require.NotEqual(t, first, copies.Get(testkit.Table, 0).LogID())
}

// The topic is recreated between the lookup of its id and the first fetch.
func TestStandbyOfATopicRecreatedMeanwhile(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.Fill(testkit.Table, 1, 2)
	dir := t.TempDir()
	s, _ := c.standbyOf(dir)
	testkit.WaitFor(t, "the replica to follow", s.follows)
	s.close()

	s, copies := c.standbyOf(dir, fullOfTurns)
	testkit.WaitFor(t, "the replica to wait for a turn", func() bool {
		return len(testkit.Goroutines(t, "kudos/stream.(*standbyCopy).takeTurn")) == 1
	})
	c.recreate()
	c.Produce(testkit.Records(testkit.Table, 0, 10, 5)...)
	for range standbyParallel {
		<-s.turns
	}
	testkit.WaitFor(t, "the new log", func() bool { return ends(copies, 0, 4) })
	s.close()
	have, _ := closed(t, copies, 0)
	require.Len(t, have, 5)
	require.Equal(t, "key-000010=value-10", have[0], "no records of the previous log: %v", have)
}

func fullOfTurns(s *standby) {
	for range standbyParallel {
		s.turns <- struct{}{}
	}
}

func TestStandbyPartitionsTakeTurns(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.Topic(testkit.Table, standbyParallel+2)
	s, _ := c.standbyOf(t.TempDir(), fullOfTurns)
	counts := c.CountRequests()
	testkit.WaitFor(t, "all replicas to wait for a turn", func() bool {
		return len(testkit.Goroutines(t, "kudos/stream.(*standbyCopy).takeTurn")) == standbyParallel+2
	})
	require.Zero(t, counts.Of(kmsg.Fetch))
	<-s.turns
	testkit.WaitFor(t, "all replicas to follow with one turn", func() bool {
		return !slices.ContainsFunc(s.states(), func(state string) bool { return state != "following" })
	})
	for range standbyParallel - 1 {
		<-s.turns
	}
}

// A replica with a hung disk delays no other rebalance, nor its partition beyond the shutdown timeout; nobody else uses
// its directory.
func TestStandbyReleaseIsBounded(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.Topic(testkit.Table, 1)
	s, copies := c.standbyOf(t.TempDir())
	testkit.WaitFor(t, "the replica to follow", s.follows)
	store := copies.Get(testkit.Table, 0)
	require.NoError(t, s.release(testkit.Context(t), 0))
	require.NoError(t, store.Open(), "the directory is free")
	require.NoError(t, store.Close())

	hanging, cancel := context.WithCancel(t.Context())
	hangs := &started{cancel: cancel, ended: make(chan struct{})}
	s.mu.Lock()
	s.mu.running[0] = hangs
	s.mu.Unlock()
	require.ErrorIs(t, s.release(testkit.Canceled(), 0), context.Canceled)
	require.Error(t, hanging.Err(), "its context is canceled")
	s.opts.ShutdownTimeout = 10 * time.Millisecond
	require.ErrorContains(t, s.release(testkit.Context(t), 0),
		"the local copy of "+testkit.Table+"/0 was not closed within 10ms")

	// The partition is released again: a new replica waits for the one that hangs.
	s.follow(nil)
	testkit.WaitFor(t, "the new replica to wait", func() bool { return slices.Equal(s.states(), []string{"opening"}) })
	require.Same(t, store, copies.Get(testkit.Table, 0), "no store is created while the old one is being closed")
	close(hangs.ended)
	testkit.WaitFor(t, "the new replica to follow", s.follows)
	require.NotSame(t, store, copies.Get(testkit.Table, 0))
	s.opts.ShutdownTimeout = testkit.Patience
}
