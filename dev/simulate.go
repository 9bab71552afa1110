package dev

import (
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

// SimulatorOptions say how fast simulated likes come, and which way they take.
type SimulatorOptions struct {
	Rate float64 // events per second; see CheckRate
	Seed uint64  // makes a run repeatable; 0: another one each time
	// HTTPAddress is the producer's API, host:port; if it is empty, all events go to Kafka. One of HTTPEvery goes
	// through the API, but no late ones: the API stamps the time of receipt.
	HTTPAddress  string
	HTTPEvery    int
	MaxInFlight  int           // events that Kafka has not acknowledged yet
	FlushTimeout time.Duration // bounds the wait for acknowledgements at the end
	// Yesterday is how many likes of the last 24 hours come first, as fast as Kafka takes them, if it has none yet, so
	// that charts of hours have something to show.
	Yesterday int
}

// DefaultSimulatorOptions lack only the rate.
func DefaultSimulatorOptions() SimulatorOptions {
	return SimulatorOptions{HTTPEvery: 100, MaxInFlight: 20_000, FlushTimeout: 5 * time.Second, Yesterday: 36_000}
}

const (
	maxRate = 1e6
	// simulatorTick is how often events are sent: often enough to look smooth.
	simulatorTick = 10 * time.Millisecond
	// maxBurst is what a simulator that was held up makes up for at once. The rest is left out: nobody wants an hour of
	// likes after the lid was closed for one.
	maxBurst = time.Second
	// simulatorLinger is how long an event waits for others to share a batch. It also bounds the transactions per
	// second of the fold, each of which costs the embedded broker a kilobyte of memory.
	simulatorLinger = 50 * time.Millisecond
	apiWorkers      = 8 // concurrent requests
	apiTimeout      = 5 * time.Second
)

// CheckRate refuses a rate that a simulator cannot have.
func CheckRate(rate float64) error {
	if !(rate > 0 && rate <= maxRate) {
		return fmt.Errorf("rate is %g events/s; it must be above 0 and at most %.0f", rate, float64(maxRate))
	}
	return nil
}

// SimulatorCounts is what a simulator has done so far.
type SimulatorCounts struct {
	// Published events are in Kafka; those among them that the API took are OverHTTP.
	Published, OverHTTP uint64
	// Failed events were given up: Kafka or the API rejected them, or was unavailable.
	Failed uint64
}

// Simulator publishes generated likes at an even rate.
type Simulator struct {
	options SimulatorOptions
	kafka   kafka.Options
	log     *slog.Logger
	http    *http.Client

	inFlight                    chan struct{} // one token for each event that Kafka has not acknowledged
	published, overHTTP, failed atomic.Uint64
}

// NewSimulator makes a simulator, which Run starts.
func NewSimulator(o SimulatorOptions, kafka kafka.Options, log *slog.Logger) *Simulator {
	return &Simulator{
		options: o, kafka: kafka, log: log, inFlight: make(chan struct{}, o.MaxInFlight),
		http: &http.Client{Timeout: apiTimeout, Transport: &http.Transport{MaxIdleConnsPerHost: apiWorkers}},
	}
}

// Counts may be called at any time.
func (s *Simulator) Counts() SimulatorCounts {
	return SimulatorCounts{Published: s.published.Load(), OverHTTP: s.overHTTP.Load(), Failed: s.failed.Load()}
}

// Run publishes until ctx ends, and returns when what was sent is acknowledged. While Kafka is unavailable it waits.
func (s *Simulator) Run(ctx context.Context) error {
	cl, err := s.kafka.NewClient(s.log,
		kgo.DefaultProduceTopic(schema.TopicLikes),
		kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)), // murmur2 of the key, as Kafka's default
		kgo.ProducerBatchMaxBytes(schema.LikesMaxMessageBytes),
		kgo.ProducerLinger(simulatorLinger),
		kgo.MaxBufferedRecords(s.options.MaxInFlight+1), // never reached: send waits before
		kgo.RecordDeliveryTimeout(30*time.Second),
	)
	if err != nil {
		return err
	}
	defer cl.Close()
	seed := s.options.Seed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	s.log.Info("simulating likes", "events_per_second", s.options.Rate, "seed", seed)
	begun := time.Now()
	g := NewGenerator(DefaultShape(), seed, begun)
	if err := s.fillYesterday(ctx, cl, g, begun); err != nil {
		s.log.Info("the likes of yesterday are missing", "error", err)
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

// fillYesterday publishes the likes of the day before now, if there are no events yet. It waits until Kafka has them:
// rankings leave out what comes after likes of the present.
func (s *Simulator) fillYesterday(ctx context.Context, cl *kgo.Client, g *Generator, now time.Time) error {
	if s.options.Yesterday == 0 {
		return nil
	}
	ends, err := kadm.NewClient(cl).ListEndOffsets(ctx, schema.TopicLikes)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return fmt.Errorf("finding out whether there are events: %w", err)
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
		return fmt.Errorf("waiting until they are acknowledged: %w", err)
	}
	return nil
}

// publish sends what is due at each tick, until ctx ends.
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

// send hands an event to the client, and waits while too many are in flight. It is then delivered also after ctx ends.
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

// sendOverHTTP is one worker: it sends what comes, until events is closed. A request that has begun is finished also
// after ctx has ended, so that its outcome is known.
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
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // so that the connection is used again
	if resp.StatusCode != http.StatusAccepted {
		return fmt.Errorf("%s %s: %s", method, url, resp.Status)
	}
	return nil
}

// count counts an event whose outcome is known. After ctx has ended, one that was given up is no failure.
func (s *Simulator) count(ctx context.Context, err error) {
	switch {
	case err == nil:
		s.published.Add(1)
	case ctx.Err() == nil:
		s.failed.Add(1)
		s.log.Debug("a simulated like was not taken", "error", err)
	}
}

// pacer tells how many events are due, by the time since the start and not from tick to tick: so nothing drifts.
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
