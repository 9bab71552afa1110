package bridge

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/schema"
	"kudos/stream"
)

// mapping turns the changes of a source into events. It is a pure function of a record and the clock.
type mapping struct {
	Columns
	reactions map[string]schema.Action
	// captured means that the source is a table: each row has all columns, and each change of it is in the log, in
	// order. Otherwise the source has events, in which fields may be missing.
	captured bool
}

func newMapping(o *Options) *mapping {
	reactions, _ := parseReactions(o.Reactions) // Validate has checked it
	return &mapping{o.Columns, reactions, o.Format == "debezium"}
}

// change is what a source record says: a row of a table, or the fields of an event.
type change struct {
	row      map[string]json.RawMessage
	key      map[string]json.RawMessage // of the record, if the source is a table
	removed  bool                       // the row is gone
	snapshot bool                       // the row was read from the table; it may have changed long ago
	madeMs   int64                      // when the change was made, by the source's clock; 0: unknown
}

// event returns the event of a change. clock is the latest time of an event from this partition.
//
// Of two changes of a row, the later one must have the event time that wins. A database's clock may step back, so
// changes have non-decreasing times: they are made no earlier than everything before them in the partition. A row of a
// snapshot keeps its own time, which may be years ago: all changes of it come later in the log.
func (m *mapping) event(c *change, rec *kgo.Record, clock *int64) (e schema.Event, err error) {
	if m.captured {
		if err := m.check(c); err != nil {
			return e, err
		}
	}
	if e.PostID, err = id(c.row, m.PostID); err != nil {
		return e, err
	}
	if e.UserID, err = id(c.row, m.UserID); err != nil {
		return e, err
	}
	if e.Action, err = m.action(c); err != nil {
		return e, err
	}
	e.Region, _ = schema.ParseRegion(textOf(c.row[m.Region])) // a malformed region must not lose the like
	own, err := timeOf(c.row[m.Time])
	if err != nil {
		return e, &schema.PoisonError{Reason: schema.Undecodable, Field: m.Time, Detail: err.Error()}
	}
	arrived := rec.Timestamp.UnixMilli()
	made := min(cmp.Or(c.madeMs, arrived), arrived+schema.MaxAheadMs)
	switch {
	case c.snapshot:
		e.TimeMs = min(cmp.Or(own, made), made)
		*clock = max(*clock, e.TimeMs)
	case !m.captured && own > 0:
		e.TimeMs = own
	default:
		*clock = max(*clock, made)
		e.TimeMs = *clock
	}
	return e, e.Check()
}

// check parks the partition if the table is not what the settings say: all of its rows would become dead letters.
func (m *mapping) check(c *change) error {
	for _, column := range []string{m.PostID, m.UserID} {
		if _, ok := c.key[column]; !ok || len(c.key) != 2 {
			return stream.Park(stream.CauseRecord,
				"set message.key.columns of the connector, and let it fill a new topic (docs/migration.md)",
				"the key of a record must be %s and %s, so that all changes of a reaction are in one partition",
				m.PostID, m.UserID)
		}
	}
	for setting, column := range map[string]string{"post_id": m.PostID, "user_id": m.UserID, "time": m.Time,
		"deleted": m.Deleted, "reaction": m.Reaction, "region": m.Region} {
		if _, ok := c.row[column]; !ok && column != "" && !c.removed {
			return stream.Park(stream.CauseRecord, "correct bridge.columns."+setting, "a row has no column %s", column)
		}
	}
	return nil
}

func (m *mapping) action(c *change) (schema.Action, error) {
	if c.removed || truthy(c.row[m.Deleted]) {
		return schema.Unlike, nil
	}
	if m.Reaction == "" {
		return schema.Like, nil
	}
	value := textOf(c.row[m.Reaction])
	action := m.reactions[value]
	if action == 0 {
		return 0, &schema.PoisonError{Reason: schema.UnknownAction, Field: m.Reaction,
			Detail: fmt.Sprintf("%.40q is not in bridge.reactions", value)}
	}
	return action, nil
}

// textOf is a string's content, or the value as it is written; "" if there is none or it is null.
func textOf(raw json.RawMessage) string {
	if len(raw) == 0 || string(raw) == "null" {
		return ""
	}
	var text string
	if raw[0] == '"' && json.Unmarshal(raw, &text) == nil {
		return text
	}
	return string(raw)
}

func truthy(raw json.RawMessage) bool {
	switch textOf(raw) {
	case "", "0", "false":
		return false
	}
	return true
}

func id(row map[string]json.RawMessage, column string) (uint64, error) {
	raw := row[column]
	id, err := strconv.ParseUint(textOf(raw), 10, 64)
	if err != nil {
		return 0, &schema.PoisonError{Reason: schema.Undecodable, Field: column,
			Detail: fmt.Sprintf("%.40s is not an id, a whole number from 1 to 2^64-1", raw)}
	}
	return id, nil
}

// timeOf parses a time: a text in RFC 3339, or as MySQL writes it (then in UTC), or a number since 1970, whose unit
// follows from its size; 0 if there is none.
func timeOf(raw json.RawMessage) (ms int64, err error) {
	text := textOf(raw)
	if text == "" {
		return 0, nil
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		switch { // what is before the year 5138 in one unit is before 1973 in the next
		case n < 0:
			return 0, fmt.Errorf("%d is before 1970", n)
		case n < 1e11:
			return n * 1000, nil
		case n < 1e14:
			return n, nil
		case n < 1e17:
			return n / 1e3, nil
		}
		return n / 1e6, nil
	}
	for _, layout := range []string{time.RFC3339, time.DateTime} { // with or without a fraction
		if at, err := time.Parse(layout, text); err == nil {
			return at.UnixMilli(), nil
		}
	}
	return 0, fmt.Errorf("%.40q is not a time", text)
}
