package dev

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/schema"
	"kudos/stream/kafka"
)

// SimulatorOptions say how fast simulated likes come, and by which way.
type SimulatorOptions struct {
	// Rate in events per second.
	Rate float64 `mapstructure:"rate"`
	// Seed makes a run repeatable. 0: another one each time.
	Seed uint64 `mapstructure:"seed"`
	// HTTPAddress is the producer's API, host:port; empty: everything goes to Kafka.
	HTTPAddress string `mapstructure:"http_address"`
	// HTTPShare of the events goes through the API. Late ones do not: the API stamps
	// the time of receipt.
	HTTPShare float64 `mapstructure:"http_share"`
	// MaxInFlight bounds the events that are not yet acknowledged by Kafka.
	MaxInFlight int `mapstructure:"max_in_flight"`
	// Linger is how long an event waits for others to share a batch. It also bounds
	// the transactions per second of the fold, each of which costs the embedded broker
	// a kilobyte of memory.
	Linger time.Duration `mapstructure:"linger"`
	// FlushTimeout bounds the wait for acknowledgements at the end.
	FlushTimeout time.Duration `mapstructure:"flush_timeout"`
	// Yesterday is how many likes of the last 24 hours come first, as fast as Kafka takes
	// them, if it has none yet: charts of hours have something to show then.
	Yesterday int   `mapstructure:"yesterday"`
	Shape     Shape `mapstructure:"shape"`
}

// DefaultSimulatorOptions lack only the rate.
func DefaultSimulatorOptions() SimulatorOptions {
	return SimulatorOptions{
		HTTPShare:    0.01,
		MaxInFlight:  20_000,
		Linger:       50 * time.Millisecond,
		FlushTimeout: 5 * time.Second,
		Yesterday:    36_000,
		Shape:        DefaultShape(),
	}
}

const (
	maxRate = 1e6

	// simulatorTick is how often events are sent: often enough to look smooth.
	simulatorTick = 10 * time.Millisecond

	// maxBurst is what a simulator that was held up makes up for at once. What is
	// older is left out: nobody wants an hour of likes after the lid was closed for one.
	maxBurst = time.Second
)

// Validate says what is wrong with the options, all of it.
func (o SimulatorOptions) Validate() error {
	var errs []error
	if !(o.Rate > 0 && o.Rate <= maxRate) {
		errs = append(errs, fmt.Errorf("rate is %g events/s; it must be above 0 and at most %.0f", o.Rate, float64(maxRate)))
	}
	if o.HTTPShare < 0 || o.HTTPShare > 1 {
		errs = append(errs, fmt.Errorf("http_share is %g; it must be between 0 and 1", o.HTTPShare))
	}
	if o.MaxInFlight < 1 || o.Linger < 0 || o.FlushTimeout <= 0 || o.Yesterday < 0 {
		errs = append(errs, errors.New("max_in_flight must be at least 1, flush_timeout above 0, linger and yesterday not below 0"))
	}
	return errors.Join(append(errs, o.Shape.Validate())...)
}

// SimulatorCounts is what a simulator has done so far.
type SimulatorCounts struct {
	// Published events are in Kafka; those among them that the API took are OverHTTP.
	Published, OverHTTP uint64
	// Failed events were given up: Kafka or the API refused them, or was away.
	Failed uint64
}

// Simulator publishes generated likes at an even rate.
type Simulator struct {
	options SimulatorOptions
	kafka   kafka.Options
	log     *slog.Logger

	inFlight chan struct{} // one token for each event that Kafka has not acknowledged

	published, overHTTP, failed atomic.Uint64
}

// NewSimulator makes a simulator; nothing is sent yet.
func NewSimulator(o SimulatorOptions, kafka kafka.Options, log *slog.Logger) *Simulator {
	return &Simulator{options: o, kafka: kafka, log: log, inFlight: make(chan struct{}, max(0, o.MaxInFlight))}
}

// Counts may be asked at any time.
func (s *Simulator) Counts() SimulatorCounts {
	return SimulatorCounts{Published: s.published.Load(), OverHTTP: s.overHTTP.Load(), Failed: s.failed.Load()}
}

// Run publishes until ctx ends, and returns when what was sent is acknowledged. A
// Kafka that is away holds it up; it ends nothing.
func (s *Simulator) Run(ctx context.Context) error {
	if err := s.options.Validate(); err != nil {
		return fmt.Errorf("simulator: %w", err)
	}
	cl, err := s.kafka.NewClient(s.log,
		kgo.DefaultProduceTopic(schema.TopicLikes),
		kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)), // murmur2 of the key, as Kafka's default
		kgo.ProducerBatchMaxBytes(schema.LikesMaxMessageBytes),
		kgo.ProducerLinger(s.options.Linger),
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
	g := NewGenerator(s.options.Shape, seed, begun)
	if err := s.fillYesterday(ctx, cl, g, begun); err != nil {
		s.log.Info("the likes of yesterday are missing", "error", err)
	}

	var workers sync.WaitGroup
	api := newAPIClient(s.options.HTTPAddress)
	events := make(chan schema.Event) // this function closes it
	if api != nil {
		for range apiWorkers {
			workers.Go(func() { s.sendOverHTTP(ctx, api, events) })
		}
	}
	s.publish(ctx, cl, g, events)
	close(events)
	workers.Wait()

	flush, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.options.FlushTimeout)
	defer cancel()
	if err := cl.Flush(flush); err != nil {
		s.log.Info("not all simulated likes were acknowledged before the end", "error", err)
	}
	return nil
}

// fillYesterday publishes the likes of the day before now, if there are no events yet. It waits
// until Kafka has them: rankings leave out what comes after likes of the present.
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
	way := newShare(s.options.HTTPShare)
	ticker := time.NewTicker(simulatorTick)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			for range pace.due(now) {
				e := g.Next(now)
				if way.next() && e.TimeMs == now.UnixMilli() && offer(overHTTP, e) {
					continue
				}
				s.send(ctx, cl, &e)
			}
		}
	}
}

// offer gives e to a worker, if one is free.
func offer(workers chan<- schema.Event, e schema.Event) bool {
	select {
	case workers <- e:
		return true
	default:
		return false
	}
}

// send hands an event to the client, and waits while too many are in flight. Once
// handed over, it is delivered also after ctx has ended.
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

// count counts an event that came to its end. After ctx has ended, being given up is
// no failure.
func (s *Simulator) count(ctx context.Context, err error) {
	switch {
	case err == nil:
		s.published.Add(1)
	case ctx.Err() == nil:
		s.failed.Add(1)
		s.log.Debug("a simulated like was not taken", "error", err)
	}
}

// pacer tells how many events are due. What is due follows from the time since the
// start, not from tick to tick: so nothing drifts.
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

// share picks every n-th of something, evenly.
type share struct{ each, sum float64 }

func newShare(of float64) share { return share{each: of} }

func (s *share) next() bool {
	s.sum += s.each
	if s.sum < 1 {
		return false
	}
	s.sum--
	return true
}
