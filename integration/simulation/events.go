package simulation

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
	"google.golang.org/protobuf/proto"

	"kudos/schema"
	"kudos/schema/kudosv1"
)

type event struct {
	key, post, user uint64
	action          string
	time            int64 // in milliseconds since the schedule began
	timed           bool
	region          string
	form            string // encoding, or what is invalid
	forwarded       bool   // has the header of a forwarded event, misrouted or not
	twice           bool   // the client retries it
}

// Forms of a valid event, and two of the invalid forms in poisoned.
const (
	formProto  = "proto"
	formJSON   = "json"
	formBroken = "broken"
	formEmpty  = "empty"
)

var poisoned = []string{formBroken, formEmpty, "another post", "no user", "unknown action", "negative time",
	"too large"}

func (w *world) write(to string, ev *event) {
	l := w.kafka.named(to)
	if l == nil {
		return
	}
	e := entry{value: ev.value(w.plan.began)}
	if ev.key != 0 { // that of a user has none
		e.key = strconv.AppendUint(nil, ev.key, 10)
	}
	if ev.forwarded {
		e.headers = []kgo.RecordHeader{{Key: schema.HeaderForwarded, Value: []byte("somewhere")}}
	}
	offset := l.append(e)
	w.tally["events written"]++
	w.note("written: %s offset %d key %s value %q", to, offset, e.key, e.value)
	if ev.twice {
		l.append(e)
	}
}

func (ev *event) value(began int64) []byte {
	at := int64(0)
	if ev.timed {
		at = began + ev.time
	}
	m := kudosv1.LikeEvent{PostId: ev.post, UserId: ev.user, TimeMs: at,
		Action: kudosv1.Action(kudosv1.Action_value[ev.action]), Region: []byte(ev.region)}
	switch ev.form {
	case formJSON:
		return fmt.Appendf(nil, `{"user_id":%d,"action":%q,"time_ms":%d,"region":%q}`, ev.user, ev.action, at,
			ev.region)
	case formBroken:
		return []byte{0xff, 0xff, 0xff}
	case formEmpty:
		return []byte{}
	case "another post":
		m.PostId = ev.key + 1
	case "no user":
		m.UserId = 0
	case "unknown action":
		m.Action = 7
	case "negative time":
		m.TimeMs = -1
	case "too large":
		m.Region = make([]byte, schema.MaxEventBytes)
	}
	b, err := proto.Marshal(&m)
	if err != nil {
		panic(err)
	}
	return b
}

func (w *world) drawEvents(n int) (lines []line) {
	for range n {
		ev := &event{form: formProto}
		ev.key = uint64(1 + w.rng.IntN(w.plan.posts))
		ev.post, ev.user = ev.key, uint64(1+w.rng.IntN(w.plan.users))
		p := schema.PartitionFor(ev.key, w.plan.partitions)
		if w.rng.IntN(1000) < w.plan.misplaced {
			p = int32(w.rng.IntN(int(w.plan.partitions)))
		}
		switch {
		case w.rng.IntN(1000) < w.plan.poison:
			ev.form, ev.action = pick(w, poisoned...), "LIKE"
		case w.rng.IntN(5) == 0:
			ev.form, ev.post, ev.action = formJSON, 0, pick(w, "LIKE", "UNLIKE", "DISLIKE")
			w.drawTime(ev)
			ev.region = pick(w, "DE", "fr", "nowhere")
		case w.rng.IntN(12) == 0:
			ev.key, ev.post, ev.action = 0, 0, pick(w, "VOID", "VOID", "UNVOID")
		case w.rng.IntN(12) == 0:
			ev.action = "RECOUNT"
		default:
			w.drawTime(ev)
			ev.action = pick(w, "LIKE", "LIKE", "UNLIKE", "DISLIKE")
			ev.region = pick(w, "DE", "US-CA", "US-NY", "QQ", "de", "", "Atlantis", "\xff\xfe")
			if w.rng.IntN(3) == 0 {
				ev.post = 0 // the key has the post
			}
		}
		ev.forwarded = w.rng.IntN(1000) < w.plan.poison
		ev.twice = w.rng.IntN(6) == 0
		lines = append(lines, line{verb: verbEvent, who: likes(p), event: ev})
	}
	return lines
}

func (w *world) drawTime(ev *event) {
	passed := now() - w.plan.began
	switch w.rng.IntN(8) {
	case 0:
		return
	case 1:
		ev.time = passed + 60_000 + w.rng.Int64N(1_000_000)
	case 2:
		ev.time = passed + w.rng.Int64N(70_000)
	case 3:
		ev.time = passed - w.rng.Int64N(10_000_000)
	default:
		ev.time = w.rng.Int64N(3) * 30_000
	}
	ev.timed = true
}

func (ev *event) String() string {
	text := fmt.Sprintf("key=%d post=%d user=%d %s", ev.key, ev.post, ev.user, ev.action)
	for _, more := range []struct {
		given bool
		text  string
	}{
		{ev.timed, fmt.Sprintf(" time=%d", ev.time)}, {ev.region != "", fmt.Sprintf(" region=%q", ev.region)},
		{ev.form != formProto, fmt.Sprintf(" form=%q", ev.form)}, {ev.forwarded, " forwarded"}, {ev.twice, " twice"},
	} {
		if more.given {
			text += more.text
		}
	}
	return text
}

func parseEvent(words []string) (*event, error) {
	ev := &event{form: formProto}
	for _, word := range words {
		name, value, _ := strings.Cut(word, "=")
		var err error
		switch name {
		case "key":
			ev.key, err = strconv.ParseUint(value, 10, 64)
		case "post":
			ev.post, err = strconv.ParseUint(value, 10, 64)
		case "user":
			ev.user, err = strconv.ParseUint(value, 10, 64)
		case "time":
			ev.timed = true
			ev.time, err = strconv.ParseInt(value, 10, 64)
		case "region":
			ev.region, err = strconv.Unquote(value)
		case "form":
			ev.form, err = strconv.Unquote(value)
		case "forwarded":
			ev.forwarded = true
		case "twice":
			ev.twice = true
		case "LIKE", "UNLIKE", "DISLIKE", "VOID", "UNVOID", "RECOUNT":
			ev.action = name
		default:
			err = fmt.Errorf("unknown %q in an event", word)
		}
		if err != nil {
			return nil, err
		}
	}
	return ev, nil
}
