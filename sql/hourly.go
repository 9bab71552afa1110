package sql

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jmoiron/sqlx"

	"kudos/schema"
)

// HourLikes is one hour of like_hourly: the likes and dislikes given in it that are still current.
type HourLikes struct {
	Hour            time.Time // its start, UTC
	Likes, Dislikes int64
}

const (
	maxHours       = 100_000 // bounds one call: more than 11 years
	statementHours = 340     // how many hours fit into one statement of conditionBytes
	// The server returns sums as decimals; CAST turns them into integers.
	selectHours = "SELECT hour, CAST(SUM(likes) AS SIGNED) AS likes, CAST(SUM(dislikes) AS SIGNED) AS dislikes" +
		" FROM like_hourly WHERE "
	groupHours = " GROUP BY hour ORDER BY hour"
)

// LikesByHour returns the hours in [from, to) in which a region has rows, oldest first; schema.Global adds up all
// regions. It reads the current rows without a lock, and runs for at most Options.ReadTimeout.
func (s *Store) LikesByHour(ctx context.Context, region schema.Region, from, to time.Time,
) (hours []HourLikes, err error) {
	defer func() {
		err = describe(err, "read like_hourly of %s from %s to %s in MySQL at %s", schema.RankingRegion(region),
			from.UTC().Format(time.RFC3339), to.UTC().Format(time.RFC3339), s)
	}()
	if region != schema.Global && !isRegion(region.String()) {
		return nil, fmt.Errorf("region %q is not of the form AA or AA-AAA", region.String())
	}
	// DATETIME cannot hold hours outside this range.
	first, end := max(hourFrom(from), firstHour), min(hourFrom(to), lastHour+1)
	if first >= end {
		return nil, nil
	}
	if end-first > maxHours {
		return nil, fmt.Errorf("%d hours are too many for one read, the limit is %d", end-first, maxHours)
	}
	ctx, cancel := context.WithTimeout(ctx, s.options.ReadTimeout)
	defer cancel()
	if err := s.checkShardOnce(ctx); err != nil {
		return nil, err
	}
	if region == schema.Global {
		query := selectHours + "hour BETWEEN ? AND ?" + groupHours
		err = s.db.SelectContext(ctx, &hours, query, hourTime(first), hourTime(end-1))
		return hours, err
	}
	// List the hours one by one: a range would also scan the rows of all other regions.
	var asked []time.Time
	for hour := first; hour < end; hour++ {
		asked = append(asked, hourTime(hour))
	}
	for chunk := range slices.Chunk(asked, statementHours) {
		query, args, err := sqlx.In(selectHours+"region = ? AND hour IN (?)"+groupHours, region.String(), chunk)
		if err != nil {
			return nil, err
		}
		var some []HourLikes
		if err := s.db.SelectContext(ctx, &some, query, args...); err != nil {
			return nil, err
		}
		hours = append(hours, some...)
	}
	return hours, nil
}

// hourFrom rounds t up to a whole hour, in hours since 1970.
func hourFrom(t time.Time) int64 {
	hour := t.Unix() / 3600
	if hourTime(hour).Before(t) {
		hour++
	}
	return hour
}
