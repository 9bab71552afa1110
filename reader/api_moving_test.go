package reader

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"kudos/reader/view"
	"kudos/reader/wire"
	"kudos/schema"
)

// movingLikes is a copy into which an event comes before each look at it: whatever it then
// tells has the offset of that event in it.
type movingLikes struct{ *fakeLikes }

// move adds an event to each partition.
func (f movingLikes) move() {
	f.set(func() {
		for p := range f.mu.asOf {
			f.mu.asOf[p]++
		}
		at := func(post uint64) int64 { return f.mu.asOf[f.partition(post)] }
		for post := range uint64(10) {
			f.mu.counts[post] = schema.Counts{Likes: at(post), Dislikes: -at(post)}
		}
		f.mu.reactions[[2]uint64{1, 7}] = view.Reaction{Reaction: schema.Liked, SinceMs: at(1), Region: schema.UnknownRegion}
		f.mu.likers = []view.Liker{{UserID: 7, SinceMs: at(1), Region: schema.UnknownRegion}}
	})
}

func (f movingLikes) AsOf(partition int32) (wire.Position, error) {
	f.move()
	return f.fakeLikes.AsOf(partition)
}

func (f movingLikes) Counts(posts []uint64) ([]schema.Counts, []wire.Position, error) {
	f.move()
	return f.fakeLikes.Counts(posts)
}

func (f movingLikes) Reaction(post, user uint64) (view.Reaction, wire.Position, error) {
	f.move()
	return f.fakeLikes.Reaction(post, user)
}

func (f movingLikes) Likers(post, after uint64, limit int) ([]view.Liker, uint64, wire.Position, error) {
	f.move()
	return f.fakeLikes.Likers(post, after, limit)
}

// TestAnswersAreOfOneMoment: while events come in all the time, each answer is of the
// position that it names, in the body and in the header, and the next one is of a later one.
func TestAnswersAreOfOneMoment(t *testing.T) {
	since := func(offset int64) string { return fmt.Sprintf(`"since":"1970-01-01T00:00:00.%03dZ"`, offset) }
	for name, c := range map[string]struct {
		target, body string
		want         func(asOf map[int32]int64, home func(post uint64) int32) string
	}{
		"one": {"/v1/posts/1/likes", "", func(asOf map[int32]int64, home func(uint64) int32) string {
			at := asOf[home(1)]
			return fmt.Sprintf(`{"post_id":"1","likes":%d,"dislikes":%d,"as_of":{"partition":%d,"offset":%d}}`, at, -at, home(1), at)
		}},
		"many":              {"/v1/likes?post_ids=1,2", "", wantMany},
		"many by body":      {"/v1/likes:get", `{"post_ids":[1,2]}`, wantMany},
		"with a min_offset": {"/v1/likes?post_ids=1,2&min_offset=0:1,1:1,2:1,3:1", "", wantMany},
		"reaction": {"/v1/posts/1/likes/7", "", func(asOf map[int32]int64, home func(uint64) int32) string {
			at := asOf[home(1)]
			return fmt.Sprintf(`{"post_id":"1","user_id":"7","reaction":"LIKE",%s,"region":"ZZ","as_of":{"partition":%d,"offset":%d}}`, since(at), home(1), at)
		}},
		"likers": {"/v1/posts/1/likers", "", func(asOf map[int32]int64, home func(uint64) int32) string {
			at := asOf[home(1)]
			return fmt.Sprintf(`{"post_id":"1","likers":[{"user_id":"7",%s,"region":"ZZ"}],"as_of":{"partition":%d,"offset":%d}}`, since(at), home(1), at)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil, nil)
			var err error
			r.api, err = newAPI(DefaultOptions(), movingLikes{r.likes}, r.rankings, nil, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
			require.NoError(t, err)
			before := map[int32]int64{}
			for range 3 {
				a := r.get(c.target)
				if c.body != "" {
					a = r.post(c.target, c.body)
				}
				require.Equal(t, http.StatusOK, a.status, a.body)
				asOf := positionsIn(t, a.body)
				if told := a.header.Get("Kudos-As-Of"); c.body == "" && strings.HasPrefix(c.target, "/v1/likes?") || name == "one" {
					require.Equal(t, textOf(asOf), told)
				}
				for p, offset := range asOf {
					require.Greater(t, offset, before[p], "the copy has moved since the last answer")
				}
				require.Contains(t, asOf, r.likes.partition(1))
				a.requireJSON(http.StatusOK, c.want(asOf, r.likes.partition))
				before = asOf
			}
		})
	}
}

// positionsIn reads what an answer names as its position, or positions.
func positionsIn(t *testing.T, body string) map[int32]int64 {
	t.Helper()
	positions := map[int32]int64{}
	for _, text := range regexp.MustCompile(`\{"partition":\d+,"offset":\d+\}`).FindAllString(body, -1) {
		var at wire.Position
		require.NoError(t, json.Unmarshal([]byte(text), &at))
		positions[at.Partition] = at.Offset
	}
	return positions
}

func textOf(positions map[int32]int64) string {
	var list []wire.Position
	for _, p := range slices.Sorted(maps.Keys(positions)) {
		list = append(list, wire.Position{Partition: p, Offset: positions[p]})
	}
	return wire.PositionsText(list)
}

func wantMany(asOf map[int32]int64, home func(post uint64) int32) string {
	one, two := asOf[home(1)], asOf[home(2)]
	places := ""
	for p := range int32(4) {
		if at, ok := asOf[p]; ok {
			if places != "" {
				places += ","
			}
			places += fmt.Sprintf(`{"partition":%d,"offset":%d}`, p, at)
		}
	}
	return fmt.Sprintf(`{"posts":[{"post_id":"1","likes":%d,"dislikes":%d},{"post_id":"2","likes":%d,"dislikes":%d}],"as_of":[%s]}`, one, -one, two, -two, places)
}
