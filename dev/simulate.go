package dev

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/schema"
	"kudos/stream/kafka"
)

// SimulatorOptions configure the rate of simulated likes and how they are sent.
type SimulatorOptions struct {
	Rate float64 // events per second; see CheckRate
	Seed uint64  // makes a run repeatable; 0: random
	// HTTPAddress is the producer's API, host:port; if it is empty, all events go directly to Kafka. One of HTTPEvery
	// events goes through the API, but no late ones: the API stamps the time of receipt.
	HTTPAddress  string
	HTTPEvery    int
	MaxInFlight  int           // events not yet acknowledged by Kafka
	FlushTimeout time.Duration // bounds the wait for acknowledgments at the end
	// Yesterday is how many likes of the last 24 hours to publish first if the topic is empty, for hourly charts.
	Yesterday int
}

// DefaultSimulatorOptions are complete except for the rate.
func DefaultSimulatorOptions() SimulatorOptions {
	return SimulatorOptions{HTTPEvery: 100, MaxInFlight: 20_000, FlushTimeout: 5 * time.Second, Yesterday: 36_000}
}

const (
	maxRate       = 1e6
	simulatorTick = 10 * time.Millisecond // the interval of sending events, short enough to look smooth
	// maxBurst is what a stalled simulator, such as on a closed laptop, catches up on at once. The rest is dropped.
	maxBurst = time.Second
	// simulatorLinger is how long an event waits for others in its batch. It also bounds the fold's transactions per
	// second, each of which costs the embedded broker a kilobyte of memory.
	simulatorLinger = 50 * time.Millisecond
	apiWorkers      = 8 // concurrent requests
	apiTimeout      = 5 * time.Second
)

// CheckRate returns an error if the rate is out of range.
func CheckRate(rate float64) error {
	if !(rate > 0 && rate <= maxRate) {
		return fmt.Errorf("rate is %g events/s; it must be above 0 and at most %.0f", rate, float64(maxRate))
	}
	return nil
}

// SimulatorCounts is what a simulator has done so far.
type SimulatorCounts struct {
	// Published events are in Kafka; OverHTTP of them went through the API.
	Published, OverHTTP uint64
	Failed              uint64 // events that were dropped: Kafka or the API rejected them, or was unavailable
}

// Simulator publishes generated likes at an even rate.
type Simulator struct {
	options SimulatorOptions
	kafka   kafka.Options
	log     *slog.Logger
	http    *http.Client

	inFlight                    chan struct{} // one token per event not yet acknowledged by Kafka
	published, overHTTP, failed atomic.Uint64
}

// NewSimulator returns a simulator; call Run to start it.
func NewSimulator(o SimulatorOptions, kafka kafka.Options, log *slog.Logger) *Simulator {
	return &Simulator{options: o, kafka: kafka, log: log, inFlight: make(chan struct{}, o.MaxInFlight),
		http: &http.Client{Timeout: apiTimeout, Transport: &http.Transport{MaxIdleConnsPerHost: apiWorkers}}}
}

// Counts is safe for concurrent use.
func (s *Simulator) Counts() SimulatorCounts {
	return SimulatorCounts{Published: s.published.Load(), OverHTTP: s.overHTTP.Load(), Failed: s.failed.Load()}
}

// Run publishes until ctx ends, and returns when all sent events are acknowledged. It waits while Kafka is unavailable.
func (s *Simulator) Run(ctx context.Context) error {
	cl, err := s.kafka.NewClient(s.log, kgo.DefaultProduceTopic(schema.TopicLikes),
		kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)), // murmur2 of the key, Kafka's default
		kgo.ProducerBatchMaxBytes(schema.LikesMaxMessageBytes),
		kgo.ProducerLinger(simulatorLinger),
		kgo.MaxBufferedRecords(s.options.MaxInFlight+1), // never reached: send blocks first
		kgo.RecordDeliveryTimeout(30*time.Second))
	if err != nil {
		return err
	}
	defer cl.Close()
	seed := cmp.Or(s.options.Seed, uint64(time.Now().UnixNano()))
	s.log.Info("simulating likes", "events_per_second", s.options.Rate, "seed", seed)
	begun := time.Now()
	g := NewGenerator(DefaultShape(), seed, begun)
	if err := s.fillYesterday(ctx, cl, g, begun); err != nil {
		s.log.Info("simulating yesterday's likes failed", "error", err)
	}

	var workers sync.WaitGroup
	events := make(chan schema.Event)
	if s.options.HTTPAddress != "" {
		for range apiWorkers {
			workers.Go(func() { s.sendOverHTTP(ctx, events) })
		}
	}
	s.publish(ctx, cl, g, events)
	close(events)
	workers.Wait()
	s.http.CloseIdleConnections()

	flush, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.options.FlushTimeout)
	defer cancel()
	if err := cl.Flush(flush); err != nil {
		s.log.Info("not all simulated likes were acknowledged before the end", "error", err)
	}
	return nil
}

// fillYesterday publishes the likes of the day before now, unless the topic has events. It waits for the
// acknowledgments: rankings drop likes that arrive after current ones.
func (s *Simulator) fillYesterday(ctx context.Context, cl *kgo.Client, g *Generator, now time.Time) error {
	if s.options.Yesterday == 0 {
		return nil
	}
	ends, err := kadm.NewClient(cl).ListEndOffsets(ctx, schema.TopicLikes)
	if err = cmp.Or(err, ends.Error()); err != nil {
		return fmt.Errorf("checking whether there are events: %w", err)
	}
	empty := true
	ends.Each(func(end kadm.ListedOffset) { empty = empty && end.Offset == 0 })
	if !empty {
		return nil
	}
	for i := 0; i < s.options.Yesterday && ctx.Err() == nil; i++ {
		e := g.Past(i, s.options.Yesterday, now)
		s.send(ctx, cl, &e)
	}
	if err := cl.Flush(ctx); err != nil && ctx.Err() == nil {
		return fmt.Errorf("waiting for acknowledgments: %w", err)
	}
	return nil
}

// publish sends the events that are due at each tick, until ctx ends.
func (s *Simulator) publish(ctx context.Context, cl *kgo.Client, g *Generator, overHTTP chan<- schema.Event) {
	pace := pacer{rate: s.options.Rate, begun: time.Now()}
	ticker := time.NewTicker(simulatorTick)
	defer ticker.Stop()
	made := 0
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			for range pace.due(now) {
				e := g.Next(now)
				made++
				if made%s.options.HTTPEvery != 0 || e.TimeMs != now.UnixMilli() || !offer(overHTTP, e) {
					s.send(ctx, cl, &e)
				}
			}
		}
	}
}

func offer(workers chan<- schema.Event, e schema.Event) bool {
	select {
	case workers <- e:
		return true
	default:
		return false
	}
}

// send passes an event to the client, and blocks while too many are in flight. The client delivers it even if ctx ends.
func (s *Simulator) send(ctx context.Context, cl *kgo.Client, e *schema.Event) {
	select {
	case s.inFlight <- struct{}{}:
	case <-ctx.Done():
		return
	}
	record := kgo.KeySliceRecord(schema.AppendPostKey(nil, e.PostID), schema.AppendEvent(nil, e))
	cl.Produce(context.WithoutCancel(ctx), record, func(_ *kgo.Record, err error) {
		<-s.inFlight
		s.count(ctx, err)
	})
}

// sendOverHTTP is one worker. It finishes a request in flight even after ctx has ended, so that its outcome is known.
func (s *Simulator) sendOverHTTP(ctx context.Context, events <-chan schema.Event) {
	for e := range events {
		err := s.request(context.WithoutCancel(ctx), e)
		if err == nil {
			s.overHTTP.Add(1)
		}
		s.count(ctx, err)
	}
}

func (s *Simulator) request(ctx context.Context, e schema.Event) error {
	method, reaction := http.MethodPut, "likes"
	switch e.Action {
	case schema.Unlike:
		method = http.MethodDelete
	case schema.Dislike:
		reaction = "dislikes"
	}
	url := fmt.Sprintf("http://%s/v1/posts/%d/%s/%d?region=%s",
		s.options.HTTPAddress, e.PostID, reaction, e.UserID, e.Region)
	req, err := http.NewRequestWithContext(ctx, method, url, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := s.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // so that the connection is reused
	if resp.StatusCode != http.StatusAccepted {
		return fmt.Errorf("%s %s: %s", method, url, resp.Status)
	}
	return nil
}

// count counts an event by its outcome. Errors after ctx has ended are not counted as failures.
func (s *Simulator) count(ctx context.Context, err error) {
	switch {
	case err == nil:
		s.published.Add(1)
	case ctx.Err() == nil:
		s.failed.Add(1)
		s.log.Debug("a simulated like was not accepted", "error", err)
	}
}

// pacer computes how many events are due from the time since the start, not from tick to tick, so it does not drift.
type pacer struct {
	rate  float64 // per second
	begun time.Time
	sent  uint64
}

func (p *pacer) due(now time.Time) int {
	due := uint64(p.rate*now.Sub(p.begun).Seconds()) - p.sent
	p.sent += due
	most := uint64(max(1, p.rate*maxBurst.Seconds()))
	return int(min(due, most))
}
