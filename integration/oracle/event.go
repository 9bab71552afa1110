package oracle

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"regexp"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
	"google.golang.org/protobuf/proto"

	"kudos/schema/kudosv1"
)

// Event is what a record of likes says.
type Event struct {
	Post, User uint64
	Action     kudosv1.Action
	TimeMs     int64
	Region     string
}

// Digest stands for all that an event says, or for the bytes of a record that says nothing.
type Digest uint64

// Digest of an event that a writer handed in; its region must be well formed.
func (e Event) Digest() Digest {
	return digest(fmt.Appendf(nil, "%d %d %d %d %s", e.Post, e.User, e.Action, e.TimeMs, e.Region))
}

func digest(b ...[]byte) Digest {
	h := fnv.New64a()
	for _, part := range b {
		_, _ = h.Write(part)
		_, _ = h.Write([]byte{0xff})
	}
	return Digest(h.Sum64())
}

// DigestOf a record as it is written to likes.
func DigestOf(key, value []byte) Digest {
	e, poison := decode(key, value)
	if poison != "" {
		return digest(key, value)
	}
	return e.Digest()
}

// limits of the contract, in the oracle's own words.
const (
	maxEventBytes = 4096
	maxAheadMs    = 60_000
	unknownRegion = "ZZ"
)

// decode reads a record; poison says why it can never be an event.
func decode(key, value []byte) (e Event, poison string) {
	switch {
	case len(value) > maxEventBytes:
		return e, "over_size"
	case len(value) == 0:
		return e, "undecodable"
	case value[0] == '{':
		if e, poison = decodeJSON(value); poison != "" {
			return e, poison
		}
	default:
		var m kudosv1.LikeEvent
		if proto.Unmarshal(value, &m) != nil {
			return e, "undecodable"
		}
		e = Event{Post: m.PostId, User: m.UserId, Action: m.Action, TimeMs: m.TimeMs, Region: region(m.Region)}
	}
	if len(key) > 0 {
		id, _, _ := strings.Cut(string(key), "/") // behind it, a user bucket
		post, err := strconv.ParseUint(id, 10, 64)
		if err != nil || len(key) > 64 || e.Post != 0 && e.Post != post {
			return e, "key_mismatch"
		}
		e.Post = post
	}
	switch {
	case e.Post == 0 || e.User == 0:
		return e, "zero_id"
	case e.Action < kudosv1.Action_LIKE || e.Action > kudosv1.Action_DISLIKE:
		return e, "unknown_action"
	case e.TimeMs < 0:
		return e, "negative_time"
	}
	return e, ""
}

func decodeJSON(value []byte) (e Event, poison string) {
	var j struct {
		Post   any `json:"post_id"`
		User   any `json:"user_id"`
		Time   any `json:"time_ms"`
		Action any `json:"action"`
		Region any `json:"region"`
	}
	d := json.NewDecoder(bytes.NewReader(value))
	d.UseNumber()
	if d.Decode(&j) != nil || d.More() {
		return e, "undecodable"
	}
	number := func(v any) (string, bool) {
		switch v := v.(type) {
		case nil:
			return "0", true
		case json.Number:
			return v.String(), true
		case string:
			return v, true
		}
		return "", false
	}
	unsigned := func(v any, into *uint64) bool {
		s, ok := number(v)
		n, err := strconv.ParseUint(s, 10, 64)
		*into = n
		return ok && err == nil
	}
	if !unsigned(j.Post, &e.Post) || !unsigned(j.User, &e.User) {
		return e, "undecodable"
	}
	s, ok := number(j.Time)
	n, err := strconv.ParseInt(s, 10, 64)
	if !ok || err != nil {
		return e, "undecodable"
	}
	e.TimeMs = n
	switch a := j.Action.(type) {
	case string:
		e.Action = kudosv1.Action(kudosv1.Action_value[a])
	case bool:
		e.Action = kudosv1.Action_UNLIKE
		if a {
			e.Action = kudosv1.Action_LIKE
		}
	}
	text, _ := j.Region.(string)
	e.Region = region([]byte(text))
	return e, ""
}

var regionForm = regexp.MustCompile(`^[A-Za-z]{2}(-[A-Za-z0-9]{1,3})?$`)

func region(b []byte) string {
	if !regionForm.Match(b) {
		return unknownRegion
	}
	return strings.ToUpper(string(b))
}

// settle gives an event its time: its own, or that of the record, and never more than a minute ahead of it.
func (e *Event) settle(rec *kgo.Record) {
	appended := rec.Timestamp.UnixMilli()
	if e.TimeMs == 0 {
		e.TimeMs = appended
	}
	e.TimeMs = min(e.TimeMs, appended+maxAheadMs)
}

// home is the partition that a post lives in: what franz-go's default partitioner makes of the key.
func home(post uint64, partitions int32) int32 {
	return int32(partition(strconv.FormatUint(post, 10), int(partitions)))
}

// partition is the one that Kafka's clients choose by default, of n.
func partition(key string, n int) int {
	return kgo.StickyKeyPartitioner(nil).ForTopic("").Partition(&kgo.Record{Key: []byte(key)}, n)
}
