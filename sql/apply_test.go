package sql

import (
	"context"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestApplyCountsARangeOnce(t *testing.T) {
	onEachServer(t, func(t *testing.T, db database) {
		s := db.startedStore(t)
		ctx, src := t.Context(), likesTopic()

		require.NoError(t, s.Apply(ctx, src, 0, at(0, 0), Position{NextOffset: 10, NextSeq: 7, LeaderEpoch: 3},
			[]CountDelta{{9, 2, 1}, {1<<64 - 1, -1, 1}, {5, 0, 0}},
			[]HourDelta{{480_000, "US-CA", 2, 1}, {0, "ZZ", -1, 1}, {1, "ZZ", 0, 0},
				{lastHour, "Z", 1, 0}, {firstHour, "AA-AAA", 1, 0}}))
		require.NoError(t, s.Apply(ctx, src, 0, at(10, 7), at(11, 8),
			[]CountDelta{{9, 40, 3}}, []HourDelta{{480_000, "US-CA", 40, 1}, {480_000, "DE", 0, 2}}))

		require.Equal(t, map[string]string{"9": "42 4", "18446744073709551615": "-1 1"}, db.counts(t),
			"post 5 did not change, so it has no row")
		require.Equal(t, map[string]string{
			"2024-10-04 00:00:00 US-CA 0":  "42 2",
			"2024-10-04 00:00:00 DE 0":     "0 2",
			"1970-01-01 00:00:00 ZZ 0":     "-1 1",
			"1000-01-01 00:00:00 AA-AAA 0": "1 0",
			"9999-12-31 23:00:00 Z 0":      "1 0",
		}, db.hours(t))

		err := s.Apply(ctx, src, 0, at(10, 7), at(11, 8), []CountDelta{{PostID: 9, Likes: 40}}, nil)
		require.ErrorIs(t, err, ErrPositionMoved)
		require.False(t, IsTransient(err))
		require.Equal(t, "42 4", db.counts(t)["9"], "a repeated Apply must not count")
		requireAt(t, at(11, 8), (*Store).Position, s, src, 0)
	})
}

// A DSN may set clientFoundRows either way; the compare-and-swap must not depend on it.
func TestApplyUnderBothMeaningsOfRowsAffected(t *testing.T) {
	for _, option := range []string{"?clientFoundRows=true", "?clientFoundRows=false"} {
		t.Run(option, func(t *testing.T) {
			db := embeddedDatabase(t)
			db.options.DSN += option
			s := db.startedStore(t)
			require.NoError(t, likeOnce(t.Context(), s))
			require.ErrorIs(t, likeOnce(t.Context(), s), ErrPositionMoved)
		})
	}
}

func TestApplyMustMoveExactlyOneRow(t *testing.T) {
	onRealServers(t, func(t *testing.T, db database) {
		s := db.startedStore(t)
		raw := db.raw(t)
		raw.MustExec("ALTER TABLE applied_offset DROP PRIMARY KEY")
		raw.MustExec("INSERT INTO applied_offset SELECT * FROM applied_offset WHERE partition_id = 0")

		require.ErrorIs(t, likeOnce(t.Context(), s), ErrPositionMoved, "partition 0 has two rows")
		require.Empty(t, db.counts(t))
	})
}

func TestApplyLocksPositionThenPostsThenHoursInOrder(t *testing.T) {
	proxy, db := embeddedDatabase(t).through(t)
	s := db.startedStore(t, func(o *Options) { o.MaxStatementBytes = minStatementBytes })
	var counts []CountDelta
	for id := range uint64(200) {
		counts = append(counts, CountDelta{PostID: id * 7919 % 200 * 1e15, Likes: 1})
	}
	proxy.seen()
	require.NoError(t, s.Apply(t.Context(), likesTopic(), 0, at(0, 0), at(1, 1), counts, []HourDelta{
		{Hour: 2, Region: "AA", Likes: 1}, {Hour: 1, Region: "ZZ", Likes: 1}, {Hour: 1, Region: "AA", Likes: 1},
	}))

	queries := proxy.seen()
	require.Equal(t, "SET TRANSACTION ISOLATION LEVEL READ COMMITTED", queries[0])
	require.Equal(t, "START TRANSACTION", queries[1])
	require.Contains(t, queries[2], "UPDATE applied_offset SET next_offset = 1", "the position must be moved first")
	require.Equal(t, "COMMIT", queries[len(queries)-1])

	var ids []int
	statements := 0
	for _, query := range queries[3:] {
		if strings.HasPrefix(query, "INSERT INTO like_count") {
			statements++
			for _, row := range regexp.MustCompile(`\((\d+),1,0\)`).FindAllStringSubmatch(query, -1) {
				id, err := strconv.Atoi(row[1])
				require.NoError(t, err)
				ids = append(ids, id)
			}
		}
	}
	require.Len(t, ids, 200)
	require.Greater(t, statements, 3, "the rows must need several statements")
	require.True(t, slices.IsSorted(ids), "posts must be locked in the order of their ids")
	require.Contains(t, queries[len(queries)-2],
		"('1970-01-01 01:00:00','AA',0,1,0),('1970-01-01 01:00:00','ZZ',0,1,0),('1970-01-01 02:00:00','AA',0,1,0)")
}

func TestApplyRejectsImpossibleInput(t *testing.T) {
	s := noServer(t).store(t) // no statement may be sent
	ok := likesTopic()
	for _, c := range []struct {
		name      string
		src       Source
		partition int32
		from, to  Position
		hours     []HourDelta
		want      string
	}{
		{name: "empty range", src: ok, from: at(5, 5), to: at(5, 5), want: "empty"},
		{name: "backwards", src: ok, from: at(5, 5), to: at(4, 5), want: "backwards"},
		{name: "sequence backwards", src: ok, from: at(5, 5), to: at(6, 4), want: "backwards"},
		{name: "negative offset", src: ok, from: at(-1, 0), to: at(6, 4), want: "backwards"},
		{name: "no such partition", src: ok, partition: 4, to: at(1, 0), want: "no partition 4"},
		{name: "negative partition", src: ok, partition: -1, to: at(1, 0), want: "no partition -1"},
		{name: "no topic", src: Source{TopicID: ok.TopicID, Partitions: 1}, to: at(1, 0), want: "topic name"},
		{name: "no topic id", src: Source{Topic: "t", Partitions: 1}, to: at(1, 0), want: "no topic id"},
		{name: "malformed region", src: ok, to: at(1, 0), hours: []HourDelta{{Region: "'--"}}, want: `region "'--"`},
		{name: "long region", src: ok, to: at(1, 0), hours: []HourDelta{{Region: "US-CALI"}}, want: "region"},
		{name: "no region", src: ok, to: at(1, 0), hours: []HourDelta{{}}, want: "region"},
		{name: "hour before DATETIME", src: ok, to: at(1, 0), hours: []HourDelta{{Hour: firstHour - 1, Region: "ZZ"}},
			want: "years 1000 to 9999"},
		{name: "hour after DATETIME", src: ok, to: at(1, 0), hours: []HourDelta{{Hour: lastHour + 1, Region: "ZZ"}},
			want: "years 1000 to 9999"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := s.Apply(context.Background(), c.src, c.partition, c.from, c.to, nil, c.hours)
			require.ErrorContains(t, err, c.want)
			require.False(t, IsTransient(err))
		})
	}
}

func TestUpdatedAtIsNow(t *testing.T) {
	onEachServer(t, func(t *testing.T, db database) {
		s := db.startedStore(t)
		fresh := "SELECT COUNT(*) FROM like_count WHERE ABS(TIMESTAMPDIFF(SECOND, updated_at, UTC_TIMESTAMP())) < 60"
		require.NoError(t, likeOnce(t.Context(), s))
		require.Equal(t, "1", db.scalar(t, fresh), "after the insert")
		db.raw(t).MustExec("UPDATE like_count SET updated_at = '2000-01-01'")
		require.NoError(t, s.Apply(t.Context(), likesTopic(), 0, at(1, 1), at(2, 2), oneLike, nil))
		require.Equal(t, "1", db.scalar(t, fresh), "after the update")
	})
}
