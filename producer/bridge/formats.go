package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/processor/fold/classify"
	"kudos/schema"
)

// format decodes a record of the source. It returns nil if the record says nothing about a row.
type format func(rec *kgo.Record) (*change, error)

var formats = map[string]format{"debezium": debezium, "json": plainJSON, "cloudevents": cloudEvents}

// maxSourceBytes bounds a source record, before it is decoded.
const maxSourceBytes = 1 << 20

func (b *Bridge) decode(ctx context.Context, rec *kgo.Record) (*change, error) {
	if len(rec.Value) > maxSourceBytes {
		return nil, &schema.PoisonError{Reason: schema.OverSize,
			Detail: fmt.Sprintf("value has %d bytes, the limit is %d", len(rec.Value), maxSourceBytes)}
	}
	if b.registry != nil {
		plain := *rec
		for _, part := range []*[]byte{&plain.Key, &plain.Value} {
			var err error
			if isKey := part == &plain.Key; framed(*part) && (!isKey || b.mapping.captured) {
				if *part, err = b.registry.JSON(ctx, *part, rec.Timestamp); err != nil {
					return nil, err
				}
			}
		}
		rec = &plain
	}
	c, err := formats[b.opts.Format](rec)
	if err != nil && !errors.As(err, new(*schema.PoisonError)) {
		err = &schema.PoisonError{Reason: schema.Undecodable, Detail: err.Error()}
	}
	return c, err
}

// framed means that a serializer for a schema registry put a zero and the schema's id in front.
func framed(value []byte) bool { return len(value) > 5 && value[0] == 0 }

// withoutFraming takes that off JSON. Without a registry, JSON is known by how it begins.
func withoutFraming(value []byte) []byte {
	if framed(value) && value[5] == '{' {
		return value[5:]
	}
	return value
}

// envelope is Debezium's change event, as Kafka Connect's JSON converter writes it: with a schema, in a payload.
type envelope struct {
	Op     string
	After  map[string]json.RawMessage
	Source struct {
		TsMs int64 `json:"ts_ms"`
	}
	Payload json.RawMessage
}

// debezium decodes a change event of Debezium. https://debezium.io/documentation/reference/stable/connectors/mysql.html
func debezium(rec *kgo.Record) (*change, error) {
	if len(rec.Value) == 0 {
		return nil, nil // the tombstone after a deletion
	}
	var e envelope
	if err := json.Unmarshal(withoutFraming(rec.Value), &e); err != nil {
		return nil, fmt.Errorf("not a change event in JSON: %w", err)
	}
	if e.Op == "" && e.Payload != nil {
		if err := json.Unmarshal(e.Payload, &e); err != nil {
			return nil, fmt.Errorf("not a change event in JSON: payload: %w", err)
		}
	}
	key, err := keyOf(rec)
	if err != nil {
		return nil, err
	}
	c := &change{row: e.After, key: key, madeMs: e.Source.TsMs}
	switch e.Op {
	case "c", "u":
	case "r":
		c.snapshot = true
	case "d":
		c.row, c.removed = key, true
	case "m":
		return nil, nil // a message in the log, not a row
	case "t":
		return nil, errors.New("the table was truncated, which names no rows: see docs/migration.md")
	default:
		return nil, fmt.Errorf("%q is not an operation of a change event", e.Op)
	}
	return c, nil
}

func keyOf(rec *kgo.Record) (map[string]json.RawMessage, error) {
	var key map[string]json.RawMessage
	if len(rec.Key) == 0 {
		return nil, nil
	}
	if err := json.Unmarshal(withoutFraming(rec.Key), &key); err != nil {
		return nil, fmt.Errorf("the key is not JSON: %w", err)
	}
	if payload, ok := key["payload"]; ok && key["schema"] != nil {
		key = nil
		if err := json.Unmarshal(payload, &key); err != nil {
			return nil, fmt.Errorf("the key's payload is not JSON: %w", err)
		}
	}
	return key, nil
}

// plainJSON decodes an object whose fields are the columns.
func plainJSON(rec *kgo.Record) (*change, error) {
	if len(rec.Value) == 0 {
		return nil, nil
	}
	c := &change{}
	if err := json.Unmarshal(withoutFraming(rec.Value), &c.row); err != nil {
		return nil, fmt.Errorf("not a JSON object: %w", err)
	}
	return c, nil
}

// cloudEvents decodes a CloudEvent 1.0 whose data is a JSON object, in structured or binary mode.
// https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/kafka-protocol-binding.md
func cloudEvents(rec *kgo.Record) (*change, error) {
	var e struct {
		SpecVersion string
		Time        string
		Data        json.RawMessage
		DataBase64  []byte `json:"data_base64"`
	}
	if strings.HasPrefix(classify.Header(rec, "content-type"), "application/cloudevents+json") {
		if err := json.Unmarshal(rec.Value, &e); err != nil {
			return nil, fmt.Errorf("not a CloudEvent in JSON: %w", err)
		}
		if e.Data == nil {
			e.Data = e.DataBase64
		}
	} else {
		e.SpecVersion, e.Time = classify.Header(rec, "ce_specversion"), classify.Header(rec, "ce_time")
		e.Data = withoutFraming(rec.Value)
	}
	if e.SpecVersion != "1.0" {
		return nil, fmt.Errorf("specversion is %.20q, not 1.0: not a CloudEvent", e.SpecVersion)
	}
	c := &change{}
	if err := json.Unmarshal(e.Data, &c.row); err != nil {
		return nil, fmt.Errorf("the data of the CloudEvent is not a JSON object: %w", err)
	}
	if e.Time != "" {
		at, err := time.Parse(time.RFC3339, e.Time)
		if err != nil {
			return nil, fmt.Errorf("the CloudEvent's time: %w", err)
		}
		c.madeMs = at.UnixMilli()
	}
	return c, nil
}
