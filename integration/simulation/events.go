package simulation

import (
	"fmt"
	"strconv"

	"github.com/twmb/franz-go/pkg/kgo"
	"google.golang.org/protobuf/proto"

	"kudos/schema"
	"kudos/schema/kudosv1"
)

// write appends some events to likes, as all kinds of writers do.
func (w *world) write(n int) {
	for range n {
		post := uint64(1 + w.rng.IntN(w.plan.posts))
		user := uint64(1 + w.rng.IntN(w.plan.users))
		p := schema.PartitionFor(post, w.plan.partitions)
		if w.rng.IntN(1000) < w.plan.misplaced {
			p = int32(w.rng.IntN(int(w.plan.partitions)))
		}
		e := entry{key: strconv.AppendUint(nil, post, 10)}
		switch {
		case w.rng.IntN(1000) < w.plan.poison:
			w.poison(&e, post, user)
		case w.rng.IntN(5) == 0:
			e.value = w.jsonEvent(user)
		default:
			e.value = w.protoEvent(post, user)
		}
		if w.rng.IntN(1000) < w.plan.poison { // the header of a forwarded event, at home or not
			e.headers = []kgo.RecordHeader{{Key: schema.HeaderForwarded, Value: []byte("somewhere")}}
		}
		offset := w.kafka.log(schema.TopicLikes, p).append(e)
		w.note("written: likes/%d offset %d key %s value %q", p, offset, e.key, e.value)
		if w.rng.IntN(6) == 0 { // the writer sends it once more
			w.kafka.log(schema.TopicLikes, p).append(e)
		}
	}
}

// eventTime is absent, late, equal to that of others, or far ahead.
func (w *world) eventTime() int64 {
	switch w.rng.IntN(8) {
	case 0:
		return 0
	case 1:
		return now() + 60_000 + w.rng.Int64N(1_000_000)
	case 2:
		return now() + w.rng.Int64N(70_000)
	case 3:
		return now() - w.rng.Int64N(10_000_000)
	}
	return w.plan.began + w.rng.Int64N(3)*30_000
}

func (w *world) protoEvent(post, user uint64) []byte {
	e := &kudosv1.LikeEvent{
		PostId: post, UserId: user, TimeMs: w.eventTime(),
		Action: pick(w, kudosv1.Action_LIKE, kudosv1.Action_LIKE, kudosv1.Action_UNLIKE, kudosv1.Action_DISLIKE),
		Region: []byte(pick(w, "DE", "US-CA", "de", "", "Atlantis", "\xff\xfe")),
	}
	if w.rng.IntN(3) == 0 {
		e.PostId = 0 // the key tells
	}
	b, err := proto.Marshal(e)
	if err != nil {
		panic(err)
	}
	return b
}

func (w *world) jsonEvent(user uint64) []byte {
	return fmt.Appendf(nil, `{"user_id":%d,"action":%q,"time_ms":%d,"region":%q}`,
		user, pick(w, "LIKE", "UNLIKE", "DISLIKE"), w.eventTime(), pick(w, "DE", "fr", "nowhere"))
}

// poison makes what can never be an event.
func (w *world) poison(e *entry, post, user uint64) {
	like := kudosv1.LikeEvent{PostId: post, UserId: user, Action: kudosv1.Action_LIKE}
	switch w.rng.IntN(7) {
	case 0:
		e.value = []byte{0xff, 0xff, 0xff}
		return
	case 1:
		e.value = []byte{}
		return
	case 2:
		like.PostId++
	case 3:
		like.UserId = 0
	case 4:
		like.Action = 7
	case 5:
		like.TimeMs = -1
	case 6:
		like.Region = make([]byte, schema.MaxEventBytes)
	}
	b, err := proto.Marshal(&like)
	if err != nil {
		panic(err)
	}
	e.value = b
}
