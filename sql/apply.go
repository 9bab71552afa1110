package sql

import (
	"cmp"
	"context"
	stdsql "database/sql"
	"fmt"
	"slices"

	"github.com/jmoiron/sqlx"
)

// CountDelta is the net change of one post over a range.
type CountDelta struct {
	PostID          uint64
	Likes, Dislikes int64
}

// HourDelta is the net change of one region in one hour over a range.
type HourDelta struct {
	Hour            int64  // hours since 1970-01-01 00:00 UTC
	Region          string // ISO 3166-1 or -2, upper case, ZZ if unknown
	Likes, Dislikes int64
}

// Apply counts the range [from, to) of a partition, once: one transaction moves the stored position from → to and adds
// the deltas. It sorts counts and hours in place, and skips deltas of zero; the same key may occur more than once.
//
// Fails with ErrPositionMoved (nothing changed) and *UnknownOutcomeError (perhaps applied). After either, read Position
// and go on there. Deadlocks and lock wait timeouts are repeated within Options.Retries.
func (s *Store) Apply(ctx context.Context, src Source, partition int32, from, to Position, counts []CountDelta, hours []HourDelta) error {
	err := s.apply(ctx, src, partition, from, to, counts, hours)
	if err != nil {
		return describe(err, "apply %s/%d [%d, %d) to MySQL at %s", src.Topic, partition, from.NextOffset, to.NextOffset, s)
	}
	return nil
}

func (s *Store) apply(ctx context.Context, src Source, partition int32, from, to Position, counts []CountDelta, hours []HourDelta) error {
	if err := s.check(src, partition); err != nil {
		return err
	}
	if err := checkRange(from, to); err != nil {
		return err
	}
	if err := checkHours(hours); err != nil {
		return err
	}
	// All transactions lock rows in the same order, so that two of them wait for one another rather than deadlock.
	sortCounts(counts)
	sortHours(hours)
	return s.transact(ctx, func(ctx context.Context, tx *sqlx.Tx) error {
		if err := movePosition(ctx, tx, src, partition, from, to); err != nil {
			return err
		}
		limit := s.packet.statementBytes(s.options.MaxStatementBytes)
		if err := upsert(ctx, tx, limit, countUpsert, counts, appendCount); err != nil {
			return err
		}
		return upsert(ctx, tx, limit, hourUpsert, hours, appendHour(partition))
	})
}

// movePosition is the compare-and-swap that makes the transaction happen once. It comes first: the row lock it takes
// keeps everybody else off this partition until the end.
func movePosition(ctx context.Context, tx *sqlx.Tx, src Source, partition int32, from, to Position) error {
	result, err := tx.ExecContext(ctx,
		"UPDATE applied_offset SET next_offset = ?, next_seq = ?, leader_epoch = ?, updated_at = UTC_TIMESTAMP(3)"+
			" WHERE topic = ? AND partition_id = ? AND topic_id = ? AND partitions = ? AND next_offset = ? AND next_seq = ?",
		to.NextOffset, to.NextSeq, to.LeaderEpoch,
		src.Topic, partition, src.topicID(), src.Partitions, from.NextOffset, from.NextSeq)
	if err != nil {
		return err
	}
	return requireMoved(result)
}

// requireMoved wants a compare-and-swap to have changed exactly one row.
func requireMoved(result stdsql.Result) error {
	changed, err := result.RowsAffected()
	if err != nil {
		return err
	}
	if changed != 1 {
		return ErrPositionMoved
	}
	return nil
}

// checkRange: an empty range must not be sent, since its compare-and-swap would succeed again and again.
func checkRange(from, to Position) error {
	if from.NextOffset < 0 || to.NextOffset <= from.NextOffset || to.NextSeq < from.NextSeq {
		return fmt.Errorf("range from offset %d seq %d to offset %d seq %d is empty or runs backwards",
			from.NextOffset, from.NextSeq, to.NextOffset, to.NextSeq)
	}
	return nil
}

const (
	firstHour = -8_502_840 // 1000-01-01 00:00 UTC, where DATETIME begins
	lastHour  = 70_389_527 // 9999-12-31 23:00 UTC, where it ends
)

// checkHours refuses what the table cannot hold, before it could become SQL.
func checkHours(hours []HourDelta) error {
	for _, h := range hours {
		if h.Hour < firstHour || h.Hour > lastHour {
			return fmt.Errorf("hour %d is outside the years 1000 to 9999", h.Hour)
		}
		if !isRegion(h.Region) {
			return fmt.Errorf("region %q is not of the form AA or AA-AAA", h.Region)
		}
	}
	return nil
}

func isRegion(region string) bool {
	for i := range len(region) {
		c := region[i]
		if (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return len(region) >= 1 && len(region) <= 6
}

func sortCounts(counts []CountDelta) {
	slices.SortFunc(counts, func(a, b CountDelta) int { return cmp.Compare(a.PostID, b.PostID) })
}

func sortHours(hours []HourDelta) {
	slices.SortFunc(hours, func(a, b HourDelta) int {
		return cmp.Or(cmp.Compare(a.Hour, b.Hour), cmp.Compare(a.Region, b.Region))
	})
}
