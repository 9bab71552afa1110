package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"google.golang.org/protobuf/proto"
	"gopkg.in/yaml.v3"

	"kudos/dev/testkit/contract"
	"kudos/schema"
	"kudos/schema/kudosv1"
)

// asyncAPI is what schema/asyncapi.yaml says about topics and their records.
type asyncAPI struct {
	Channels map[string]struct {
		Address  string
		Messages map[string]reference
	}
	Components struct{ Messages map[string]asyncMessage }
}

type reference struct {
	Ref string `yaml:"$ref"`
}

func (r reference) name() string { return strings.TrimSuffix(path.Base(r.Ref), ".schema.json") }

type asyncMessage struct {
	Name     string
	Headers  struct{ Required []string }
	Bindings struct {
		Kafka struct{ Key struct{ Pattern string } }
	}
	Payload struct {
		reference `yaml:",inline"` // of a JSON Schema
		Schema    string           // Protobuf; schema's TestAsyncAPI compares it with the .proto file
	}
}

// inProtobuf has an empty message for each that is in Protobuf.
var inProtobuf = map[string]proto.Message{"LikeEvent": &kudosv1.LikeEvent{}, "VoidEvent": &kudosv1.LikeEvent{},
	"LikeUpdate": &kudosv1.LikeUpdate{}}

// describes returns nil if a record is such a message. A tombstone has no payload.
func (m asyncMessage) describes(t testing.TB, rec *kgo.Record) error {
	require.NotEmpty(t, m.Name)
	key, headers := m.Bindings.Kafka.Key.Pattern, map[string]bool{}
	if !regexp.MustCompile(key).Match(rec.Key) {
		return fmt.Errorf("the key is not %s", key)
	}
	for _, h := range rec.Headers {
		headers[h.Key] = true
	}
	for _, name := range m.Headers.Required {
		if !headers[name] {
			return fmt.Errorf("no header %s", name)
		}
	}
	switch {
	case rec.Value == nil:
	case m.Payload.Schema != "":
		require.Contains(t, inProtobuf, m.Name)
		message := proto.Clone(inProtobuf[m.Name])
		if err := proto.Unmarshal(rec.Value, message); err != nil {
			return err
		}
		if unknown := message.ProtoReflect().GetUnknown(); len(unknown) > 0 {
			return fmt.Errorf("unknown fields %q", unknown)
		}
	case m.Payload.Ref == "": // any value
	case !json.Valid(rec.Value):
		return errors.New("it is not JSON")
	default:
		return contract.Obeys(t, contract.Read(t, "../schema/json", m.Payload.name()), rec.Value)
	}
	return nil
}

// requireDescribed: each record in each topic is a message of schema/asyncapi.yaml, and there is one of each. Only a
// record with a dead letter is none.
func (s *system) requireDescribed() {
	text, err := os.ReadFile("../schema/asyncapi.yaml")
	require.NoError(s.t, err)
	var document asyncAPI
	require.NoError(s.t, yaml.Unmarshal(text, &document))
	dead, seen := map[string]bool{}, map[string]bool{}
	s.readAll(schema.TopicDLT, func(rec *kgo.Record) {
		of := map[string]string{}
		for _, h := range rec.Headers {
			of[h.Key] = string(h.Value)
		}
		dead[of[schema.HeaderDLTTopic]+"/"+of[schema.HeaderDLTPartition]+"@"+of[schema.HeaderDLTOffset]] = true
	})
	for _, channel := range document.Channels {
		s.readAll(channel.Address, func(rec *kgo.Record) {
			var why error
			for _, m := range channel.Messages {
				err := document.Components.Messages[m.name()].describes(s.t, rec)
				if err == nil {
					seen[m.name()+" in "+channel.Address] = true
					return
				}
				why = errors.Join(why, fmt.Errorf("%s: %w", m.name(), err))
			}
			at := fmt.Sprintf("%s/%d@%d", rec.Topic, rec.Partition, rec.Offset)
			require.True(s.t, dead[at], "%s: key %q, value %q: %v", at, rec.Key, rec.Value, why)
		})
		for _, m := range channel.Messages {
			require.Contains(s.t, seen, m.name()+" in "+channel.Address)
		}
	}
	require.NotEmpty(s.t, dead)
}
