package schema

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"

	"kudos/dev/testkit/contract"
)

// The examples in the schemas are what the program reads and writes.
func TestJSONSchemasHaveValidExamples(t *testing.T) {
	decode := map[string]func([]byte) error{
		"like-event": func(b []byte) error { return DecodeEvent([]byte("42"), b, new(Event)) },
		"ranking": func(b []byte) error {
			r, err := DecodeRanking(b)
			if err == nil {
				var again []byte
				again, err = EncodeRanking(r)
				require.JSONEq(t, string(b), string(again))
			}
			return err
		},
		"milestone": func(b []byte) error {
			m, err := DecodeMilestone(b)
			if err == nil {
				require.JSONEq(t, string(b), string(EncodeMilestone(m)))
			}
			return err
		},
		"exclusion": func(b []byte) error { _, err := DecodeExclusion(b); return err },
		"notification": func(b []byte) error {
			var event struct{ Data json.RawMessage }
			require.NoError(t, json.Unmarshal(b, &event))
			_, err := DecodeMilestone(event.Data)
			return err
		},
	}
	for name, decode := range decode {
		text, err := os.ReadFile("json/" + name + ".schema.json")
		require.NoError(t, err)
		var document struct{ Examples []json.RawMessage }
		require.NoError(t, json.Unmarshal(text, &document))
		require.NotEmpty(t, document.Examples)
		for _, example := range document.Examples {
			require.NoError(t, contract.Obeys(t, contract.Read(t, "json", name), example))
			require.NoError(t, decode(example))
		}
	}
}

// Whatever obeys the schema of events is accepted, and what is accepted by its names obeys it, but for what the schema
// does not allow to be sure: 0 as a text, null, and numbers with a fraction or an exponent.
func TestJSONSchemaOfEventsIsWhatIsAccepted(t *testing.T) {
	s, rng, valid := contract.Read(t, "json", "like-event"), rand.New(rand.NewPCG(1, 2)), 0
	values := map[string][]string{
		"post_id": {`1`, `"1"`, `0`, `"0"`, `-1`, `18446744073709551615`, `"18446744073709551615"`, `18446744073709551616`,
			`"18446744073709551616"`, `"7x"`, `""`, `true`, `[]`, `"007"`},
		"user_id": {`2`, `"2"`, `0`, `"00"`, `18446744073709551615`, `"99999999999999999999"`, `{}`},
		"action":  {`"LIKE"`, `"UNLIKE"`, `"DISLIKE"`, `true`, `false`, `"like"`, `1`, `""`},
		"time_ms": {`1700000000000`, `0`, `null`, `-1`, `9223372036854775807`, `9223372036854775808`, `"x"`, `true`},
		"region":  {`"DE"`, `"Mars"`, `7`, `null`, `{}`},
		"other":   {`1`},
	}
	names := slices.Sorted(func(yield func(string) bool) {
		for name := range values {
			if !yield(name) {
				return
			}
		}
	})
	for range 20_000 {
		var parts []string
		for _, name := range names {
			if rng.IntN(5) > 0 {
				parts = append(parts, fmt.Sprintf("%q:%s", name, values[name][rng.IntN(len(values[name]))]))
			}
		}
		value := []byte("{" + strings.Join(parts, ",") + "}")
		err := DecodeEvent([]byte("1"), value, new(Event))
		obeyed := contract.Obeys(t, s, value)
		if obeyed == nil {
			valid++
			if !strings.Contains(string(value), `"post_id"`) || strings.Contains(string(value), `"post_id":1,`) {
				require.NoError(t, err, "%s", value)
			}
		} else if err == nil {
			require.Regexp(t, `"post_id":("0"|0)`, string(value), "the schema refuses it: %v", obeyed)
		}
	}
	require.Greater(t, valid, 100)
}

var protoComment = regexp.MustCompile(`(?m)//.*$`)

// The messages in the AsyncAPI document are those of the .proto file, and its topics are all. An integration test
// compares it with what is sent.
func TestAsyncAPI(t *testing.T) {
	text, err := os.ReadFile("asyncapi.yaml")
	require.NoError(t, err)
	var document struct {
		Channels   map[string]struct{ Address string }
		Components struct {
			Messages map[string]struct{ Payload map[string]any }
		}
	}
	require.NoError(t, yaml.Unmarshal(text, &document))
	proto, err := os.ReadFile("proto/kudos/v1/likes.proto")
	require.NoError(t, err)
	plain := func(s string) string {
		return strings.Join(strings.Fields(protoComment.ReplaceAllString(s, "")), " ")
	}
	shown := 0
	for name, m := range document.Components.Messages {
		if schema, ok := m.Payload["schema"].(string); ok {
			for _, part := range strings.SplitAfter(plain(schema), " } ")[0:] {
				part = strings.TrimPrefix(part, `syntax = "proto3"; `)
				require.Contains(t, plain(string(proto))+" ", strings.TrimSpace(part), name)
				shown++
			}
		}
		if file, ok := m.Payload["$ref"].(string); ok {
			contract.Read(t, "json", strings.TrimSuffix(strings.TrimPrefix(file, "json/"), ".schema.json"))
			shown++
		}
	}
	require.Equal(t, 11, shown)
	var topics, all []string
	for _, channel := range document.Channels {
		topics = append(topics, channel.Address)
	}
	for _, topic := range Topics(1, 1) {
		all = append(all, topic.Name)
	}
	require.ElementsMatch(t, all, topics)
}
