package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/integration/oracle"
)

const (
	flushTimeout = 90 * time.Second // bounds the wait for records in flight when the load stops
	httpShare    = 10               // one in this many events is sent over HTTP, in batches of httpBatch
	httpBatch    = 100
	beat         = 20 * time.Millisecond // the write interval
)

// load is an upstream service that writes to Kafka, and a client of the producer. They record acknowledgments.
type load struct {
	s           *system
	direct, web *generator
	client      *kgo.Client
	http        *http.Client

	failed  atomic.Int64 // events without an acknowledgment, which may or may not be in the log
	refused atomic.Int64 // failed HTTP requests so far
	mu      struct {
		sync.Mutex
		acks []oracle.Ack
	}
}

func newLoad(s *system) (*load, error) {
	client, err := s.writer(60 << 10)
	return &load{s: s, direct: newGenerator(s.opts, 1), web: newGenerator(s.opts, 2), client: client,
		http: &http.Client{Timeout: 15 * time.Second}}, err
}

// writer returns a client that writes to likes, bypassing the proxies, with franz-go's defaults.
func (s *system) writer(batchBytes int32, opts ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(s.kafka.Brokers()...), kgo.DefaultProduceTopic("likes"), kgo.DisableClientMetrics(),
		kgo.ProducerBatchMaxBytes(batchBytes), kgo.MaxBufferedRecords(20_000),
		kgo.MetadataMinAge(250 * time.Millisecond),
	}, opts...)...)
}

func (l *load) close() { l.client.Close(); l.http.CloseIdleConnections() }

// run writes until ctx ends, and returns when the outcome of every write is known.
func (l *load) run(ctx context.Context) error {
	var writers sync.WaitGroup
	writers.Go(func() { l.writeDirect(ctx) })
	writers.Go(func() { l.writeHTTP(ctx) })
	writers.Wait()
	flush, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
	defer cancel()
	if err := l.client.Flush(flush); err != nil {
		return fmt.Errorf("records are still not acknowledged %v after the faults: %w", flushTimeout, err)
	}
	return nil
}

// writeDirect writes at the configured rate. It catches up on what Kafka blocked, but never more than a second's worth.
func (l *load) writeDirect(ctx context.Context) {
	tick := time.Tick(beat)
	share := l.s.opts.Rate - l.s.opts.Rate/httpShare
	owed := 0.0
	for {
		select {
		case <-tick:
		case <-ctx.Done():
			return
		}
		owed = min(owed+float64(share)*beat.Seconds(), float64(share))
		now := time.Now()
		for ; owed >= 1 && ctx.Err() == nil; owed-- {
			l.produce(ctx, l.client, l.direct.record(l.direct.next(now)))
		}
	}
}

// produce passes a record to a client, without ctx: a record whose context ends may still be in flight.
func (l *load) produce(ctx context.Context, cl *kgo.Client, rec *kgo.Record) {
	cl.Produce(context.WithoutCancel(ctx), rec, func(rec *kgo.Record, err error) {
		if err != nil {
			l.failed.Add(1)
			return
		}
		l.acknowledge(ackOf(rec))
	})
}

// burst writes n special records, and returns how many of them Kafka acknowledged.
func (l *load) burst(ctx context.Context, n int, next func() *kgo.Record, opts ...kgo.Opt) (int, error) {
	cl, err := l.s.writer(900_000, opts...)
	if err != nil {
		return 0, err
	}
	defer cl.Close()
	taken, failed := 0, error(nil)
	var mu sync.Mutex
	for range n {
		rec := next()
		cl.Produce(ctx, rec, func(rec *kgo.Record, err error) {
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed = err
				return
			}
			taken++
			l.acknowledge(ackOf(rec))
		})
		if len(rec.Value) > 4096 { // otherwise a batch of these might exceed the topic's limit
			if err := cl.Flush(ctx); err != nil {
				return taken, err
			}
		}
	}
	if err := cl.Flush(ctx); err != nil {
		return taken, err
	}
	mu.Lock()
	defer mu.Unlock()
	if taken == 0 {
		return 0, fmt.Errorf("none of %d records was acknowledged: %w", n, failed)
	}
	return taken, nil
}

func ackOf(rec *kgo.Record) oracle.Ack {
	return oracle.Ack{Partition: rec.Partition, Offset: rec.Offset, Digest: oracle.DigestOf(rec.Key, rec.Value)}
}

func (l *load) acknowledge(acks ...oracle.Ack) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.acks = append(l.mu.acks, acks...)
}

func (l *load) writeHTTP(ctx context.Context) {
	tick := time.Tick(time.Duration(float64(time.Second) * httpBatch * httpShare / float64(l.s.opts.Rate)))
	for {
		select {
		case <-tick:
		case <-ctx.Done():
			return
		}
		now := time.Now()
		events := make([]oracle.Event, httpBatch)
		for i := range events {
			events[i] = l.web.next(now)
		}
		acks, err := l.post(context.WithoutCancel(ctx), events)
		l.acknowledge(acks...)
		l.failed.Add(int64(len(events) - len(acks)))
		if err == nil {
			continue
		}
		l.refused.Add(1)
		if wait(ctx, 200*time.Millisecond) != nil {
			return
		}
	}
}

// post sends a batch. The lines that the response gives an offset are acknowledged, whatever it says about the others.
func (l *load) post(ctx context.Context, events []oracle.Event) ([]oracle.Ack, error) {
	var body bytes.Buffer
	for _, e := range events {
		body.Write(eventJSON(e))
		body.WriteByte('\n')
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+l.s.http+"/v1/likes:batch", &body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/x-ndjson")
	resp, err := l.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err // a truncated response acknowledges nothing
	}
	var answer struct {
		Lines []struct {
			Line      int    `json:"line"`
			Partition *int32 `json:"partition"`
			Offset    int64  `json:"offset"`
		} `json:"lines"`
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return nil, err
	}
	var acks []oracle.Ack
	for _, line := range answer.Lines {
		if line.Partition != nil && line.Line >= 1 && line.Line <= len(events) {
			acks = append(acks, oracle.Ack{Partition: *line.Partition, Offset: line.Offset,
				Digest: events[line.Line-1].Digest()})
		}
	}
	if resp.StatusCode != http.StatusAccepted {
		return acks, errors.New(resp.Status)
	}
	return acks, nil
}

func (l *load) acknowledged() []oracle.Ack {
	l.mu.Lock()
	defer l.mu.Unlock()
	acks := l.mu.acks
	l.mu.acks = nil
	return acks
}

// burstTimeout bounds the writing of a burst; brokers may be down meanwhile.
const burstTimeout = time.Minute

// loadFault writes a burst of at least `least`, and fewer than `least+more`, special records.
func loadFault(
	what string, least, more int, next func(*generator) *kgo.Record, opts ...kgo.Opt,
) func(context.Context, *fault) error {
	return func(ctx context.Context, f *fault) error {
		g, n := newGenerator(f.sys.opts, uint64(f.number)+10), least+f.random.IntN(more)
		f.on("%d %s", n, what)
		ctx, cancel := context.WithTimeout(ctx, burstTimeout)
		defer cancel()
		taken, err := f.load.burst(ctx, n, func() *kgo.Record { return next(g) }, opts...)
		f.show(what, int64(taken))
		if taken == 0 {
			return missed("%v", err)
		}
		return nil
	}
}

func killProducer(ctx context.Context, f *fault, u *unit) error {
	f.on("%v", u)
	before := f.load.refused.Load()
	if err := u.Kill(); err != nil {
		return missed("%v", err)
	}
	if err := errors.Join(wait(ctx, f.between(500*time.Millisecond, 2*time.Second)), u.Start(ctx)); err != nil {
		return err
	}
	cut := f.load.refused.Load() - before
	if cut == 0 {
		return missed("no request was sent meanwhile")
	}
	f.show("HTTP requests that failed because the producer was killed", cut)
	return nil
}
