package processor_test

import (
	"context"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/schema"
)

// tape is what readers of committed data have seen of all topics so far.
type tape struct {
	s       *system
	cl      *kgo.Client
	records map[string][][]*kgo.Record // by topic and partition; control records left out
	next    map[string][]int64         // positions, control records included
}

// tape begins to read at the start of the topics.
func (s *system) tape() *tape {
	t := &tape{s: s, records: map[string][][]*kgo.Record{}, next: map[string][]int64{}}
	from := map[string]map[int32]kgo.Offset{}
	for _, topic := range schema.Topics(partitions, 1) {
		from[topic.Name] = map[int32]kgo.Offset{}
		for p := range int32(partitions) {
			from[topic.Name][p] = kgo.NewOffset().AtStart()
		}
		t.records[topic.Name] = make([][]*kgo.Record, partitions)
		t.next[topic.Name] = make([]int64, partitions)
	}
	t.cl = s.client(kgo.ConsumePartitions(from), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(),
		kgo.FetchMaxWait(20*time.Millisecond))
	return t
}

// read goes on to the present end of a topic.
func (t *tape) read(topic string) [][]*kgo.Record {
	ctx, cancel := context.WithTimeout(t.s.t.Context(), patience)
	defer cancel()
	ends, err := t.s.adm.ListCommittedOffsets(ctx, topic)
	require.NoError(t.s.t, err)
	behind := func() bool {
		for p := range int32(partitions) {
			if o, ok := ends.Lookup(topic, p); ok && t.next[topic][p] < o.Offset {
				return true
			}
		}
		return false
	}
	for behind() {
		fetches := t.cl.PollFetches(ctx)
		require.NoError(t.s.t, fetches.Err0(), "reading %s to its end", topic)
		fetches.EachError(func(topic string, p int32, err error) { require.NoError(t.s.t, err, "reading %s/%d", topic, p) })
		fetches.EachRecord(func(rec *kgo.Record) {
			t.next[rec.Topic][rec.Partition] = rec.Offset + 1
			if !rec.Attrs.IsControl() {
				t.records[rec.Topic][rec.Partition] = append(t.records[rec.Topic][rec.Partition], rec)
			}
		})
	}
	return t.records[topic]
}

// progress returns the last progress record of each partition.
func (t *tape) progress() []schema.Progress {
	progress := make([]schema.Progress, partitions)
	for p, records := range t.read(schema.TopicState) {
		for _, rec := range records {
			if string(rec.Key) == schema.StateProgressKey {
				require.NoError(t.s.t, schema.DecodeProgress(rec.Value, &progress[p]))
			}
		}
	}
	return progress
}

// drained tells whether all that is in likes has come to MySQL. The order of reading
// matters: what a transaction forwards is there when its progress is.
func (t *tape) drained() (ok bool, now any) {
	progress := t.progress()
	updates := t.read(schema.TopicUpdates)
	applied := t.s.positions()
	ok = true
	type at struct{ folded, likes, applied, updates int64 }
	state := make([]at, partitions)
	for p, records := range t.read(schema.TopicLikes) {
		state[p] = at{progress[p].NextOffset, end(records), applied[p], end(updates[p])}
		ok = ok && state[p].folded >= state[p].likes && state[p].applied >= state[p].updates
	}
	return ok, state
}

// end is the offset behind the last record.
func end(records []*kgo.Record) int64 {
	if len(records) == 0 {
		return 0
	}
	return records[len(records)-1].Offset + 1
}

// waitDrained waits until all that is in likes has come to MySQL.
func (t *tape) waitDrained() {
	t.s.t.Helper()
	t.s.waitFor("all events to be counted (offsets folded of likes, applied of like-updates)", t.drained)
}

// positions are MySQL's, by partition; -1 where there is none.
func (s *system) positions() []int64 {
	var rows []struct {
		Partition  int32 `db:"partition_id"`
		NextOffset int64 `db:"next_offset"`
	}
	require.NoError(s.t, s.db.Select(&rows, "SELECT partition_id, next_offset FROM applied_offset"))
	positions := []int64{-1, -1, -1, -1}
	for _, r := range rows {
		positions[r.Partition] = r.NextOffset
	}
	return positions
}

// counts is like_count. A row of zero and none mean the same.
func (s *system) counts() map[uint64]schema.Counts {
	var rows []struct {
		PostID   uint64 `db:"post_id"`
		Likes    int64  `db:"count"`
		Dislikes int64  `db:"dislike_count"`
	}
	require.NoError(s.t, s.db.Select(&rows, "SELECT post_id, `count`, dislike_count FROM like_count"))
	counts := map[uint64]schema.Counts{}
	for _, r := range rows {
		add(counts, r.PostID, schema.Counts{Likes: r.Likes, Dislikes: r.Dislikes})
	}
	return counts
}

// hourKey is the key of like_hourly.
type hourKey struct {
	Hour      string // as MySQL writes it
	Region    string
	Partition int32
}

// hourly is like_hourly, without rows of zero.
func (s *system) hourly() map[hourKey]schema.Counts {
	var rows []struct {
		Hour      string `db:"h"`
		Region    string `db:"region"`
		Partition int32  `db:"partition_id"`
		Likes     int64  `db:"likes"`
		Dislikes  int64  `db:"dislikes"`
	}
	require.NoError(s.t, s.db.Select(&rows, "SELECT DATE_FORMAT(hour, '%Y-%m-%d %H:%i:%s') AS h, region, partition_id, likes, dislikes FROM like_hourly"))
	hours := map[hourKey]schema.Counts{}
	for _, r := range rows {
		add(hours, hourKey{r.Hour, r.Region, r.Partition}, schema.Counts{Likes: r.Likes, Dislikes: r.Dislikes})
	}
	return hours
}
