package oracle

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"google.golang.org/protobuf/proto"

	"kudos/schema/kudosv1"
)

func told(t *testing.T, d Differences, want ...string) {
	t.Helper()
	require.Len(t, d.Details, len(want), "%s", d.String())
	for i, text := range want {
		require.Contains(t, d.Details[i], text)
	}
}

func TestFold(t *testing.T) {
	f := NewFold(4)
	const like, unlike, dislike = kudosv1.Action_LIKE, kudosv1.Action_UNLIKE, kudosv1.Action_DISLIKE
	for offset, e := range []Event{
		{Post: 1, User: 1, Action: like, TimeMs: 60_000, Region: "DE"},
		{Post: 1, User: 1, Action: like, TimeMs: 120_000, Region: "FR"}, // again: since and region stay
		{Post: 1, User: 2, Action: dislike, TimeMs: 200_000, Region: "BR"},
		{Post: 1, User: 2, Action: like, TimeMs: 100_000, Region: "BR"}, // late
		{Post: 1, User: 3, Action: like, TimeMs: 100, Region: "US"},
		{Post: 1, User: 3, Action: unlike, TimeMs: 100, Region: "US"}, // at the same time: the later offset wins
	} {
		f.Add(e, int64(offset))
	}
	s := f.Sums()
	require.Equal(t, map[uint64]Count{1: {Likes: 1, Dislikes: 1}}, s.Posts)
	require.Equal(t, map[Cell]Count{{1, "DE", 1}: {1, 0}, {1, "BR", 3}: {0, 1}}, s.Cells)
	require.Equal(t, map[Hour]Count{{0, "DE", f.PartitionOf(1)}: {1, 0}, {0, "BR", f.PartitionOf(1)}: {0, 1}}, s.Hours)
}

func TestSame(t *testing.T) {
	var d Differences
	Compare(&d, "I1", "like_count", map[uint64]Count{1: {1, 0}, 2: {}}, map[uint64]Count{1: {1, 0}, 3: {}})
	require.Zero(t, d.Total, "a row of zeros equals a missing row")
	Compare(&d, "I1", "like_count", map[uint64]Count{1: {1, 0}, 2: {2, 0}}, map[uint64]Count{1: {1, 1}, 3: {0, 1}})
	told(t, d, "I1 like_count: 1", "I1 like_count: 2", "I1 like_count: 3")
}

func TestDecode(t *testing.T) {
	for text, want := range map[string]string{
		`{"post_id":"7","user_id":1,"action":"LIKE","time_ms":5,"region":"de"}`: "",
		`{"post_id":7,"user_id":1,"action":true}`:                               "",
		``:                              "undecodable",
		`{"user_id":1`:                  "undecodable",
		`{"post_id":7,"action":"LIKE"}`: "zero_id",
		`{"user_id":1,"action":"LOVE"}`: "unknown_action",
		`{"post_id":8,"user_id":1,"action":"LIKE"}`:              "key_mismatch",
		`{"user_id":1,"action":"LIKE","time_ms":-1}`:             "negative_time",
		fmt.Sprintf(`{"user_id":1,"action":"LIKE"%4096s}`, ""):   "over_size",
		`{"user_id":18446744073709551616,"action":"LIKE"}`:       "undecodable",
		`{"user_id":1,"action":"LIKE"} {"and":"something more"}`: "undecodable",
	} {
		_, poison := Decode([]byte("7"), []byte(text))
		require.Equal(t, want, poison, text)
	}
	e := Event{TimeMs: 10_000_000}
	e.Settle(1_000_000)
	require.EqualValues(t, 1_060_000, e.TimeMs, "never more than a minute ahead")
}

func update(t *testing.T, offset int64, seq uint64, source int64, post uint64, c Count) *kgo.Record {
	m := &kudosv1.LikeUpdate{Seq: seq, SourceOffset: source, LikeCount: c.Likes, DislikeCount: c.Dislikes}
	key := "_"
	if post != 0 {
		key = strconv.FormatUint(post, 10)
		m.Deltas = []*kudosv1.Delta{{Region: []byte("DE"), Minute: 3, Likes: 1}}
	}
	value, err := proto.Marshal(m)
	require.NoError(t, err)
	return &kgo.Record{Key: []byte(key), Value: value, Offset: offset}
}

func TestUpdates(t *testing.T) {
	var d Differences
	u := newPublished()
	one, two := Count{Likes: 1}, Count{Likes: 2}
	u.saw(Seen{Position: Position{Offset: 2, Seq: 2}, Posts: one, Hours: one})
	u.saw(Seen{Position: Position{Offset: 3, Seq: 2}, Posts: one, Hours: two}) // like_hourly is ahead
	u.saw(Seen{Position: Position{Offset: 4, Seq: 4}})                         // never existed
	u.add(update(t, 0, 0, 10, 5, Count{1, 0}), &d)
	u.add(update(t, 1, 1, 10, 0, Count{}), &d)
	require.True(t, u.part(0).whole)
	u.add(update(t, 3, 2, 20, 5, Count{2, 0}), &d)
	require.False(t, u.part(0).whole)
	require.Zero(t, d.Total, "%s", d.String())
	u.part(0).folded(9, &d) // not there yet
	require.Zero(t, d.Total, "%s", d.String())
	u.part(0).fold = one
	u.part(0).folded(10, &d)
	told(t, d, "I9 at offset 3 seq 2 of like-updates/0, like_count added up to {1 0}, like_hourly to {2 0}")
	d = Differences{}
	u.add(update(t, 4, 3, 20, 0, Count{}), &d)
	told(t, d, "I3 MySQL was seen at offset 4 seq 4")
	require.Equal(t, map[Cell]Count{{5, "DE", 3}: {2, 0}}, u.cells)
	require.Equal(t, map[uint64]Count{5: {2, 0}}, sumOver(u.posts))

	d = Differences{}
	u.add(update(t, 6, 5, 19, 0, Count{}), &d)
	told(t, d, "I3 like-updates/0 offset 6 has seq 5, not 4",
		"I3 like-updates/0 offset 6 has source offset 19 after 20")
}

func TestTable(t *testing.T) {
	var d Differences
	table := newTable()
	number := binary.BigEndian.AppendUint64
	pairKeyBytes := number(number(nil, 9), 4)
	// LIKE, with since, two letters; time 500, offset 77, since 100 ms earlier (zigzag: 200).
	table.add(&kgo.Record{Key: pairKeyBytes, Value: append([]byte{2, 1 | 4 | 8, 0xf4, 3, 77, 0xc8, 1}, "DE"...)}, &d)
	table.add(&kgo.Record{Key: number(nil, 9), Value: []byte{2, 2, 0}}, &d)
	require.Zero(t, d.Total, "%s", d.String())
	require.Equal(t, map[PairKey]Pair{{9, 4}: {Action: kudosv1.Action_LIKE, TimeMs: 500, Offset: 77, SinceMs: 400,
		Region: "DE"}}, table.pairs)
	require.Equal(t, table.liked(), sumOver(table.counts))
	table.add(&kgo.Record{Key: number(nil, 9), Value: []byte{2}}, &d)
	table.add(&kgo.Record{Key: number(nil, 9), Value: []byte{}}, &d)
	table.add(&kgo.Record{Key: pairKeyBytes, Value: []byte{1, 1}}, &d)
	table.add(&kgo.Record{Key: pairKeyBytes, Value: []byte{2, 1, 5, 0x80}}, &d)
	table.add(&kgo.Record{Key: pairKeyBytes, Value: []byte{2, 1 | 8, 5, 7, 'D'}}, &d)
	told(t, d, "I2 state table, partition 0 offset 0: not counts of version 2",
		"I2 state table, partition 0 offset 0: not counts of version 2",
		"I2 state table, partition 0 offset 0: not a reaction of version 2",
		"I2 state table, partition 0 offset 0: a reaction of 4 bytes, truncated in its numbers",
		"I2 state table, partition 0 offset 0: a reaction with 1 bytes for its region")
	table.add(&kgo.Record{Key: pairKeyBytes}, &d)
	require.Empty(t, table.pairs, "a tombstone deletes")
}

func TestLedger(t *testing.T) {
	letter := func(offset string) *kgo.Record {
		return &kgo.Record{Headers: []kgo.RecordHeader{{Key: "kudos.topic", Value: []byte("likes")},
			{Key: "kudos.partition", Value: []byte("2")},
			{Key: "kudos.offset", Value: []byte(offset)}, {Key: "kudos.error", Value: []byte("zero_id: …")}}}
	}
	e := Event{Post: 1, User: 2, Action: kudosv1.Action_LIKE}
	other := e
	other.User = 3

	var d Differences
	l := newLedger()
	l.acked[position{0, 1}], l.acked[position{0, 2}], l.acked[position{0, 3}] = e.Digest(), e.Digest(), e.Digest()
	l.found(&kgo.Record{Offset: 1}, e.Digest(), &d)
	l.found(&kgo.Record{Offset: 7}, e.Digest(), &d) // the response was lost
	require.Zero(t, d.Total)
	l.found(&kgo.Record{Offset: 2}, other.Digest(), &d)
	l.settle(map[int32]int64{0: 8}, &d)
	told(t, d, "I4 likes 0@2 holds another event", "I4 likes 0@3 was acknowledged to a writer and is not in the log")

	d = Differences{}
	l.poison[position{2, 5}], l.poison[position{2, 6}] = "zero_id", "zero_id"
	for _, offset := range []string{"5", "5", "9"} {
		l.buried(letter(offset), &d)
	}
	l.settle(nil, &d)
	require.Equal(t, 3, d.Total, "%s", d.String())
	for _, text := range []string{"I6 likes 2@5 (zero_id) is in likes.dlt 2 times",
		"I6 likes 2@6 (zero_id) is not in likes.dlt", "I6 likes 2@9 is in likes.dlt"} {
		require.Contains(t, d.String(), text)
	}

	d = Differences{}
	l.misrouted(position{0, 1}, e, &d)
	l.forwarded("0@1", e, &d)
	l.forwarded("0@2", e, &d) // the copy may be seen before its original
	l.misrouted(position{0, 2}, e, &d)
	l.settle(nil, &d)
	require.Zero(t, d.Total, "%s", d.String())
	l.misrouted(position{0, 3}, e, &d)
	l.forwarded("0@3", other, &d)
	l.misrouted(position{0, 4}, e, &d)
	l.forwarded("0@1", e, &d)
	l.settle(nil, &d)
	told(t, d, "I6 the forwarded copy of likes 0@3 is a different event",
		"I6 likes 0@4 is in the wrong partition and was not forwarded", "I6 a forwarded event names likes 0@1")
}
