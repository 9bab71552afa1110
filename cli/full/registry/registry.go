// Package registry decodes records whose schema is in a schema registry with Confluent's API: Apicurio, Confluent,
// Karapace, Redpanda.
package registry

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/twmb/avro"
	"github.com/twmb/franz-go/pkg/sr"

	"kudos/producer/bridge"
	"kudos/schema"
)

const (
	timeout        = 5 * time.Second // of a request
	maxSchemaBytes = 1 << 20
	maxSchemas     = 1000 // kept; all are dropped when there are more
	maxReferences  = 100  // schemas that a schema refers to, directly or not
	maxDepth       = 10   // of references
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
	return &registry{client: client, schemas: map[int]toJSON{}}, nil
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
	schemas map[int]toJSON // by id; schemas of an id never change
}

// toJSON decodes a value of one schema.
type toJSON func(value []byte) ([]byte, error)

// JSON implements bridge.Registry.
func (r *registry) JSON(ctx context.Context, value []byte) ([]byte, error) {
	var header sr.ConfluentHeader
	id, body, err := header.DecodeID(value)
	if err != nil {
		return nil, undecodable("%v", err)
	}
	decode, err := r.decoder(ctx, id)
	if err != nil {
		return nil, err
	}
	plain, err := decode(body)
	if err != nil {
		return nil, undecodable("schema %d: %v", id, err)
	}
	return plain, nil
}

func undecodable(format string, args ...any) error {
	return &schema.PoisonError{Reason: schema.Undecodable, Detail: fmt.Sprintf(format, args...)}
}

// decoder returns the decoder of a schema, and asks the registry if it is not known yet.
func (r *registry) decoder(ctx context.Context, id int) (toJSON, error) {
	r.mu.Lock()
	decode, ok := r.schemas[id]
	r.mu.Unlock()
	if ok {
		return decode, nil
	}
	s, err := r.client.SchemaByID(ctx, id)
	if err != nil {
		return nil, described(err)
	}
	texts, err := r.withReferences(ctx, s, nil, 0)
	if err != nil {
		return nil, described(err)
	}
	if decode, err = compile(s.Type, texts); err != nil {
		decode = func([]byte) ([]byte, error) { return nil, err }
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.schemas) >= maxSchemas {
		clear(r.schemas)
	}
	r.schemas[id] = decode
	return decode, nil
}

// described says whose error it is. What the registry does not have is an error of the record that names it.
func described(err error) error {
	var response *sr.ResponseError
	switch {
	case err == nil || errors.As(err, new(*schema.PoisonError)):
		return err
	case errors.As(err, &response) && response.StatusCode == http.StatusNotFound && response.ErrorCode > 0:
		return undecodable("the schema registry: %s", response.Message)
	}
	return fmt.Errorf("the schema registry (bridge.registry.url): %w", err)
}

// withReferences appends the schemas that s refers to, each after those that it needs itself, and then s.
func (r *registry) withReferences(ctx context.Context, s sr.Schema, texts []string, depth int) ([]string, error) {
	for _, reference := range s.References {
		if depth >= maxDepth || len(texts) >= maxReferences {
			return nil, undecodable("the schema refers to more than %d others, or more than %d deep", maxReferences,
				maxDepth)
		}
		other, err := r.client.SchemaByVersion(ctx, reference.Subject, reference.Version)
		if err != nil {
			return nil, err
		}
		if texts, err = r.withReferences(ctx, other.Schema, texts, depth+1); err != nil {
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
		return nil, fmt.Errorf("it is in %s, neither Avro nor JSON Schema", kind)
	}
	var known avro.SchemaCache
	var s *avro.Schema
	for _, text := range texts {
		var err error
		if s, err = known.Parse(text); err != nil {
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
		return s.EncodeJSON(decoded)
	}, nil
}
