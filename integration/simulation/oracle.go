package simulation

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"kudos/schema"
	"kudos/schema/kudosv1"
)

// The oracle reads the likes log by itself and folds it event by event. It shares the
// wire format with the program (generated code), and nothing else.

// wish is an event as the oracle understands it.
type wish struct {
	post, user uint64
	action     kudosv1.Action
	time       int64
	region     string
}

// reaction is what a user has for a post, and where it counts.
type reaction struct {
	action kudosv1.Action
	time   int64
	offset int64
	since  int64
	region string
}

type pairID struct{ post, user uint64 }

// cell is where a delta counts.
type cell struct {
	post   uint64
	minute int64
	region string
}

// truth is what one partition of likes comes to.
type truth struct {
	pairs    map[pairID]reaction
	forwards map[string]wish // expected, by origin
	dead     map[int64]bool  // offsets of dead letters
	counts   map[uint64][2]int64
	cells    map[cell][2]int64
}

// fold reads all of a partition.
func (w *world) fold(p int32) truth {
	t := truth{map[pairID]reaction{}, map[string]wish{}, map[int64]bool{}, map[uint64][2]int64{}, map[cell][2]int64{}}
	l := w.kafka.log(schema.TopicLikes, p)
	for o := range l.entries {
		e := &l.entries[o]
		if !e.data() {
			continue
		}
		wish, ok := understand(e)
		switch home := ok && schema.PartitionFor(wish.post, w.plan.partitions) == p; {
		case !ok:
			t.dead[int64(o)] = true
		case home:
			t.apply(wish, int64(o))
		case isForwarded(e):
			t.dead[int64(o)] = true
		default:
			t.forwards[fmt.Sprintf("%d@%d", p, o)] = wish
		}
	}
	for id, r := range t.pairs {
		n := score(r.action)
		count := t.counts[id.post]
		at := cell{id.post, r.since / 60_000, r.region}
		c := t.cells[at]
		for i := range n {
			count[i] += n[i]
			c[i] += n[i]
		}
		t.counts[id.post] = count
		if c != ([2]int64{}) {
			t.cells[at] = c
		}
	}
	return t
}

func isForwarded(e *entry) bool {
	for _, h := range e.headers {
		if h.Key == schema.HeaderForwarded {
			return true
		}
	}
	return false
}

// score is what a reaction adds to likes and dislikes.
func score(a kudosv1.Action) [2]int64 {
	switch a {
	case kudosv1.Action_LIKE:
		return [2]int64{1, 0}
	case kudosv1.Action_DISLIKE:
		return [2]int64{0, 1}
	}
	return [2]int64{}
}

// apply: the greater time decides, then the later place.
func (t *truth) apply(e wish, offset int64) {
	id := pairID{e.post, e.user}
	old, known := t.pairs[id]
	if known && e.time < old.time {
		return
	}
	r := reaction{e.action, e.time, offset, e.time, e.region}
	if known && old.action == e.action {
		r.since, r.region = old.since, old.region
	}
	t.pairs[id] = r
}

// understand decodes an event; false: it can never be one.
func understand(e *entry) (wish, bool) {
	if len(e.value) == 0 || len(e.value) > 4096 {
		return wish{}, false
	}
	var m kudosv1.LikeEvent
	if e.value[0] == '{' {
		var j struct {
			User   uint64 `json:"user_id"`
			Action string `json:"action"`
			Time   int64  `json:"time_ms"`
			Region string `json:"region"`
		}
		if err := json.Unmarshal(e.value, &j); err != nil {
			return wish{}, false
		}
		m.UserId, m.TimeMs, m.Region = j.User, j.Time, []byte(j.Region)
		m.Action = kudosv1.Action(kudosv1.Action_value[j.Action])
	} else if err := proto.Unmarshal(e.value, &m); err != nil {
		return wish{}, false
	}
	post, err := strconv.ParseUint(string(e.key), 10, 64)
	if err != nil || m.PostId != 0 && m.PostId != post || post == 0 || m.UserId == 0 {
		return wish{}, false
	}
	if m.Action < 1 || m.Action > 3 || m.TimeMs < 0 {
		return wish{}, false
	}
	t := m.TimeMs
	if t == 0 {
		t = e.time
	}
	return wish{post, m.UserId, m.Action, min(t, e.time+60_000), regionOf(string(m.Region))}, true
}

// regionOf is the region as it counts.
func regionOf(s string) string {
	s = strings.ToUpper(s)
	country, part, divided := strings.Cut(s, "-")
	if len(country) != 2 || !within(country, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") {
		return "ZZ"
	}
	if divided && (len(part) < 1 || len(part) > 3 || !within(part, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")) {
		return "ZZ"
	}
	return s
}

func within(s, letters string) bool { return strings.Trim(s, letters) == "" }

// hourKey is the key of a row of like_hourly.
func hourKey(c cell, p int32) string {
	hour := time.UnixMilli(c.minute * 60_000).UTC().Format("2006-01-02 15")
	return fmt.Sprintf("h'%s:00:00','%s',%d", hour, c.region, p)
}
