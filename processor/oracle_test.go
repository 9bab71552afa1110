package processor_test

import (
	"fmt"
	"maps"
	"reflect"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/integration/oracle"
	"kudos/processor/fold"
	"kudos/processor/fold/table"
	"kudos/schema"
)

// newOracle starts to check the results against everything in the current topics: topics before were others.
func (s *system) newOracle() {
	var err error
	s.oracle, err = oracle.New(s.Options.Brokers)
	require.NoError(s.t, err)
	s.t.Cleanup(s.oracle.Close)
}

// waitDrained waits until all of likes is in MySQL.
func (s *system) waitDrained() {
	s.t.Helper()
	s.waitFor("all events to be counted", func() (bool, any) {
		left, err := s.oracle.Left(s.t.Context(), s.db.DB)
		require.NoError(s.t, err)
		return left == "", left
	})
}

// waitFolded waits until all of likes is in like-updates, counted or not. An offset of a marker needs no folding.
func (s *system) waitFolded() {
	s.t.Helper()
	s.waitFor("all events to be folded", func() (bool, any) {
		last, err := s.oracle.LastRecords(s.t.Context(), schema.TopicLikes)
		require.NoError(s.t, err)
		for p, rec := range last {
			if at := s.progress(p).NextOffset; at <= rec.Offset {
				return false, []int64{int64(p), at, rec.Offset}
			}
		}
		return true, nil
	})
}

func (s *system) progress(p int32) *schema.Progress {
	s.t.Helper()
	last, err := table.LastProgress(s.t.Context(), s.Client, p)
	require.NoError(s.t, err)
	require.NotNil(s.t, last, "progress of partition %d", p)
	return last
}

// waitExact waits until all of likes is in MySQL and these processors are ready, and checks it.
func (s *system) waitExact(ready ...*instance) {
	s.t.Helper()
	s.waitDrained()
	for _, p := range ready {
		p.waitReady()
	}
	s.checkExact()
}

// checkExact lets the oracle compare all results with a naive fold of the log: MySQL, like-updates, the state table,
// dead letters and forwards. The committed offsets must be those of the progress records.
func (s *system) checkExact() {
	s.t.Helper()
	v, err := s.oracle.Check(s.t.Context(), s.db.DB)
	require.NoError(s.t, err)
	require.Zero(s.t, v.Differences.Total, v.Differences.String())
	committed, err := s.adm.FetchOffsets(s.t.Context(), schema.GroupFold)
	require.NoError(s.t, err)
	for p := range int32(partitions) {
		content := s.checkTable(p)
		if o, ok := committed.Lookup(schema.TopicLikes, p); ok {
			require.Equal(s.t, o.At, content.progress.NextOffset, "committed offset and progress of partition %d", p)
		}
	}
}

type tableContent struct {
	pairs    map[fold.PairKey]schema.Pair
	counts   map[uint64]schema.Counts
	progress schema.Progress
}

// checkTable checks a partition's updates against its table: seq has no gap, and each post's last count is the table's.
func (s *system) checkTable(p int32) *tableContent {
	s.t.Helper()
	content := &tableContent{pairs: map[fold.PairKey]schema.Pair{}, counts: map[uint64]schema.Counts{}}
	latest := s.latest(schema.TopicState, p)
	notPairs := maps.Clone(latest)
	maps.DeleteFunc(notPairs, func(key string, _ []byte) bool {
		return len(key) == schema.PairKeySize || len(key) == schema.VoidKeySize
	})
	s.waitFor(fmt.Sprintf("like-counts/%d to have the counts of the state table", p), func() (bool, any) {
		counts := s.latest(schema.TopicCounts, p)
		return reflect.DeepEqual(notPairs, counts), fmt.Sprintf("%q, want %q", counts, notPairs)
	})
	for key, value := range latest {
		if post, user, ok := schema.ParsePairKey([]byte(key)); ok && value != nil {
			var pair schema.Pair
			require.NoError(s.t, schema.DecodePair(value, &pair))
			content.pairs[fold.PairKey{PostID: post, UserID: user}] = pair
		} else if post, ok := schema.ParseCountsKey([]byte(key)); ok && value != nil {
			c, err := schema.DecodeCounts(value)
			require.NoError(s.t, err)
			content.counts[post] = c
		} else if key == schema.StateProgressKey {
			require.NoError(s.t, schema.DecodeProgress(value, &content.progress))
		}
	}
	counts, next := s.sumUpdates(p)
	require.Equal(s.t, next, content.progress.NextSeq, "next seq of partition %d", p)
	for post, c := range counts {
		require.Equal(s.t, c, content.counts[post], "counts of post %d in partition %d", post, p)
	}
	return content
}

// latest returns the last value of each key that has one.
func (s *system) latest(topic string, p int32) map[string][]byte {
	latest := map[string][]byte{}
	for _, rec := range s.Records(topic, p) {
		latest[string(rec.Key)] = rec.Value
	}
	maps.DeleteFunc(latest, func(_ string, value []byte) bool { return value == nil })
	return latest
}

// sumUpdates sums the deltas of a partition of like-updates. It checks that seq has no gap, that each batch ends with a
// progress record, and that the counts in each update equal the sums of the deltas so far.
func (s *system) sumUpdates(p int32) (sums map[uint64]schema.Counts, next uint64) {
	s.t.Helper()
	sums = map[uint64]schema.Counts{}
	covered, whole := int64(0), true
	s.updates(p, func(rec *kgo.Record, u schema.Update) {
		require.Equal(s.t, next, u.Seq, "seq in like-updates/%d at offset %d", p, rec.Offset)
		next++
		if whole = string(rec.Key) == schema.ProgressKey; !whole {
			post, err := schema.ParsePostKey(rec.Key)
			require.NoError(s.t, err)
			require.NotEmpty(s.t, u.Deltas)
			sums[post] = sums[post].Plus(schema.Sum(u.Deltas))
			require.Equal(s.t, sums[post], u.Counts, "count of post %d after like-updates/%d offset %d", post, p,
				rec.Offset)
			return
		}
		require.Empty(s.t, u.Deltas, "progress record in like-updates/%d at offset %d", p, rec.Offset)
		if u.Layouts() == 0 { // a repartition moves pairs, and folds nothing
			require.Greater(s.t, u.SourceOffset, covered, "batches of like-updates/%d are in order", p)
		}
		covered = u.SourceOffset
	})
	require.True(s.t, whole, "like-updates/%d ends with a progress record", p)
	return sums, next
}

func (s *system) updates(p int32, each func(rec *kgo.Record, u schema.Update)) {
	s.t.Helper()
	for _, rec := range s.Records(schema.TopicUpdates, p) {
		var u schema.Update
		require.NoError(s.t, schema.DecodeUpdate(rec.Value, &u))
		each(rec, u)
	}
}

// add adds to a sum and removes zeros: a row of zero and no row mean the same.
func add[K comparable](sums map[K]schema.Counts, key K, c schema.Counts) {
	sums[key] = sums[key].Plus(c)
	if sums[key] == (schema.Counts{}) {
		delete(sums, key)
	}
}

// positions returns MySQL's positions, by partition; -1 where there is none.
func (s *system) positions() []int64 {
	positions := []int64{-1, -1, -1, -1}
	have, err := oracle.Positions(s.t.Context(), s.db.DB)
	require.NoError(s.t, err)
	for p, at := range have {
		positions[p] = at.Offset
	}
	return positions
}

// counts returns like_count. A row of zero and no row mean the same.
func (s *system) counts() map[uint64]schema.Counts {
	var rows []struct {
		Post uint64
		schema.Counts
	}
	query := "SELECT post_id AS post, `count` AS likes, dislike_count AS dislikes FROM like_count"
	require.NoError(s.t, s.db.Select(&rows, query))
	counts := map[uint64]schema.Counts{}
	for _, r := range rows {
		add(counts, r.Post, r.Counts)
	}
	return counts
}

type hourKey struct {
	Hour      string // as MySQL writes it
	Region    string
	Partition int32
}

// hourly returns like_hourly, without rows of zero.
func (s *system) hourly() map[hourKey]schema.Counts {
	var rows []struct {
		hourKey
		schema.Counts
	}
	require.NoError(s.t, s.db.Select(&rows, "SELECT DATE_FORMAT(hour, '%Y-%m-%d %H:%i:%s') AS hour, region, "+
		"partition_id AS `partition`, likes, dislikes FROM like_hourly"))
	hours := map[hourKey]schema.Counts{}
	for _, r := range rows {
		add(hours, r.hourKey, r.Counts)
	}
	return hours
}
