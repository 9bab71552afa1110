package sql

import (
	"context"
	"fmt"
	"time"

	"kudos/schema"
)

// HourLikes is one hour of like_hourly: the likes and dislikes that were given in it and still stand.
type HourLikes struct {
	Hour            time.Time // its beginning, UTC
	Likes, Dislikes int64
}

// maxHours bounds what is asked for at once: more than eleven years.
const maxHours = 100_000

// LikesByHour returns the hours from from (included) to to (excluded) in which a region has rows, oldest first;
// schema.Global is all regions together. It reads what is there at the moment, without a lock, and takes no longer
// than Options.ReadTimeout.
func (s *Store) LikesByHour(ctx context.Context, region schema.Region, from, to time.Time) ([]HourLikes, error) {
	hours, err := s.likesByHour(ctx, region, from, to)
	if err != nil {
		return nil, describe(err, "read like_hourly of %s from %s to %s in MySQL at %s", schema.RankingRegion(region),
			from.UTC().Format(time.RFC3339), to.UTC().Format(time.RFC3339), s)
	}
	return hours, nil
}

func (s *Store) likesByHour(ctx context.Context, region schema.Region, from, to time.Time) ([]HourLikes, error) {
	if region != schema.Global && !isRegion(region.String()) {
		return nil, fmt.Errorf("region %q is not of the form AA or AA-AAA", region.String())
	}
	// Behind the ends of DATETIME there are no rows.
	first, end := max(hourFrom(from), firstHour), min(hourFrom(to), lastHour+1)
	if first >= end {
		return nil, nil
	}
	if end-first > maxHours {
		return nil, fmt.Errorf("%d hours are too many at once, %d are the limit", end-first, maxHours)
	}
	ctx, cancel := context.WithTimeout(ctx, s.options.ReadTimeout)
	defer cancel()
	if err := s.checkShardOnce(ctx); err != nil {
		return nil, err
	}
	if region == schema.Global {
		text := appendHourText([]byte(selectHours+"hour BETWEEN "), first)
		text = appendHourText(append(text, " AND "...), end-1)
		return s.readHours(ctx, nil, string(text)+groupHours)
	}
	// Each hour by its name: the rows of all other regions lie between those of two hours, and are not read.
	asked := make([]int64, 0, end-first)
	for hour := first; hour < end; hour++ {
		asked = append(asked, hour)
	}
	var hours []HourLikes
	around := statementText{prefix: selectHours + "region = '" + region.String() + "' AND hour IN (", suffix: ")" + groupHours}
	err := eachStatement(conditionBytes, around, asked, appendHourText, func(text string) (err error) {
		hours, err = s.readHours(ctx, hours, text)
		return err
	})
	return hours, err
}

const (
	// The server's sums are decimals, which CAST makes whole numbers of.
	selectHours = "SELECT hour, CAST(SUM(likes) AS SIGNED), CAST(SUM(dislikes) AS SIGNED) FROM like_hourly WHERE "
	groupHours  = " GROUP BY hour ORDER BY hour"
)

// readHours appends the hours that a query finds.
func (s *Store) readHours(ctx context.Context, hours []HourLikes, text string) ([]HourLikes, error) {
	rows, err := s.db.QueryContext(ctx, text)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var h HourLikes
		if err := rows.Scan(&h.Hour, &h.Likes, &h.Dislikes); err != nil {
			return nil, err
		}
		hours = append(hours, h)
	}
	return hours, rows.Err()
}

// hourFrom is the first whole hour from a time on, in hours since 1970.
func hourFrom(t time.Time) int64 {
	hour := t.Unix() / 3600
	if at := time.Unix(hour*3600, 0); at.Before(t) {
		hour++
	}
	return hour
}

// appendHourText appends an hour as a literal.
func appendHourText(text []byte, hour int64) []byte {
	return time.Unix(hour*3600, 0).UTC().AppendFormat(text, "'2006-01-02 15:04:05'")
}
