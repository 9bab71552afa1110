package bench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"kudos/bench/producer"
	"kudos/schema"
)

// ProducerPlan is how `kudos producer` is measured: likes come by HTTP at higher and higher rates.
type ProducerPlan struct {
	// Partitions of the topic that the likes go to.
	Partitions int32
	// Options but for the address and the first user, which are each run's own.
	Options producer.Options
}

// DefaultProducerPlan is what is reported.
func DefaultProducerPlan() *ProducerPlan {
	return &ProducerPlan{Partitions: 4, Options: producer.DefaultOptions()}
}

// HoldEach sets how long a rate is held while the highest is looked for. Half of that rate is held three times as long.
func (p *ProducerPlan) HoldEach(d time.Duration) { p.Options.StepFor, p.Options.HoldFor = d, 3*d }

// Quick makes it a trial.
func (p *ProducerPlan) Quick() { p.HoldEach(time.Second) }

// load says in the report's terms what the likes are; how many they come to be, the producer decides.
func (p *ProducerPlan) load() Workload {
	return Workload{Shape: Shape{Name: "accepting", Posts: int(p.Options.Posts), Partitions: p.Partitions}}
}

// requestsOf says what an endpoint takes at a time.
func requestsOf(e *producer.Endpoint) string {
	if e.LikesPerRequest == 1 {
		return "single likes"
	}
	return "batches of " + number(float64(e.LikesPerRequest))
}

// acceptedInALine is a result in a line.
func acceptedInALine(result *producer.Result) string {
	var parts []string
	for _, of := range endpoints {
		e := of(result)
		parts = append(parts, fmt.Sprintf("%s: %.0f likes/s, at half of it p50 %.1f ms, p99 %.1f ms, p99.9 %.1f ms",
			requestsOf(e), e.Capacity.LikesPerSecond, e.Half.P50Ms, e.Half.P99Ms, e.Half.P999Ms))
	}
	return strings.Join(parts, "; ")
}

func (p *Plan) accepting(ctx context.Context, r *run, into *Run) error {
	return on(ctx, p.Site, r, func() (err error) {
		into.Producer, err = measureProducer(ctx, r, p.Producer)
		return err
	})
}

func measureProducer(ctx context.Context, r *run, plan *ProducerPlan) (*producer.Result, error) {
	kudos := r.contender.(*Kudos) // see Plan.kudosAlone
	if err := kudos.Prepare(ctx, r.servers, plan.Partitions); err != nil {
		return nil, fmt.Errorf("preparing %s: %w", kudos.Name(), err)
	}
	p, err := kudos.startRole(ctx, r.servers, "producer", "taking likes", filepath.Join(r.dir, "producer"))
	if err != nil {
		return nil, err
	}
	o := plan.Options
	o.Addr, o.Log = p.addr, r.servers.Log
	// Users of no other run: fewer are taken than nanoseconds pass.
	o.FirstUser = uint64(time.Now().UnixNano())
	r.progress("looking for the highest rates that the producer carries")
	result, err := producer.Measure(ctx, o)
	if err := errors.Join(err, p.process.stop()); err != nil {
		return nil, err
	}
	return result, r.haveAccepted(ctx, result)
}

// haveAccepted checks that the topic has at least what was accepted. (It may have more: of the warm-up, and likes whose
// answer did not come in time.)
func (r *run) haveAccepted(ctx context.Context, result *producer.Result) error {
	cl, err := r.servers.client()
	if err != nil {
		return err
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	ends, err := committedEnds(ctx, cl, schema.TopicLikes)
	if err != nil {
		return err
	}
	var have int64
	for _, end := range ends {
		have += end
	}
	if accepted := result.Accepted(); have < accepted {
		return fmt.Errorf("the producer has accepted %d likes, but %s has %d", accepted, schema.TopicLikes, have)
	}
	return nil
}
