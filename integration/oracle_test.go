package integration

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"google.golang.org/protobuf/proto"

	"kudos/integration/oracle"
	"kudos/schema/kudosv1"
)

// The oracle: what the counts must be, worked out from the log of events by code of
// its own: the generated Protobuf code instead of the program's, plain maps, one event
// after the other.

// count is likes and dislikes.
type count struct{ likes, dislikes int64 }

// cell is where a reaction is counted.
type cell struct {
	post   uint64
	region string
	minute int64
}

type expectation struct {
	posts map[uint64]count
	cells map[cell]count
}

type naivePair struct {
	action      kudosv1.Action
	timeMs      int64
	offset      int64
	sinceMs     int64
	sinceRegion string
}

// expect folds all events of the likes topic. It expects well-formed ones, in their
// right partitions.
func (s *system) expect() expectation {
	s.t.Helper()
	type key struct{ post, user uint64 }
	pairs := map[key]*naivePair{}
	s.readAll("likes", func(rec *kgo.Record) {
		var e kudosv1.LikeEvent
		require.NoError(s.t, proto.Unmarshal(rec.Value, &e))
		var post uint64
		_, err := fmt.Sscan(string(rec.Key), &post)
		require.NoError(s.t, err)
		k := key{post, e.UserId}
		p := pairs[k]
		if p == nil {
			pairs[k] = &naivePair{e.Action, e.TimeMs, rec.Offset, e.TimeMs, string(e.Region)}
			return
		}
		if c := cmp.Or(cmp.Compare(e.TimeMs, p.timeMs), cmp.Compare(rec.Offset, p.offset)); c <= 0 {
			return
		}
		if e.Action != p.action {
			p.action, p.sinceMs, p.sinceRegion = e.Action, e.TimeMs, string(e.Region)
		}
		p.timeMs, p.offset = e.TimeMs, rec.Offset
	})
	x := expectation{posts: map[uint64]count{}, cells: map[cell]count{}}
	for k, p := range pairs {
		var one count
		switch p.action {
		case kudosv1.Action_LIKE:
			one.likes = 1
		case kudosv1.Action_DISLIKE:
			one.dislikes = 1
		default:
			continue
		}
		region := cmp.Or(p.sinceRegion, "ZZ")
		add(x.posts, k.post, one)
		add(x.cells, cell{k.post, region, p.sinceMs / 60_000}, one)
	}
	return x
}

func add[K comparable](m map[K]count, k K, c count) {
	have := m[k]
	have.likes, have.dislikes = have.likes+c.likes, have.dislikes+c.dislikes
	if have == (count{}) {
		delete(m, k)
		return
	}
	m[k] = have
}

// readAll reads all committed records of a topic, from the first to the end as of now.
func (s *system) readAll(topic string, each func(*kgo.Record)) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 3*time.Minute)
	defer cancel()
	cl := s.ownClient(
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords())
	defer cl.Close()
	ends, err := kadm.NewClient(cl).ListCommittedOffsets(ctx, topic)
	require.NoError(s.t, err)
	open := map[int32]int64{}
	ends.Each(func(o kadm.ListedOffset) {
		require.NoError(s.t, o.Err)
		if o.Offset > 0 {
			open[o.Partition] = o.Offset
		}
	})
	for len(open) > 0 {
		fetches := cl.PollFetches(ctx)
		require.NoError(s.t, fetches.Err(), "reading %s; still to come: %v", topic, open)
		fetches.EachRecord(func(rec *kgo.Record) {
			if !rec.Attrs.IsControl() {
				each(rec)
			}
			if end, ok := open[rec.Partition]; ok && rec.Offset+1 >= end {
				delete(open, rec.Partition)
			}
		})
	}
}

// mysqlCounts reads like_count; posts without any reaction are left out.
func (s *system) mysqlCounts() map[uint64]count {
	s.t.Helper()
	rows, err := s.db.QueryContext(s.t.Context(), "SELECT post_id, count, dislike_count FROM like_count")
	require.NoError(s.t, err)
	defer rows.Close()
	counts := map[uint64]count{}
	for rows.Next() {
		var post uint64
		var c count
		require.NoError(s.t, rows.Scan(&post, &c.likes, &c.dislikes))
		if c != (count{}) {
			counts[post] = c
		}
	}
	require.NoError(s.t, rows.Err())
	return counts
}

// published sums like-updates up, and checks that no seq is missing or repeated.
func (s *system) published() map[cell]count {
	s.t.Helper()
	cells := map[cell]count{}
	next := map[int32]uint64{}
	s.readAll("like-updates", func(rec *kgo.Record) {
		var u kudosv1.LikeUpdate
		require.NoError(s.t, proto.Unmarshal(rec.Value, &u))
		require.Equal(s.t, next[rec.Partition], u.Seq, "seq at offset %d of like-updates/%d", rec.Offset, rec.Partition)
		next[rec.Partition]++
		if string(rec.Key) == "_" {
			return
		}
		var post uint64
		_, err := fmt.Sscan(string(rec.Key), &post)
		require.NoError(s.t, err)
		for _, d := range u.Deltas {
			add(cells, cell{post, string(d.Region), d.Minute}, count{d.Likes, d.Dislikes})
		}
	})
	return cells
}

// difference says how two sets of counts differ, a few lines of it.
func difference[K comparable](want, have map[K]count) string {
	var lines []string
	keys := maps.Clone(want)
	maps.Copy(keys, have)
	for k := range keys {
		if want[k] != have[k] {
			lines = append(lines, fmt.Sprintf("%v: want %v, have %v", k, want[k], have[k]))
		}
	}
	slices.Sort(lines)
	text := fmt.Sprintf("%d differences", len(lines))
	return strings.Join(append([]string{text}, lines[:min(len(lines), 10)]...), "\n  ")
}

func requireSame[K comparable](t testing.TB, what string, want, have map[K]count) {
	t.Helper()
	if !maps.Equal(want, have) {
		t.Fatalf("%s: %s", what, difference(want, have))
	}
}

// requireInvariants has the oracle of the chaos harness look at everything: MySQL,
// like-updates, dead letters and the state table.
func (s *system) requireInvariants() {
	s.t.Helper()
	o, err := oracle.New(s.brokers)
	require.NoError(s.t, err)
	defer o.Close()
	ctx, cancel := context.WithTimeout(s.t.Context(), 5*time.Minute)
	defer cancel()
	v, err := o.Check(ctx, s.db.DB)
	require.NoError(s.t, err)
	require.Zero(s.t, v.Differences.Total, v.Differences.String())
}

// requireExact checks everything that a log of events must have led to.
func (s *system) requireExact() {
	s.t.Helper()
	x := s.expect()
	requireSame(s.t, "like_count against the fold of the log", x.posts, s.mysqlCounts())
	requireSame(s.t, "deltas of like-updates by post, region and minute", x.cells, s.published())
}
