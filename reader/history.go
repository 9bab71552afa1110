package reader

import (
	"context"
	"net/http"
	"strings"
	"time"

	"kudos/httpserver/problem"
	"kudos/reader/query"
	"kudos/reader/view"
	"kudos/reader/wire"
	"kudos/schema"
	"kudos/sql"
)

// history returns the hours of event time in [from, to) that have rows in MySQL, in order; schema.Global: all regions.
type history func(ctx context.Context, region schema.Region, from, to time.Time) ([]sql.HourLikes, error)

const (
	historyTimeout = 5 * time.Second // bounds the wait for MySQL
	maxIntervals   = 1000
)

func (a *api) getLikesOverTime(q *request) (reply, error) {
	body, region, interval, err := a.likesOverTime(q)
	if err != nil {
		return reply{}, err
	}
	hours, err := a.likesByHour(q.Request.Context(), region, body.From, body.To)
	if err != nil {
		return reply{}, err
	}
	for _, h := range hours {
		add(body, interval, h.Hour, schema.Counts{Likes: h.Likes, Dislikes: h.Dislikes})
	}
	return encode(q, a.public, body)
}

// postHistory is what the API needs of view.History.
type postHistory interface {
	Of(post uint64, region schema.Region, from, to time.Time) (hours []view.HourCounts, since time.Time, err error)
}

func (a *api) getPostHistory(q *request) (reply, error) {
	post := q.PathID("post_id")
	body, region, interval, err := a.likesOverTime(q)
	if err != nil {
		return reply{}, err
	}
	if a.posts == nil {
		return reply{}, refuse(problem.New(http.StatusNotFound, "no-history", "This reader keeps no history",
			"this reader does not keep the history of posts (reader.history is 0)"))
	}
	hours, since, err := a.posts.Of(post, region, body.From, body.To)
	if err != nil {
		return reply{}, err
	}
	for _, h := range hours {
		add(body, interval, h.Hour, h.Counts)
	}
	if kept := a.now().UTC().Add(-a.options.History); kept.After(since) {
		since = kept
	}
	return encode(q, a.public, wire.PostHistory{PostID: post, CompleteFrom: since.Truncate(time.Second),
		LikesOverTime: *body})
}

// likesOverTime reads the parameters that likes over time have, and returns the response without any likes.
func (a *api) likesOverTime(q *request) (
	body *wire.LikesOverTime, region schema.Region, interval time.Duration, err error,
) {
	region = q.Region("region", q.Value("region"))
	name := q.OneOf("interval", "hour", "hour", "day")
	interval, otherwise := time.Hour, 24*time.Hour
	if name == "day" {
		interval, otherwise = 24*time.Hour, 30*24*time.Hour
	}
	from, to := q.span(interval, otherwise, a.now())
	if err := q.refusal(); err != nil {
		return nil, region, 0, err
	}
	body = &wire.LikesOverTime{Region: schema.RankingRegion(region), Interval: name, From: from, To: to,
		Points: make([]wire.TimeLikes, to.Sub(from)/interval)} // every interval, also without likes
	for i := range body.Points {
		body.Points[i].From = from.Add(time.Duration(i) * interval)
	}
	return body, region, interval, nil
}

func add(body *wire.LikesOverTime, interval time.Duration, hour time.Time, c schema.Counts) {
	p := &body.Points[hour.Sub(body.From)/interval]
	p.Likes += c.Likes
	p.Dislikes += c.Dislikes
}

// span reads from and to, and extends them to whole intervals (UTC).
func (q *request) span(interval, otherwise time.Duration, now time.Time) (from, to time.Time) {
	before := len(q.Wrong())
	to = q.time("to", now.UTC())
	if down := to.Truncate(interval); down.Before(to) {
		to = down.Add(interval)
	}
	from = q.time("from", to.Add(-otherwise)).Truncate(interval)
	if len(q.Wrong()) > before {
		return from, to
	}
	switch n := to.Sub(from) / interval; {
	case n < 1:
		q.Refuse("from", query.OutOfRange, "must be before to, which is %s", to.Format(time.RFC3339))
	case n > maxIntervals:
		q.Refuse("from", query.OutOfRange, "is %d intervals before to, which is %s; at most %d",
			n, to.Format(time.RFC3339), maxIntervals)
	}
	return from, to
}

func (q *request) time(name string, otherwise time.Time) time.Time {
	s := q.Value(name)
	if s == "" {
		return otherwise
	}
	t, err := time.Parse(time.RFC3339, s)
	switch {
	case err != nil || s[len("2006-01-02T15")] != ':' || strings.Contains(s, ","): // Parse accepts 9:00 and 0,5 seconds
		q.Refuse(name, string(schema.Undecodable), "%.40q is not a time such as 2026-11-21T10:00:00Z (a + is %%2B)", s)
	case t.UTC().Year() < 1970 || t.UTC().Year() > 2200: // keeps spans within time.Duration
		q.Refuse(name, query.OutOfRange, "%.40q is not between 1970 and 2200", s)
	}
	return t.UTC()
}

// likesByHour queries MySQL, with its own timeout. It logs once when MySQL fails, and once when it recovers.
func (a *api) likesByHour(ctx context.Context, region schema.Region, from, to time.Time) ([]sql.HourLikes, error) {
	if a.history == nil {
		return nil, refuse(problem.New(http.StatusServiceUnavailable, "no-mysql", "MySQL not configured",
			"likes over time need MySQL, but neither mysql.dsn nor mysql.shards is set; nothing else needs it"))
	}
	bounded, cancel := context.WithTimeout(ctx, min(historyTimeout, a.options.WriteTimeout/2))
	defer cancel()
	hours, err := a.history(bounded, region, from, to)
	if err != nil {
		if ctx.Err() == nil && !a.historyDown.Swap(true) { // otherwise the client is gone
			a.log.Warn("cannot read likes over time from MySQL", "error", err)
		}
		return nil, unavailable(problem.New(http.StatusServiceUnavailable, "mysql-away", "MySQL unavailable",
			"likes over time come from MySQL, which did not answer; everything else works without it. "+
				"The reader's log has the cause"))
	}
	if a.historyDown.Swap(false) {
		a.log.Info("MySQL answers again; likes over time are available")
	}
	return hours, nil
}
