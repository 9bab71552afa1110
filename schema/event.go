package schema

import (
	"fmt"
	"math"

	"google.golang.org/protobuf/encoding/protowire"

	"kudos/schema/kudosv1"
)

// Action is the state that a user wants for a post. It sets a state; it does not toggle one.
type Action uint8

const (
	Like    = Action(kudosv1.Action_LIKE)
	Unlike  = Action(kudosv1.Action_UNLIKE)
	Dislike = Action(kudosv1.Action_DISLIKE)

	// Written by `kudos void` and `kudos unvoid`, in Protobuf. From a VOID on, the reactions of its user in its
	// partition do not count; from an UNVOID on they do. Both have no post. A RECOUNT applies that to a reaction.
	Void    = Action(kudosv1.Action_VOID)
	Unvoid  = Action(kudosv1.Action_UNVOID)
	Recount = Action(kudosv1.Action_RECOUNT)
)

// String returns the name used in JSON.
func (a Action) String() string { return kudosv1.Action(a).String() }

func (a Action) known() bool { return a == Like || a == Unlike || a == Dislike }

// OfUser reports whether the event is of a user and a partition, not of a post.
func (a Action) OfUser() bool { return a == Void || a == Unvoid }

// Event is one record of the topic likes, the Go form of kudosv1.LikeEvent.
type Event struct {
	PostID, UserID  uint64
	TimeMs          int64 // event time in Unix milliseconds; 0 in a decoded event: the record's timestamp applies
	Action          Action
	Region          Region
	RegionMalformed bool // the given region was malformed and replaced by UnknownRegion; such events are counted
}

const (
	// MaxEventBytes bounds a valid event's value; not a setting: all instances must classify alike.
	MaxEventBytes = 4 << 10
	// MaxAheadMs is how far an event time may be ahead of the record's log-append time.
	MaxAheadMs = 60_000
)

// PoisonReason is why a record is not a valid event, in one word.
type PoisonReason string

const (
	Undecodable   PoisonReason = "undecodable"
	KeyMismatch   PoisonReason = "key_mismatch"
	ZeroID        PoisonReason = "zero_id"
	UnknownAction PoisonReason = "unknown_action"
	NegativeTime  PoisonReason = "negative_time"
	OverSize      PoisonReason = "over_size"
	Misplaced     PoisonReason = "misplaced" // a forwarded event that is misrouted nevertheless
)

// PoisonReasons lists all reasons, for metrics that start at zero.
var PoisonReasons = []PoisonReason{Undecodable, KeyMismatch, ZeroID, UnknownAction, NegativeTime, OverSize, Misplaced}

// PoisonError says why a record is not a valid event. Field is the invalid field, or "" for the whole event.
type PoisonError struct {
	Reason PoisonReason
	Field  string
	Detail string
}

func (e *PoisonError) Error() string {
	if e.Field == "" {
		return e.Detail
	}
	return e.Field + ": " + e.Detail
}

// poison builds a PoisonError. It is a separate function to keep this code out of the hot path.
func poison(reason PoisonReason, field, format string, args ...any) error {
	return &PoisonError{Reason: reason, Field: field, Detail: fmt.Sprintf(format, args...)}
}

// DecodeEvent decodes a record of the topic likes into e; every error is a *PoisonError. A value that starts with '{'
// is JSON: no Protobuf LikeEvent starts so (field 15, a group). What a schema registry's serializers put in front of
// either is taken off. The key may be nil if the value has the post id.
func DecodeEvent(key, value []byte, e *Event) error {
	if err := e.decode(key, value); err != nil {
		return err
	}
	return e.Check()
}

// DecodeRecord is DecodeEvent for what `kudos void` writes, too.
func DecodeRecord(key, value []byte, e *Event) error {
	if err := e.decode(key, value); err != nil {
		return err
	}
	if e.Action <= Dislike {
		return e.Check()
	}
	like := Event{PostID: e.PostID, UserID: e.UserID, Action: e.Action, TimeMs: e.TimeMs}
	switch {
	case e.Action == Recount:
		like.Action = Like
	case e.Action.OfUser() && e.PostID == 0:
		like.Action, like.PostID = Like, 1
	}
	return like.Check()
}

func (e *Event) decode(key, value []byte) error {
	*e = Event{Region: UnknownRegion}
	switch {
	case len(value) > MaxEventBytes:
		return poison(OverSize, "", "value has %d bytes, the limit is %d", len(value), MaxEventBytes)
	case len(value) == 0:
		return poison(Undecodable, "", "value is empty")
	}
	var err error
	if value[0] == 0 {
		if value, err = withoutFraming(value); err != nil {
			return err
		}
	}
	switch {
	case len(value) == 0 || value[0] != '{':
		err = e.decodeProto(value)
	case !e.decodePlain(value):
		*e = Event{Region: UnknownRegion}
		err = e.decodeJSON(value)
	}
	if err != nil {
		return err
	}
	if len(key) > 0 {
		id, err := ParseLikeKey(key)
		if err != nil {
			return poison(KeyMismatch, "key", "%v", err)
		}
		if e.PostID != 0 && e.PostID != id {
			return poison(KeyMismatch, "post_id", "is %d in the value but %d in the key", e.PostID, id)
		}
		e.PostID = id
	}
	return nil
}

// withoutFraming takes off the framing of a schema registry: a zero, with which neither Protobuf nor JSON begins, the
// schema's id in 4 bytes and, before Protobuf, the path of the message in its file: 0 for the first one, LikeEvent.
// https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/index.html#wire-format
func withoutFraming(value []byte) ([]byte, error) {
	switch framed := value[min(5, len(value)):]; {
	case len(framed) > 0 && framed[0] == '{':
		return framed, nil
	case len(framed) > 0 && framed[0] == 0:
		return framed[1:], nil
	}
	return nil, poison(Undecodable, "", "value begins with 0, but is no LikeEvent with a schema registry's framing")
}

// Check returns a *PoisonError if e is not a valid event, or nil.
func (e *Event) Check() error {
	switch {
	case e.PostID == 0:
		return poison(ZeroID, "post_id", "is missing or 0")
	case e.UserID == 0:
		return poison(ZeroID, "user_id", "is missing or 0")
	case !e.Action.known():
		return poison(UnknownAction, "action", "is missing or unknown; LIKE, UNLIKE and DISLIKE are known")
	case e.TimeMs < 0:
		return poison(NegativeTime, "time_ms", "is negative")
	}
	return nil
}

// ResolveTime sets a missing event time to the record's log-append time, and caps one more than MaxAheadMs ahead of it.
func (e *Event) ResolveTime(appendMs int64) (capped bool) {
	if e.TimeMs == 0 {
		e.TimeMs = appendMs
	}
	if limit := appendMs + MaxAheadMs; e.TimeMs > limit {
		e.TimeMs = limit
		return true
	}
	return false
}

const (
	fieldPostID protowire.Number = iota + 1
	fieldUserID
	fieldAction
	fieldTimeMs
	fieldRegion
)

func (e *Event) decodeProto(b []byte) error {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return poison(Undecodable, "", "value is neither Protobuf nor JSON: %v", protowire.ParseError(n))
		}
		b = b[n:]
		switch {
		case typ == protowire.VarintType && num <= fieldTimeMs:
			var v uint64
			if v, n = protowire.ConsumeVarint(b); n >= 0 {
				e.setVarint(num, v)
			}
		case typ == protowire.BytesType && num == fieldRegion:
			var v []byte
			if v, n = protowire.ConsumeBytes(b); n >= 0 {
				var wellFormed bool
				e.Region, wellFormed = ParseRegion(v)
				e.RegionMalformed = !wellFormed
			}
		default: // a field of a later version
			n = protowire.ConsumeFieldValue(num, typ, b)
		}
		if n < 0 {
			return poison(Undecodable, "", "value is neither Protobuf nor JSON: %v", protowire.ParseError(n))
		}
		b = b[n:]
	}
	return nil
}

func (e *Event) setVarint(num protowire.Number, v uint64) {
	switch num {
	case fieldPostID:
		e.PostID = v
	case fieldUserID:
		e.UserID = v
	case fieldAction:
		// An enum has 32 bits; Protobuf drops the higher ones.
		e.Action = Action(min(uint32(v), math.MaxUint8))
	case fieldTimeMs:
		e.TimeMs = int64(v)
	}
}

// AppendEvent appends e as Protobuf.
func AppendEvent(b []byte, e *Event) []byte {
	b = appendVarint(b, fieldPostID, e.PostID)
	b = appendVarint(b, fieldUserID, e.UserID)
	b = appendVarint(b, fieldAction, uint64(e.Action))
	b = appendVarint(b, fieldTimeMs, uint64(e.TimeMs))
	if e.Region != UnknownRegion {
		b = protowire.AppendTag(b, fieldRegion, protowire.BytesType)
		b = protowire.AppendBytes(b, e.Region.bytes())
	}
	return b
}

// appendVarint omits zero, as proto3 does.
func appendVarint(b []byte, num protowire.Number, v uint64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, num, protowire.VarintType), v)
}
