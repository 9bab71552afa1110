package forget

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/schema"
	"kudos/stream/kafka"
)

// Remain is data that still exists.
type Remain struct {
	Where   string `json:"where"`
	What    string `json:"what"`
	UserIDs bool   `json:"user_ids"`          // it includes user ids
	Records *int64 `json:"records,omitempty"` // their number, if counted
	Kept    string `json:"kept"`              // for how long, in words, such as "for good"
}

func (f *forget) remains(ctx context.Context) ([]Remain, error) {
	likesKept, err := f.retention(ctx, schema.TopicLikes, "from now")
	if err != nil {
		return nil, err
	}
	dltKept, err := f.retention(ctx, schema.TopicDLT, "each")
	if err != nil {
		return nil, err
	}
	letters, err := f.deadLetters(ctx)
	if err != nil {
		return nil, err
	}
	var pairs int64
	for _, p := range f.parts {
		pairs += int64(len(p.pairs))
	}
	stays := `users who had a reaction, by post, with its time and "no reaction"; ` +
		"the earlier value is removed when Kafka compacts the topic"
	if f.opts.DryRun {
		stays = "users who have or had a reaction, by post, with its time"
	}
	mysql, rankings := "sums over all users", "sums over all users; posts change rank as likes are withdrawn"
	if f.opts.Kind == Post {
		mysql = "like_count has a row of zeros for each post that was counted there; " +
			"like_hourly has sums over all posts"
		rankings = "the posts drop out as their likes are withdrawn; to remove them now, run " +
			`"kudos ranker exclude ` + strings.Trim(fmt.Sprint(f.opts.IDs), "[]") + `"`
	}
	return []Remain{
		{schema.TopicState, stays, pairs > 0, &pairs, "indefinitely, so that a late event cannot restore a like"},
		{schema.TopicLikes, "the events themselves, including the withdrawals", true, nil, likesKept},
		{schema.TopicDLT, "invalid events that contain one of the ids, as far as they can be decoded",
			letters > 0, &letters, dltKept},
		{schema.TopicUpdates, "changes of the posts' counts, by region and minute", false, nil,
			"indefinitely for the last of each post; the others until Kafka compacts the topic"},
		{schema.TopicCounts, "the posts' counts", false, nil, "indefinitely"},
		{"MySQL", mysql, false, nil, "indefinitely; rows of zeros in like_count may be deleted at any time"},
		{"MySQL, …_before_rebuild", "the tables before a kudos rebuild, likewise", false, nil, "until you drop them"},
		{"rankings", rankings, false, nil,
			"for at least 7 days in " + schema.TopicTrending + ", which has earlier rankings"},
		{schema.TopicTrendingLocalTable + ", " + schema.TopicTrendingTable, "posts' likes by window and region", false,
			nil, "until the windows have passed; sums of all time indefinitely"},
		{schema.TopicExclusions, "excluded posts, with the reasons that were given", false, nil,
			"indefinitely; kudos ranker include removes a post"},
		{"archive", "changes of the posts' counts, by region and minute, if it is used", false, nil,
			"until you delete the files"},
		{"local copies", "in processors, rankers and readers; they follow Kafka", true, nil, "like the state table"},
	}, nil
}

// retention describes how long the records of a topic are kept; from is the start of that period.
func (f *forget) retention(ctx context.Context, topic, from string) (string, error) {
	configs, err := kafka.TopicConfigs(ctx, f.cl, topic)
	if err != nil {
		return "", err
	}
	ms, ok := configs["retention.ms"]
	if !ok {
		return "", fmt.Errorf("topic %s has no setting retention.ms", topic)
	}
	return keptFor(ms, from)
}

// keptFor describes a retention.ms. Kafka deletes whole segments: the last record of a segment must be that old.
func keptFor(retentionMs, from string) (string, error) {
	ms, err := strconv.ParseInt(retentionMs, 10, 64)
	switch {
	case err != nil:
		return "", fmt.Errorf("retention.ms %q is not a number", retentionMs)
	case ms < 0:
		return "indefinitely (retention.ms is -1)", nil
	}
	length := time.Duration(ms) * time.Millisecond
	text := length.String()
	if day := 24 * time.Hour; length >= day {
		text = fmt.Sprintf("%d days", (length+day-1)/day)
	}
	return fmt.Sprintf("for %s %s (retention.ms), and until Kafka deletes the segment", text, from), nil
}

// deadLetters counts those that name a post or user to forget. It misses some: many dead letters cannot be decoded.
func (f *forget) deadLetters(ctx context.Context) (n int64, _ error) {
	asked := newAsked(f.opts.Kind, f.opts.IDs)
	type span struct{ from, to int64 }
	var spans []span
	var total int64
	for p := range f.topics.ByName[schema.TopicDLT].Partitions {
		from, to, err := kafka.Bounds(ctx, f.cl, schema.TopicDLT, p)
		if err != nil {
			return 0, err
		}
		spans = append(spans, span{from, to})
		total += max(0, to-from)
	}
	if total == 0 {
		return 0, nil
	}
	phase := f.opts.Begin("reading "+schema.TopicDLT, "records", total)
	defer phase.End()
	for p, s := range spans {
		if s.from >= s.to {
			continue
		}
		next := s.from
		err := kafka.ReadLog(ctx, f.cl, schema.TopicDLT, int32(p), s.from, func(c kafka.LogChunk) (bool, error) {
			for _, rec := range c.Records {
				if names(rec, asked) {
					n++
				}
			}
			phase.Add(c.Next - next)
			next = c.Next
			return c.Next < s.to, nil
		})
		if err != nil {
			return 0, err
		}
	}
	return n, nil
}

// names reports whether the key or value of a dead letter has a matching post or user.
func names(rec *kgo.Record, asked asked) bool {
	var e schema.Event
	_ = schema.DecodeEvent(rec.Key, rec.Value, &e) // fails as expected; e has the fields decoded before the error
	if asked(e.PostID, e.UserID) {
		return true
	}
	post, err := schema.ParseLikeKey(rec.Key)
	return err == nil && asked(post, e.UserID)
}
