package integration

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"google.golang.org/protobuf/proto"

	"kudos/schema/kudosv1"
)

// drain waits until all events in the log are folded and all updates applied. It asks
// the log and the database, not the program.
func (s *system) drain(within time.Duration) {
	s.t.Helper()
	left := "nothing known yet"
	adm := kadm.NewClient(s.client())
	defer func() {
		if s.t.Failed() {
			s.t.Log("left in the log: ", left)
		}
	}()
	waitFor(s.t, within, "the log to be drained", func() bool {
		// The cheap question first. Not equal: forwarded events and markers are behind.
		if committed, end := s.standing(adm); committed < end-int64(s.partitions) {
			left = fmt.Sprintf("committed %d of %d offsets", committed, end)
			return false
		}
		left = s.undrained()
		return left == ""
	})
}

// undrained says what is not folded or not applied yet. It reads the updates before
// the events: what it finds folded then is all there is, forwarded events included,
// since they come in one transaction with the update.
func (s *system) undrained() string {
	updates := s.lastRecords("like-updates")
	likes := s.lastRecords("likes")
	applied := s.appliedSeq()
	var left []string
	for p, like := range likes {
		var u kudosv1.LikeUpdate
		if last := updates[p]; last != nil {
			require.NoError(s.t, proto.Unmarshal(last.Value, &u))
		}
		if u.SourceOffset <= like.Offset || applied[p] != u.Seq+1 {
			left = append(left, fmt.Sprintf("partition %d: folded up to %d of %d, applied seq %d of %d", p, u.SourceOffset, like.Offset+1, applied[p], u.Seq+1))
		}
	}
	if len(likes) == 0 {
		return "no events"
	}
	return strings.Join(left, "; ")
}

func (s *system) appliedSeq() map[int32]uint64 {
	applied := map[int32]uint64{}
	for _, db := range s.dbs {
		var rows []struct {
			Partition int32  `db:"partition_id"`
			Seq       uint64 `db:"next_seq"`
		}
		require.NoError(s.t, db.SelectContext(s.t.Context(), &rows, "SELECT partition_id, next_seq FROM applied_offset"))
		for _, row := range rows {
			applied[row.Partition] = row.Seq
		}
	}
	return applied
}

// lastRecords returns the last committed data record of each partition that has one.
func (s *system) lastRecords(topic string) map[int32]*kgo.Record {
	ctx, cancel := context.WithTimeout(s.t.Context(), 30*time.Second)
	defer cancel()
	cl := s.ownClient()
	defer cl.Close()
	ends, err := kadm.NewClient(cl).ListCommittedOffsets(ctx, topic)
	require.NoError(s.t, err)
	last := map[int32]*kgo.Record{}
	for window := int64(8); ; window *= 8 {
		from := map[int32]kgo.Offset{}
		open := map[int32]int64{}
		whole := true
		ends.Each(func(o kadm.ListedOffset) {
			require.NoError(s.t, o.Err)
			if o.Offset == 0 || last[o.Partition] != nil {
				return
			}
			whole = whole && window >= o.Offset
			from[o.Partition] = kgo.NewOffset().At(max(0, o.Offset-window))
			open[o.Partition] = o.Offset
		})
		if len(open) > 0 {
			maps.Copy(last, s.readRange(ctx, topic, from, open))
		}
		if whole {
			return last
		}
	}
}

// readRange reads up to the given ends and returns the last data record of each
// partition.
func (s *system) readRange(ctx context.Context, topic string, from map[int32]kgo.Offset, open map[int32]int64) map[int32]*kgo.Record {
	cl := s.ownClient(
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords())
	defer cl.Close()
	last := map[int32]*kgo.Record{}
	for len(open) > 0 {
		fetches := cl.PollFetches(ctx)
		require.NoError(s.t, fetches.Err(), "reading the end of %s; still to come: %v", topic, open)
		fetches.EachRecord(func(rec *kgo.Record) {
			end, ok := open[rec.Partition]
			if ok && !rec.Attrs.IsControl() && rec.Offset < end {
				last[rec.Partition] = rec
			}
			if ok && rec.Offset+1 >= end {
				delete(open, rec.Partition)
			}
		})
	}
	return last
}
