package oracle

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"regexp"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
	"google.golang.org/protobuf/proto"

	"kudos/schema/kudosv1"
)

// Event is a decoded record of likes.
type Event struct {
	Post, User uint64
	Action     kudosv1.Action
	TimeMs     int64
	Region     string
}

// Digest is a hash of an event, or of the bytes of an invalid record.
type Digest uint64

// Digest returns the hash of an event from a client; its region must be well formed.
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

// DigestOf returns the hash of a record as written to likes.
func DigestOf(key, value []byte) Digest {
	e, poison := Decode(key, value)
	if poison != "" {
		return digest(key, value)
	}
	return e.Digest()
}

// limits of the contract, defined here again because the oracle shares no code with the program.
const (
	maxEventBytes = 4096
	maxAheadMs    = 60_000
	unknownRegion = "ZZ"
)

// Decode decodes a record. poison is the reason if it is invalid.
func Decode(key, value []byte) (e Event, poison string) {
	switch {
	case len(value) > maxEventBytes:
		return e, "over_size"
	case len(value) == 0:
		return e, "undecodable"
	}
	if bytes.HasPrefix(value, []byte{0}) { // a schema registry's framing: 0, id, and 0 for the first message or JSON
		framed := value[min(5, len(value)):]
		if len(framed) == 0 || framed[0] != 0 && framed[0] != '{' {
			return e, "undecodable"
		}
		value = bytes.TrimPrefix(framed, []byte{0})
	}
	switch {
	case len(value) > 0 && value[0] == '{':
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
		id, _, _ := strings.Cut(string(key), "/") // a user bucket may follow
		post, err := strconv.ParseUint(id, 10, 64)
		if err != nil || len(key) > 64 || e.Post != 0 && e.Post != post {
			return e, "key_mismatch"
		}
		e.Post = post
	}
	switch {
	case e.Post == 0 && !e.OfUser() || e.User == 0:
		return e, "zero_id"
	case e.Action < kudosv1.Action_LIKE || e.Action > kudosv1.Action_RECOUNT || e.Post != 0 && e.OfUser():
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
	number := func(v any) string { // strings too; other types do not parse
		if v == nil {
			return "0"
		}
		return fmt.Sprint(v)
	}
	var errs [3]error
	e.Post, errs[0] = strconv.ParseUint(number(j.Post), 10, 64)
	e.User, errs[1] = strconv.ParseUint(number(j.User), 10, 64)
	e.TimeMs, errs[2] = strconv.ParseInt(number(j.Time), 10, 64)
	if errors.Join(errs[:]...) != nil {
		return e, "undecodable"
	}
	switch a := j.Action.(type) {
	case string:
		if e.Action = kudosv1.Action(kudosv1.Action_value[a]); e.Action > kudosv1.Action_DISLIKE {
			e.Action = kudosv1.Action_ACTION_UNSPECIFIED // in Protobuf only
		}
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

// Settle sets the event time: the event's own time or else the append time, at most one minute after the append time.
func (e *Event) Settle(appendMs int64) {
	e.TimeMs = min(cmp.Or(e.TimeMs, appendMs), appendMs+maxAheadMs)
}

func owner(post uint64, partitions int32) int32 {
	return int32(partition(strconv.FormatUint(post, 10), int(partitions)))
}

// partition returns the partition, of n, that Kafka's clients choose by default.
func partition(key string, n int) int {
	return kgo.StickyKeyPartitioner(nil).ForTopic("").Partition(&kgo.Record{Key: []byte(key)}, n)
}
