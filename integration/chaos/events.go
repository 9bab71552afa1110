package chaos

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"google.golang.org/protobuf/proto"

	"kudos/dev"
	"kudos/integration/oracle"
	"kudos/schema/kudosv1"
)

// shape of the load: few users who often change their reactions to few posts, since changes are what the run tests.
func shape() dev.Shape {
	s := dev.DefaultShape()
	s.Posts, s.Users, s.NewUsersRate = 1500, 400, 0
	s.Dislikes, s.ChangedMinds, s.DoubleClicks = 0.15, 0.25, 0.05
	s.Late, s.MaxLate = 0.10, 15*time.Minute
	s.ViralEvery, s.ViralFor = 20*time.Second, 8*time.Second
	return s
}

type generator struct {
	random     *rand.Rand
	events     *dev.Generator
	again      []oracle.Event
	partitions int32
}

func newGenerator(o Options, stream uint64) *generator {
	return &generator{random: rand.New(rand.NewPCG(o.Seed, stream)),
		events: dev.NewGenerator(shape(), o.Seed<<16+stream, time.Now()), partitions: o.Partitions}
}

// next returns the event that arrives at now. Occasionally it makes two contradictory events with the same time.
func (g *generator) next(now time.Time) oracle.Event {
	if n := len(g.again); n > 0 {
		e := g.again[n-1]
		g.again = g.again[:n-1]
		return e
	}
	made := g.events.Next(now)
	e := oracle.Event{Post: made.PostID, User: made.UserID, Action: kudosv1.Action(made.Action), TimeMs: made.TimeMs,
		Region: made.Region.String()}
	if g.random.IntN(50) == 0 {
		other := e
		other.Action = 1 + kudosv1.Action(g.random.IntN(3))
		g.again = append(g.again, other)
	}
	return e
}

func (g *generator) record(e oracle.Event) *kgo.Record {
	rec := &kgo.Record{Key: strconv.AppendUint(nil, e.Post, 10)}
	if g.random.IntN(10) == 0 {
		rec.Value = eventJSON(e)
		return rec
	}
	// Marshal cannot fail.
	rec.Value, _ = proto.Marshal(&kudosv1.LikeEvent{PostId: e.Post, UserId: e.User, Action: e.Action, TimeMs: e.TimeMs,
		Region: []byte(e.Region)})
	return rec
}

func eventJSON(e oracle.Event) []byte {
	return fmt.Appendf(nil, `{"post_id":"%d","user_id":%d,"action":%q,"time_ms":%d,"region":%q}`, e.Post, e.User,
		e.Action, e.TimeMs, strings.ToLower(e.Region))
}

func (g *generator) malformed() *kgo.Record {
	e := g.next(time.Now())
	rec := g.record(e)
	switch g.random.IntN(10) {
	case 0:
		rec.Value = nil
	case 1:
		rec.Value = []byte("{\"user_id\": 7, \"action\": \"LI")
	case 2:
		rec.Value = []byte{0x08, 0x80} // a truncated varint
	case 3:
		rec.Key = []byte("post")
	case 4:
		rec.Key = strconv.AppendUint(nil, e.Post+1, 10)
	case 5:
		e.User = 0
		rec.Value = eventJSON(e)
	case 6:
		rec.Value = fmt.Appendf(nil, `{"user_id":%d,"action":"LOVE"}`, e.User)
	case 7:
		e.TimeMs = -e.TimeMs
		rec.Value = eventJSON(e)
	case 8:
		rec.Value = fmt.Appendf(nil, `{"user_id":%q,"action":"LIKE"}`, "somebody")
	case 9:
		rec.Value = bytes.Repeat([]byte{0xff}, 1+g.random.IntN(64)) // no valid Protobuf tag
	}
	return rec
}

// oversized makes too large events. Some exceed a batch's size limit too: compressed, so the broker does not notice.
func (g *generator) oversized() *kgo.Record {
	rec := g.record(g.next(time.Now()))
	size := 4097 + g.random.IntN(40_000)
	if g.random.IntN(8) == 0 {
		size = 200_000 + g.random.IntN(400_000)
	}
	text := strings.Repeat(" likes are many", size/15)
	rec.Value = fmt.Appendf(nil, `{"user_id":%d,"action":"LIKE","note":%q}`, 1+g.random.Uint64N(400), text)
	return rec
}

func (g *generator) future() *kgo.Record {
	e := g.next(time.Now())
	e.TimeMs += []int64{61_000, 3_600_000, 86_400_000 * 365, math.MaxInt64 - e.TimeMs}[g.random.IntN(4)]
	return g.record(e)
}

// astray makes a misrouted record. Some claim to have been forwarded already, in any layout.
func (g *generator) astray() *kgo.Record {
	e := g.next(time.Now())
	rec := g.record(e)
	if g.random.IntN(5) == 0 {
		rec.Key = nil
	}
	right := kgo.StickyKeyPartitioner(nil).ForTopic("").Partition(&kgo.Record{Key: strconv.AppendUint(nil, e.Post, 10)},
		int(g.partitions))
	rec.Partition = (int32(right) + 1 + g.random.Int32N(g.partitions-1)) % g.partitions
	if g.random.IntN(20) == 0 {
		rec.Headers = []kgo.RecordHeader{{Key: "kudos.forwarded", Value: []byte("0@0/4000000000")}}
	}
	return rec
}
