package bench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"kudos/bench/producer"
	"kudos/schema"
)

// ProducerPlan is how `kudos producer` is measured: HTTP clients send likes at increasing rates.
type ProducerPlan struct {
	Partitions int32            // of the likes topic
	Options    producer.Options // except for Addr and FirstUser, which each run sets
}

// DefaultProducerPlan is the plan of published reports.
func DefaultProducerPlan() *ProducerPlan {
	return &ProducerPlan{Partitions: 4, Options: producer.DefaultOptions()}
}

// HoldEach sets how long each rate is held during the search; half of the highest rate is held three times as long.
func (p *ProducerPlan) HoldEach(d time.Duration) { p.Options.StepFor, p.Options.HoldFor = d, 3*d }

// load describes the likes for the report. Their number is left out: it depends on the producer.
func (p *ProducerPlan) load() Workload {
	return Workload{Shape: Shape{Name: "accepting", Posts: int(p.Options.Posts), Partitions: p.Partitions}}
}

func (r *run) measureProducer(ctx context.Context, into *Run) error {
	kudos := r.contender.(*Kudos) // see Plan.steps
	if err := kudos.Prepare(ctx, r.servers, r.plan.Producer.Partitions); err != nil {
		return fmt.Errorf("preparing %s: %w", kudos.Name(), err)
	}
	o := r.plan.Producer.Options
	p, addr, err := kudos.serve(ctx, r.servers, "producer", filepath.Join(r.dir, "producer"), // one address has half
		fmt.Sprintf("KUDOS_PRODUCER_MAX_CONCURRENT_BATCHES=%d", 2*o.BatchConnections))
	if err != nil {
		return err
	}
	o.Addr, o.Log = addr, r.servers.Log
	// No other run uses these users: ids start at the clock in nanoseconds; a run uses fewer than one per nanosecond.
	o.FirstUser = uint64(time.Now().UnixNano())
	r.progress("searching for the highest rates that the producer sustains")
	into.Producer, err = producer.Measure(ctx, o)
	if err := errors.Join(err, p.Terminate(StopTimeout)); err != nil {
		return err
	}
	return r.servers.haveAccepted(ctx, into.Producer)
}

// haveAccepted checks that the topic has at least the accepted likes: warm-up and late answers may have added more.
func (s *Servers) haveAccepted(ctx context.Context, result *producer.Result) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	have, err := s.length(ctx, schema.TopicLikes)
	if err != nil {
		return err
	}
	if accepted := result.Accepted(); have < accepted {
		return fmt.Errorf("the producer has accepted %d likes, but %s has %d", accepted, schema.TopicLikes, have)
	}
	return nil
}
