package registry

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/twmb/avro"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"

	"kudos/dev/devtest"
	"kudos/integration/testrun"
	"kudos/producer/bridge"
	"kudos/schema"
)

// The row and the envelope are shaped as Debezium's converter registers them.
const (
	row = `{"type":"record","name":"Value","namespace":"shop.post_likes","fields":[
		{"name":"post_id","type":"long"},{"name":"user_id","type":"long"},
		{"name":"created_at","type":["null",{"type":"long","logicalType":"timestamp-millis"}],"default":null}]}`
	key = `{"type":"record","name":"Key","fields":[
		{"name":"post_id","type":"long"},{"name":"user_id","type":"long"}]}`
	envelope = `{"type":"record","name":"Envelope","namespace":"shop.post_likes","fields":[
		{"name":"before","type":["null","Value"],"default":null},
		{"name":"after","type":["null","Value"],"default":null},
		{"name":"source","type":{"type":"record","name":"Source","fields":[{"name":"ts_ms","type":"long"}]}},
		{"name":"op","type":"string"}]}`
	reaction = `{"type":"object","properties":{"post":{"type":"integer"}}}`
)

type fake struct {
	*srfake.Registry
	t testing.TB
}

func newFake(t testing.TB, options ...srfake.Option) fake {
	f := fake{srfake.New(options...), t}
	t.Cleanup(f.Close)
	return f
}

func (f fake) open(o bridge.RegistryOptions) bridge.Registry {
	f.t.Helper()
	o.URL = f.URL()
	r, err := Open(o)
	require.NoError(f.t, err)
	return r
}

func (f fake) register(subject string, s sr.Schema) int {
	f.t.Helper()
	id, _, err := f.RegisterSchema(subject, s)
	require.NoError(f.t, err)
	return id
}

// envelope registers the schemas of Debezium's changes; the envelope refers to the row.
func (f fake) envelope() (id int, written *avro.Schema) {
	f.t.Helper()
	f.register("row", sr.Schema{Schema: row})
	id = f.register("envelope", sr.Schema{Schema: envelope,
		References: []sr.SchemaReference{{Name: "shop.post_likes.Value", Subject: "row", Version: 1}}})
	var known avro.SchemaCache
	_, err := known.Parse(row)
	require.NoError(f.t, err)
	written, err = known.Parse(envelope)
	require.NoError(f.t, err)
	return id, written
}

func framed(t testing.TB, id int, value []byte) []byte {
	t.Helper()
	var header sr.ConfluentHeader
	b, err := header.AppendEncode(nil, id, nil)
	require.NoError(t, err)
	return append(b, value...)
}

func encoded(t testing.TB, s *avro.Schema, value any) []byte {
	t.Helper()
	b, err := s.Encode(value)
	require.NoError(t, err)
	return b
}

func TestJSON(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	r := f.open(bridge.RegistryOptions{})
	id, written := f.envelope()
	created := time.UnixMilli(1_770_000_000_123).UTC()
	value := encoded(t, written, map[string]any{"before": nil, "op": "c", "source": map[string]any{"ts_ms": int64(5)},
		"after": map[string]any{"post_id": int64(1<<63 - 1), "user_id": int64(-1), "created_at": created}})
	got, err := r.JSON(t.Context(), framed(t, id, value), time.Now())
	require.NoError(t, err)
	require.JSONEq(t, `{"before":null,"after":{"post_id":9223372036854775807,"user_id":-1,"created_at":1770000000123},
		"source":{"ts_ms":5},"op":"c"}`, string(got))
	require.Contains(t, string(got), "9223372036854775807", "JSONEq rounds")

	jsonID := f.register("reaction", sr.Schema{Schema: reaction, Type: sr.TypeJSON})
	got, err = r.JSON(t.Context(), framed(t, jsonID, []byte(`{"post":1}`)), time.Now())
	require.NoError(t, err)
	require.Equal(t, `{"post":1}`, string(got))

	f.Close()
	_, err = r.JSON(t.Context(), framed(t, id, value), time.Now())
	require.NoError(t, err, "a schema is asked for once")
}

func TestWhatCannotBeDecoded(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	r := f.open(bridge.RegistryOptions{})
	id, _ := f.envelope()
	nulls := f.register("nulls", sr.Schema{Schema: `{"type":"array","items":"null"}`})
	for name, c := range map[string]struct {
		id    int
		value string
		says  string
	}{
		"unknown schema": {12345, "x", "the schema registry "},
		"id above 2^31":  {1 << 31, "x", "no id of a schema"},
		"cut off":        {id, "\x00\x02", fmt.Sprintf("schema %d: ", id)},
		"too long":       {nulls, "\x00more", "4 bytes follow the value"},
		"Protobuf": {f.register("proto", sr.Schema{Schema: `message M {}`, Type: sr.TypeProtobuf}), "x",
			"it is neither Avro nor JSON Schema"},
		"no Avro": {f.register("invalid", sr.Schema{Schema: `{"type":"recor"}`}), "x", "recor"},
		// 2^40 elements of no bytes
		"more elements than bytes": {nulls, "\x80\x80\x80\x80\x80\x40\x00", "schema"},
	} {
		t.Run(name, func(t *testing.T) {
			var poison *schema.PoisonError
			for range 2 {
				_, err := r.JSON(t.Context(), framed(t, c.id, []byte(c.value)), time.Now().Add(-spreadTime))
				require.ErrorAs(t, err, &poison)
				require.Equal(t, schema.Undecodable, poison.Reason)
				require.Contains(t, poison.Detail, c.says)
			}
		})
	}
}

// What a registry answers wrongly, or not at all, is no error of the record.
func TestRegistryThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	id, _ := f.envelope()
	for name, answer := range map[string]srfake.Interceptor{
		"error":          func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(503); return true },
		"another server": func(w http.ResponseWriter, r *http.Request) bool { http.NotFound(w, r); return true },
		"another API": func(w http.ResponseWriter, r *http.Request) bool {
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"error_code":404,"message":"HTTP 404 Not Found"}`)
			return true
		},
		"no schema": func(w http.ResponseWriter, _ *http.Request) bool { fmt.Fprint(w, `{}`); return true },
		"too much": func(w http.ResponseWriter, _ *http.Request) bool {
			fmt.Fprintf(w, `{"schema":%q}`, strings.Repeat(" ", maxSchemaBytes))
			return true
		},
	} {
		f.ClearInterceptors()
		f.Intercept(answer)
		r := f.open(bridge.RegistryOptions{})
		_, err := r.JSON(t.Context(), framed(t, id, []byte("x")), time.Time{})
		require.ErrorContains(t, err, "the schema registry (bridge.registry.url): ", name)
		require.NotErrorAs(t, err, new(*schema.PoisonError), name)
	}
}

func TestReferencesAreBounded(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	last := sr.Schema{Schema: `"long"`}
	for i := range maxDepth + 2 {
		subject := fmt.Sprint("s", i)
		f.register(subject, last)
		last = sr.Schema{Schema: fmt.Sprintf(`{"type":"record","name":"r%d","fields":[]}`, i),
			References: []sr.SchemaReference{{Name: subject, Subject: subject, Version: 1}}}
	}
	value := framed(t, f.register("last", last), []byte("x"))
	_, err := f.open(bridge.RegistryOptions{}).JSON(t.Context(), value, time.Now())
	require.ErrorAs(t, err, new(*schema.PoisonError))
	require.ErrorContains(t, err, "it refers to more than")

	wide := sr.Schema{Schema: `"long"`}
	for i := range maxReferences + 1 {
		subject := fmt.Sprint("w", i)
		f.register(subject, sr.Schema{Schema: fmt.Sprintf(`{"type":"record","name":"w%d","fields":[]}`, i)})
		wide.References = append(wide.References, sr.SchemaReference{Name: subject, Subject: subject, Version: 1})
	}
	value = framed(t, f.register("wide", wide), []byte("x"))
	_, err = f.open(bridge.RegistryOptions{}).JSON(t.Context(), value, time.Now())
	require.ErrorContains(t, err, "it refers to more than")
}

// A dead letter has room for a short message.
func TestMessagesAreCut(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.Intercept(func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprintf(w, `{"error_code":40403,"message":%q}`, strings.Repeat("x", 1<<20))
		return true
	})
	_, err := f.open(bridge.RegistryOptions{}).JSON(t.Context(), framed(t, 1, []byte("x")), time.Time{})
	var poison *schema.PoisonError
	require.ErrorAs(t, err, &poison)
	require.LessOrEqual(t, len(poison.Detail), maxTextBytes)
}

// A schema may reach another node of the registry later than its first record does.
func TestNewSchemaIsWaitedFor(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	r := f.open(bridge.RegistryOptions{})
	value := framed(t, 7, []byte{0})
	_, err := r.JSON(t.Context(), value, time.Now())
	require.ErrorContains(t, err, "the schema registry (bridge.registry.url): ")
	require.NotErrorAs(t, err, new(*schema.PoisonError))
	_, err = r.JSON(t.Context(), value, time.Now().Add(-spreadTime))
	require.ErrorAs(t, err, new(*schema.PoisonError))
}

// The branch of a union that was written decides, and numbers keep their meaning.
func TestUnionsAndNumbers(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	text := `[{"type":"record","name":"Liked","fields":[{"name":"post","type":"long"}]},
		{"type":"record","name":"Unliked","fields":[{"name":"post","type":"long"},{"name":"removed","type":"boolean"},
		{"name":"id","type":{"type":"bytes","logicalType":"decimal","precision":20,"scale":0}},
		{"name":"day","type":{"type":"int","logicalType":"date"}}]}]`
	id := f.register("union", sr.Schema{Schema: text})
	// the second branch; post 1; removed; 2 bytes: 0x3031 = 12337; day 1
	value := []byte{2, 2, 1, 4, 0x30, 0x31, 2}
	got, err := f.open(bridge.RegistryOptions{}).JSON(t.Context(), framed(t, id, value), time.Now())
	require.NoError(t, err)
	require.JSONEq(t, `{"post":1,"removed":true,"id":12337,"day":86400000}`, string(got))
}

func TestAuthentication(t *testing.T) {
	t.Parallel()
	f := newFake(t, srfake.WithAuth("Basic a3Vkb3M6c2VjcmV0"))
	f.SeedSchema("nulls", 1, 1, sr.Schema{Schema: `{"type":"array","items":"null"}`})
	got, err := f.open(bridge.RegistryOptions{User: "kudos", Password: "secret"}).JSON(t.Context(),
		framed(t, 1, []byte{0}), time.Now())
	require.NoError(t, err)
	require.Equal(t, "[]", string(got))
	_, err = f.open(bridge.RegistryOptions{}).JSON(t.Context(), framed(t, 1, []byte{0}), time.Now())
	require.ErrorContains(t, err, "the schema registry (bridge.registry.url): ")
	require.NotErrorAs(t, err, new(*schema.PoisonError))
}

// A bridge publishes what is in Avro, waits for a registry that does not answer, and continues after invalid records.
func TestBridgeReadsAvro(t *testing.T) {
	t.Parallel()
	const topic = "shop.shop.post_likes"
	kafka, f := devtest.NewKafka(t), newFake(t)
	for _, name := range []string{schema.TopicLikes, schema.TopicDLT, topic} {
		_, err := kadm.NewClient(kafka.Client).CreateTopic(t.Context(), 1, 1, nil, name)
		require.NoError(t, err)
	}
	id, written := f.envelope()
	keyID := f.register("key", sr.Schema{Schema: key})
	keys := avro.MustParse(key)
	now := time.Now().UnixMilli()
	for post := range int64(10) {
		ids := map[string]any{"post_id": post + 1, "user_id": int64(7)}
		kafka.Write(&kgo.Record{Topic: topic, Key: framed(t, keyID, encoded(t, keys, ids)),
			Value: framed(t, id, encoded(t, written, map[string]any{"before": nil, "after": ids, "op": "c",
				"source": map[string]any{"ts_ms": now}}))},
			&kgo.Record{Topic: topic, Timestamp: time.Now().Add(-2 * spreadTime),
				Value: framed(t, 999, []byte("x"))})
	}
	var failed bool
	f.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if !failed && strings.Contains(r.URL.Path, "/ids/") {
			failed = true
			w.WriteHeader(http.StatusBadGateway)
			return true
		}
		return false
	})
	o := bridge.DefaultOptions()
	o.Topic, o.Columns.Time, o.ParkInterval, o.OpenRegistry = topic, "created_at", 20*time.Millisecond, Open
	o.Registry.URL = f.URL()
	b, err := bridge.New(o, kafka.Options, devtest.Log(), prometheus.NewRegistry())
	require.NoError(t, err)
	stop := testrun.Start(t, "the bridge", 30*time.Second, b.Run)
	devtest.WaitFor(t, "10 events and 10 dead letters", func() (bool, any) {
		events, dead := len(kafka.Records(schema.TopicLikes, 0)), len(kafka.Records(schema.TopicDLT, 0))
		return events == 10 && dead == 10, fmt.Sprint(events, dead)
	}, nil)
	stop()
	require.True(t, failed)
	require.Equal(t, byte(0), kafka.Records(schema.TopicDLT, 0)[0].Value[0], "a dead letter has the bytes that came")
}
