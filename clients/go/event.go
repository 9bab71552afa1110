// Package kudos is a client of kudos, which counts likes exactly. A Client sends likes and reads counts over HTTP; a
// Producer publishes likes to Kafka. Both are safe for concurrent use.
package kudos

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// Action is the reaction that a user wants for a post. It sets a state; it does not toggle one.
type Action string

const (
	Like    Action = "LIKE"
	Unlike  Action = "UNLIKE" // withdraws a like or a dislike
	Dislike Action = "DISLIKE"
	None    Action = "NONE" // only read: no reaction
)

// numbers are the actions in Protobuf.
var numbers = map[Action]uint64{Like: 1, Unlike: 2, Dislike: 3}

// Event says what a user wants. Of a user's events for a post, the one with the latest Time decides.
type Event struct {
	PostID, UserID uint64 // above 0
	Action         Action
	Time           time.Time // in milliseconds; zero: the time of the call
	Region         string    // ISO 3166, such as DE or US-CA; empty or malformed: unknown
}

// Position is where an event is in the topic likes. A read that is given the position includes the event.
type Position struct {
	Partition int32 `json:"partition"`
	Offset    int64 `json:"offset"` // -1 (rare): Kafka has the event, but its offset is not known; reads ignore it
}

// String returns <partition>:<offset>.
func (p Position) String() string { return fmt.Sprintf("%d:%d", p.Partition, p.Offset) }

const maxRegion = 6 // bytes of a well-formed region

// check returns an error if e is invalid, and fills in what retries must not change: a later time would override what
// the user did in between.
func (e *Event) check() error {
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	e.Region = e.Region[:min(len(e.Region), maxRegion+1)] // still malformed, but of limited size
	if e.PostID == 0 || e.UserID == 0 || numbers[e.Action] == 0 || e.Time.UnixMilli() < 1 {
		return fmt.Errorf("event %+v: ids, action and time must be valid", *e)
	}
	return nil
}

// Record returns the key and the value (Protobuf) of an event in the topic likes. Publish exactly these in a retry.
func Record(e Event, l Layout) (key string, value []byte, err error) {
	if err := e.check(); err != nil {
		return "", nil, err
	}
	for i, v := range []uint64{e.PostID, e.UserID, numbers[e.Action], uint64(e.Time.UnixMilli())} {
		value = protowire.AppendTag(value, protowire.Number(i+1), protowire.VarintType)
		value = protowire.AppendVarint(value, v)
	}
	if e.Region != "" {
		value = protowire.AppendString(protowire.AppendTag(value, 5, protowire.BytesType), e.Region)
	}
	return Key(e.PostID, e.UserID, l), value, nil
}
