package processor_test

import (
	"maps"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/schema"
)

// oracle is what a system must come to, found in the plainest way: every event of the
// log in order against a map.
type oracle struct {
	Pairs   map[pairKey]schema.Pair
	Counts  map[uint64]schema.Counts
	Minutes map[minuteKey]schema.Counts // sums of deltas
	Hours   map[hourKey]schema.Counts
	// Forwarded and Dead count the records of the log that are no events of their
	// partition.
	Forwarded, Dead int
}

type pairKey struct{ Post, User uint64 }

type minuteKey struct {
	Post   uint64
	Minute int64
	Region schema.Region
}

// naive folds a whole log.
func naive(log [][]*kgo.Record) *oracle {
	o := &oracle{Pairs: map[pairKey]schema.Pair{}, Counts: map[uint64]schema.Counts{}, Minutes: map[minuteKey]schema.Counts{}, Hours: map[hourKey]schema.Counts{}}
	for p, records := range log {
		for _, rec := range records {
			o.judge(int32(p), rec)
		}
	}
	for key, pair := range o.Pairs {
		one := schema.Counts{}
		switch pair.Reaction {
		case schema.Liked:
			one.Likes = 1
		case schema.Disliked:
			one.Dislikes = 1
		default:
			continue
		}
		hour := time.UnixMilli(pair.SinceMs).UTC().Truncate(time.Hour).Format("2006-01-02 15:04:05")
		add(o.Counts, key.Post, one)
		add(o.Minutes, minuteKey{key.Post, pair.SinceMs / 60_000, pair.Region}, one)
		add(o.Hours, hourKey{hour, pair.Region.String(), schema.PartitionFor(key.Post, partitions)}, one)
	}
	return o
}

// add adds to a sum, and leaves no zero behind: a row of zero and none mean the same.
func add[K comparable](sums map[K]schema.Counts, key K, c schema.Counts) {
	sum := sums[key]
	sum.Likes += c.Likes
	sum.Dislikes += c.Dislikes
	sums[key] = sum
	if sum == (schema.Counts{}) {
		delete(sums, key)
	}
}

func (o *oracle) judge(p int32, rec *kgo.Record) {
	var e schema.Event
	if schema.DecodeEvent(rec.Key, rec.Value, &e) != nil {
		o.Dead++
		return
	}
	if schema.PartitionFor(e.PostID, partitions) != p {
		if forwardedFrom(rec) == "" {
			o.Forwarded++
		} else {
			o.Dead++
		}
		return
	}
	if e.TimeMs == 0 {
		e.TimeMs = rec.Timestamp.UnixMilli()
	}
	e.TimeMs = min(e.TimeMs, rec.Timestamp.UnixMilli()+60_000)
	key := pairKey{e.PostID, e.UserID}
	old, known := o.Pairs[key]
	if known && (e.TimeMs < old.TimeMs || e.TimeMs == old.TimeMs && rec.Offset <= old.Offset) {
		return
	}
	reaction := map[schema.Action]schema.Reaction{schema.Like: schema.Liked, schema.Unlike: schema.NoReaction, schema.Dislike: schema.Disliked}[e.Action]
	pair := schema.Pair{Reaction: reaction, TimeMs: e.TimeMs, Offset: rec.Offset, SinceMs: e.TimeMs, Region: e.Region}
	if known && reaction == old.Reaction {
		pair.SinceMs, pair.Region = old.SinceMs, old.Region
	}
	o.Pairs[key] = pair
}

func forwardedFrom(rec *kgo.Record) string {
	for _, h := range rec.Headers {
		if h.Key == schema.HeaderForwarded {
			return string(h.Value)
		}
	}
	return ""
}

// checkExact holds everything that came of the log against a naive fold of it: MySQL,
// the deltas and seq of like-updates, the state table with its progress records, the
// committed offsets, dead letters and forwards. It returns what had to come out.
func (t *tape) checkExact() *oracle {
	t.s.t.Helper()
	tt := t.s.t
	want := naive(t.read(schema.TopicLikes))
	table := t.table()
	got := &oracle{Pairs: table.pairs, Counts: t.s.counts(), Minutes: map[minuteKey]schema.Counts{}, Hours: t.s.hourly()}
	seqs := t.sumUpdates(got.Minutes)
	for p, records := range t.read(schema.TopicLikes) {
		for _, rec := range records {
			post, err := schema.ParsePostKey(rec.Key)
			if forwardedFrom(rec) != "" && err == nil && schema.PartitionFor(post, partitions) == int32(p) {
				got.Forwarded++
			}
		}
	}
	for _, records := range t.read(schema.TopicDLT) {
		got.Dead += len(records)
	}
	require.Empty(tt, cmp.Diff(want, got), "what a naive fold of likes gives (-) and what came of it (+)")

	require.Empty(tt, cmp.Diff(want.Counts, table.counts), "a naive fold of likes (-) and the counts in the state table (+)")
	committed, err := t.s.adm.FetchOffsets(tt.Context(), schema.GroupFold)
	require.NoError(tt, err)
	for p, progress := range t.progress() {
		require.Equal(tt, seqs[p], progress.NextSeq, "next seq in the progress record of partition %d and in like-updates", p)
		if o, ok := committed.Lookup(schema.TopicLikes, int32(p)); ok {
			require.Equal(tt, o.At, progress.NextOffset, "committed offset and progress of partition %d", p)
		}
	}
	return want
}

// sumUpdates adds the deltas of like-updates up, and returns each partition's next
// seq. It sees to it that seq has no gap, that every update carries the count after
// it, and that each batch ends with a progress record.
func (t *tape) sumUpdates(minutes map[minuteKey]schema.Counts) (seqs []uint64) {
	tt := t.s.t
	seqs = make([]uint64, partitions)
	for p, records := range t.read(schema.TopicUpdates) {
		after := map[uint64]schema.Counts{}  // by the deltas
		stated := map[uint64]schema.Counts{} // by the updates of the batch
		covered := int64(0)
		for _, rec := range records {
			var u schema.Update
			require.NoError(tt, schema.DecodeUpdate(rec.Value, &u))
			require.Equal(tt, seqs[p], u.Seq, "seq in like-updates/%d at offset %d", p, rec.Offset)
			seqs[p]++
			if string(rec.Key) == schema.ProgressKey {
				require.Empty(tt, u.Deltas, "progress record in like-updates/%d at offset %d", p, rec.Offset)
				require.Greater(tt, u.SourceOffset, covered, "batches of like-updates/%d follow each other", p)
				covered = u.SourceOffset
				for post, c := range stated {
					require.Equal(tt, after[post], c, "count of post %d after like-updates/%d offset %d, by deltas and as stated", post, p, rec.Offset)
				}
				clear(stated)
				continue
			}
			post, err := schema.ParsePostKey(rec.Key)
			require.NoError(tt, err)
			require.NotEmpty(tt, u.Deltas)
			for _, d := range u.Deltas {
				c := schema.Counts{Likes: d.Likes, Dislikes: d.Dislikes}
				sum := after[post]
				after[post] = schema.Counts{Likes: sum.Likes + c.Likes, Dislikes: sum.Dislikes + c.Dislikes}
				add(minutes, minuteKey{post, d.Minute, d.Region}, c)
			}
			stated[post] = u.Counts
		}
		require.Empty(tt, stated, "like-updates/%d ends with a progress record", p)
	}
	return seqs
}

// tableContent is what is in the state table.
type tableContent struct {
	pairs  map[pairKey]schema.Pair
	counts map[uint64]schema.Counts
}

func (t *tape) table() tableContent {
	tab := tableContent{map[pairKey]schema.Pair{}, map[uint64]schema.Counts{}}
	latest := map[string][]byte{}
	for _, records := range t.read(schema.TopicState) {
		for _, rec := range records {
			latest[string(rec.Key)] = rec.Value
		}
	}
	for key := range maps.Keys(latest) {
		if post, user, ok := schema.ParsePairKey([]byte(key)); ok {
			var pair schema.Pair
			require.NoError(t.s.t, schema.DecodePair([]byte(latest[key]), &pair))
			tab.pairs[pairKey{post, user}] = pair
		} else if post, ok := schema.ParseCountsKey([]byte(key)); ok {
			c, err := schema.DecodeCounts([]byte(latest[key]))
			require.NoError(t.s.t, err)
			add(tab.counts, post, c)
		}
	}
	return tab
}
