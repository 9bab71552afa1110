// Package registry decodes records whose schema is in a schema registry with Confluent's API: Apicurio, Confluent,
// Karapace, Redpanda.
package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/twmb/avro"
	"github.com/twmb/franz-go/pkg/sr"

	"kudos/producer/bridge"
	"kudos/schema"
)

const (
	timeout        = 5 * time.Second // of a request
	maxSchemaBytes = 8 << 20
	maxTextBytes   = 300  // of a registry's message in errors and dead letters
	maxSchemas     = 1000 // kept; all are dropped when there are more
	maxReferences  = 100  // schemas that a schema refers to, directly or not
	maxDepth       = 10   // of references
	// spreadTime is how long a schema may take from one node of a registry to the others: until then, a record waits.
	spreadTime = time.Minute
	askAgain   = 5 * time.Second // for a schema that is not there
)

// Open returns a client; it connects to nothing yet.
func Open(o bridge.RegistryOptions) (bridge.Registry, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	opts := []sr.ClientOpt{sr.URLs(o.URL), sr.UserAgent("kudos"),
		sr.HTTPClient(&http.Client{Timeout: timeout, Transport: limited{transport}})}
	if o.User != "" {
		opts = append(opts, sr.BasicAuth(o.User, o.Password))
	}
	client, err := sr.NewClient(opts...)
	if err != nil {
		return nil, fmt.Errorf("bridge.registry: %w", err)
	}
	return &registry{client: client, schemas: map[int]known{}}, nil
}

// limited bounds the responses.
type limited struct{ http.RoundTripper }

func (l limited) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := l.RoundTripper.RoundTrip(r)
	if err == nil {
		resp.Body = http.MaxBytesReader(nil, resp.Body, maxSchemaBytes)
	}
	return resp, err
}

type registry struct {
	client *sr.Client

	mu      sync.Mutex
	schemas map[int]known // by id
}

// known is what the registry said of a schema. It never changes, but for one that is not there.
type known struct {
	decode  toJSON
	missing error
	asked   time.Time
}

// toJSON decodes a value of one schema.
type toJSON func(value []byte) ([]byte, error)

// JSON implements bridge.Registry.
func (r *registry) JSON(ctx context.Context, value []byte, written time.Time) ([]byte, error) {
	var header sr.ConfluentHeader
	id, body, err := header.DecodeID(value)
	if err != nil || id > math.MaxInt32 {
		return nil, undecodable("no id of a schema: %d", id)
	}
	s, err := r.schema(ctx, id)
	switch {
	case err != nil:
		return nil, err
	case s.missing != nil && time.Since(written) < spreadTime:
		return nil, s.missing
	case s.missing != nil:
		return nil, undecodable("%v", s.missing)
	}
	plain, err := s.decode(body)
	if err != nil {
		return nil, undecodable("schema %d: %v", id, err)
	}
	return plain, nil
}

func undecodable(format string, args ...any) error {
	return &schema.PoisonError{Reason: schema.Undecodable, Detail: cut(fmt.Sprintf(format, args...))}
}

func cut(text string) string { return strings.ToValidUTF8(text[:min(len(text), maxTextBytes)], "") }

// schema returns what is known of a schema, and asks the registry if that is nothing.
func (r *registry) schema(ctx context.Context, id int) (known, error) {
	r.mu.Lock()
	s, ok := r.schemas[id]
	r.mu.Unlock()
	if ok && (s.missing == nil || time.Since(s.asked) < askAgain) {
		return s, nil
	}
	texts, kind, err := r.texts(ctx, id)
	switch {
	case isMissing(err):
		s = known{missing: described(err), asked: time.Now()}
	case err != nil && !errors.Is(err, errReferences):
		return s, described(err)
	default:
		decode := toJSON(nil)
		if err == nil {
			decode, err = compile(kind, texts)
		}
		if err != nil {
			decode = func([]byte) ([]byte, error) { return nil, err }
		}
		s = known{decode: decode}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.schemas) >= maxSchemas {
		clear(r.schemas)
	}
	r.schemas[id] = s
	return s, nil
}

// isMissing tells the registry's own answer, such as 40403, from that of a server which is none.
func isMissing(err error) bool {
	var response *sr.ResponseError
	return errors.As(err, &response) && response.StatusCode == http.StatusNotFound && response.ErrorCode/100 == 404
}

func described(err error) error {
	var response *sr.ResponseError
	if errors.As(err, &response) {
		return fmt.Errorf("the schema registry (bridge.registry.url): HTTP status %d: %s", response.StatusCode,
			cut(response.Error()))
	}
	return fmt.Errorf("the schema registry (bridge.registry.url): %w", err)
}

const unknownKind = sr.SchemaType(-1)

var errReferences = fmt.Errorf("it refers to more than %d others, or over more than %d steps", maxReferences, maxDepth)

// texts returns a schema and, before it, those that it refers to, each after those that it needs itself.
func (r *registry) texts(ctx context.Context, id int) ([]string, sr.SchemaType, error) {
	s, err := r.client.SchemaByID(ctx, id)
	if err != nil && strings.Contains(err.Error(), "unknown schema type") {
		return nil, unknownKind, nil // of which Apicurio has many
	}
	if err == nil && s.Schema == "" {
		err = errors.New("it answers without a schema")
	}
	if err != nil || s.Type != sr.TypeAvro {
		return nil, s.Type, err
	}
	texts, err := r.withReferences(sr.WithParams(ctx, sr.ShowDeleted), s, nil, map[string]bool{}, 0)
	return texts, s.Type, err
}

func (r *registry) withReferences(ctx context.Context, s sr.Schema, texts []string, seen map[string]bool, depth int) (
	[]string, error) {
	for _, reference := range s.References {
		if seen[reference.Name] {
			continue
		}
		if depth >= maxDepth || len(seen) >= maxReferences {
			return nil, errReferences
		}
		seen[reference.Name] = true
		other, err := r.client.SchemaByVersion(ctx, reference.Subject, reference.Version)
		if err != nil {
			return nil, err
		}
		if texts, err = r.withReferences(ctx, other.Schema, texts, seen, depth+1); err != nil {
			return nil, err
		}
	}
	return append(texts, s.Schema), nil
}

// compile returns the decoder of the last of texts.
func compile(kind sr.SchemaType, texts []string) (toJSON, error) {
	switch kind {
	case sr.TypeJSON:
		return func(value []byte) ([]byte, error) { return value, nil }, nil
	case sr.TypeAvro:
	default:
		return nil, errors.New("it is neither Avro nor JSON Schema")
	}
	var named avro.SchemaCache
	var s *avro.Schema
	for _, text := range texts {
		var err error
		if s, err = named.Parse(text); err != nil {
			return nil, err
		}
	}
	return func(value []byte) ([]byte, error) {
		var decoded any
		rest, err := s.Decode(value, &decoded)
		if err != nil {
			return nil, err
		}
		if len(rest) > 0 {
			return nil, fmt.Errorf("%d bytes follow the value", len(rest))
		}
		// Not by the schema's EncodeJSON: of a union's records it may take another than was written.
		return json.Marshal(plain(decoded))
	}, nil
}

// plain returns a decoded value with numbers for times, in milliseconds, and for decimals.
func plain(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for name, field := range v {
			v[name] = plain(field)
		}
	case []any:
		for i, item := range v {
			v[i] = plain(item)
		}
	case time.Time:
		return v.UnixMilli()
	case time.Duration:
		return v.Milliseconds()
	case *big.Rat:
		if v.IsInt() {
			return v.Num()
		}
		return v.FloatString(10)
	case big.Rat:
		return plain(&v)
	}
	return value
}
