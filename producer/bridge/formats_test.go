package bridge

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/schema"
)

// What Debezium 3.5 writes for a table with the key (post_id, user_id), with Kafka Connect's JSON converter.
const (
	inserted = `{"before":null,"after":{"post_id":1,"user_id":2,"created_at":"2025-11-24T16:00:00Z"},"source":` +
		`{"version":"3.5.0.Final","connector":"mariadb","name":"shop","ts_ms":1764000000000,"snapshot":"false",` +
		`"db":"shop","table":"post_likes","server_id":1,"file":"binlog.000002","pos":1,"row":0},"op":"c",` +
		`"ts_ms":1764000000321}`
	withSchema = `{"schema":{"type":"struct","fields":[{"type":"int64","field":"op"}],"name":"x.Envelope"},"payload":`
)

func TestFormats(t *testing.T) {
	row := fields(t, `{"post_id":1,"user_id":2,"created_at":"2025-11-24T16:00:00Z"}`)
	key := fields(t, `{"post_id":1,"user_id":2}`)
	insert := &change{row: row, key: key, madeMs: arrivedMs}
	read, remove := *insert, &change{row: key, key: key, madeMs: arrivedMs, removed: true}
	read.snapshot = true
	plain, cloud := &change{row: key}, &change{row: key, madeMs: arrivedMs}
	snapshot := strings.NewReplacer(`"op":"c"`, `"op":"r"`, `"snapshot":"false"`, `"snapshot":"incremental"`)
	deleted := strings.NewReplacer(`"op":"c"`, `"op":"d"`, `"before":null,"after"`, `"after":null,"before"`)
	framed := func(s string) string { return "\x00\x00\x00\x00\x07" + s }
	const data, bareKey = `{"post_id":1,"user_id":2}`, `{"post_id":1,"user_id":2}`
	const encoded = `,"data_base64":"eyJwb3N0X2lkIjoxLCJ1c2VyX2lkIjoyfQ=="}`
	const event = `"specversion":"1.0","id":"a","source":"/app","type":"like","time":"2025-11-24T16:00:00Z"`
	structured := map[string]string{"content-type": "application/cloudevents+json; charset=UTF-8"}
	binary := map[string]string{"ce_specversion": "1.0", "ce_id": "a", "ce_source": "/app", "ce_type": "like",
		"ce_time": "2025-11-24T16:00:00Z", "content-type": "application/json"}
	for name, tt := range map[string]struct {
		format, key, value string
		headers            map[string]string
		want               *change
	}{
		"inserted":             {"debezium", bareKey, inserted, nil, insert},
		"inserted, schemas":    {"debezium", withSchema + bareKey + "}", withSchema + inserted + "}", nil, insert},
		"inserted, registry":   {"debezium", framed(bareKey), framed(inserted), nil, insert},
		"snapshot":             {"debezium", bareKey, snapshot.Replace(inserted), nil, &read},
		"deleted":              {"debezium", bareKey, deleted.Replace(inserted), nil, remove},
		"tombstone":            {"debezium", bareKey, "", nil, nil},
		"message":              {"debezium", "", `{"op":"m","message":{}}`, nil, nil},
		"JSON":                 {"json", "x", data, nil, plain},
		"JSON, registry":       {"json", "x", framed(data), nil, plain},
		"JSON, tombstone":      {"json", "x", "", nil, nil},
		"CloudEvent":           {"cloudevents", "", "{" + event + `,"data":` + data + "}", structured, cloud},
		"CloudEvent, base64":   {"cloudevents", "", "{" + event + encoded, structured, cloud},
		"CloudEvent, binary":   {"cloudevents", "", data, binary, cloud},
		"CloudEvent, registry": {"cloudevents", "", framed(data), binary, cloud},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := decoder(tt.format).decode(t.Context(), record(tt.key, tt.value, tt.headers))
			require.NoError(t, err)
			require.Equal(t, tt.want, got)
		})
	}
}

func decoder(format string) *Bridge {
	o := DefaultOptions()
	o.Format = format
	return &Bridge{opts: o, mapping: newMapping(&o)}
}

func record(key, value string, headers map[string]string) *kgo.Record {
	rec := arrived()
	rec.Key, rec.Value = []byte(key), []byte(value)
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		rec.Headers = append(rec.Headers, kgo.RecordHeader{Key: name, Value: []byte(headers[name])})
	}
	return rec
}

func TestFormatsRefuse(t *testing.T) {
	binary, draft := map[string]string{"ce_specversion": "1.0"}, map[string]string{"ce_specversion": "0.3"}
	badTime := map[string]string{"ce_specversion": "1.0", "ce_time": "now"}
	structured := map[string]string{"content-type": "application/cloudevents+json"}
	for name, tt := range map[string]struct {
		format, key, value string
		headers            map[string]string
		want               string
	}{
		"no JSON":             {"debezium", "{}", "\x00\x01\x02", nil, "not a change event in JSON"},
		"a list":              {"debezium", "{}", "[]", nil, "not a change event in JSON"},
		"a payload of text":   {"debezium", "{}", withSchema + `"x"}`, nil, "payload"},
		"no operation":        {"debezium", "{}", `{"post_id":1}`, nil, `"" is not an operation`},
		"truncated":           {"debezium", "", `{"op":"t"}`, nil, "the table was truncated"},
		"a key of text":       {"debezium", "7", inserted, nil, "the key is not JSON"},
		"a key's payload":     {"debezium", withSchema + "7}", inserted, nil, "the key's payload is not JSON"},
		"a number":            {"json", "", "7", nil, "not a JSON object"},
		"CloudEvents 0.3":     {"cloudevents", "", "{}", draft, `specversion is "0.3"`},
		"no CloudEvent":       {"cloudevents", "", "{}", nil, `specversion is ""`},
		"structured, no JSON": {"cloudevents", "", "x", structured, "not a CloudEvent in JSON"},
		"data of text":        {"cloudevents", "", `"x"`, binary, "the data of the CloudEvent"},
		"a time of text":      {"cloudevents", "", "{}", badTime, "the CloudEvent's time"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := decoder(tt.format).decode(t.Context(), record(tt.key, tt.value, tt.headers))
			var poison *schema.PoisonError
			require.ErrorAs(t, err, &poison)
			require.Equal(t, schema.Undecodable, poison.Reason)
			require.Contains(t, poison.Detail, tt.want)
		})
	}
	_, err := decoder("json").decode(t.Context(), record("", strings.Repeat(" ", maxSourceBytes+1), nil))
	require.ErrorContains(t, err, "the limit is 1048576")
}
