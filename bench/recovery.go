package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"kudos/schema"
)

// RecoveryPlan is what kudos has to recover.
type RecoveryPlan struct{ Load Workload }

// DefaultRecoveryPlan is what is reported: 10,000,000 pairs.
func DefaultRecoveryPlan(seed uint64) *RecoveryPlan {
	shape, _ := ShapeNamed("skewed-1000") // one of Shapes
	return &RecoveryPlan{Load: Workload{Seed: seed, Shape: shape, Events: 11_120_000}}
}

// Quick makes it a trial.
func (p *RecoveryPlan) Quick() { p.Load.Events = 500_000 }

// Recovery is how kudos comes back without its local state, from Kafka.
type Recovery struct {
	Pairs int64 `json:"pairs"`
	// Records that the state table's topic held, transaction markers included.
	Records int64 `json:"records"`
	// Seconds from the start of the process until every partition asked for events.
	Seconds          float64 `json:"seconds"`
	EntriesPerSecond float64 `json:"entries_per_second"` // pairs
	// Memory of the process, 0 where /proc does not tell: resident when it was ready, and the most until then.
	RSSBytes  int64 `json:"rss_bytes,omitempty"`
	PeakBytes int64 `json:"peak_bytes,omitempty"`
	// Drained is how the state came about, by another process.
	Drained Drain `json:"drained"`
}

// String is the result in a line.
func (r *Recovery) String() string {
	return fmt.Sprintf("%.0f entries/s (%d pairs in %.2f s), %d MiB then, %d MiB at most; %d MiB after the drain, %.1f bytes a pair",
		r.EntriesPerSecond, r.Pairs, r.Seconds, r.RSSBytes>>20, r.PeakBytes>>20, r.Drained.RSSBytes>>20, float64(r.Drained.State.Bytes)/float64(max(1, r.Drained.State.Pairs)))
}

func (p *Plan) recovery(ctx context.Context, r *run, into *Run) error {
	return on(ctx, p.Site, r, func() (err error) {
		into.Recovery, err = measureRecovery(ctx, r)
		return err
	})
}

func measureRecovery(ctx context.Context, r *run) (*Recovery, error) {
	if err := r.prepare(ctx); err != nil {
		return nil, err
	}
	d, err := r.drain(ctx)
	if err != nil {
		return nil, err
	}
	if d.State, err = r.end(); err != nil {
		return nil, err
	}
	// All of its files: the process to come finds nothing.
	if err := os.RemoveAll(filepath.Join(r.dir, r.contender.Name())); err != nil {
		return nil, err
	}
	rec := &Recovery{Pairs: d.State.Pairs, Drained: *d}
	if rec.Records, err = r.stateRecords(ctx); err != nil {
		return nil, err
	}
	r.progress("recovering")
	begin := time.Now()
	process, err := r.contender.Start(r.servers, filepath.Join(r.dir, r.contender.Name()))
	if err != nil {
		return nil, err
	}
	r.process = process
	limit, cancel := context.WithTimeout(ctx, startTimeout+time.Duration(rec.Pairs/10_000)*time.Second)
	defer cancel()
	ready, err := process.(*kudosProcess).allRunning(limit, r.load.Shape.Partitions)
	if err != nil {
		return nil, err
	}
	rec.Seconds = ready.Sub(begin).Seconds()
	rec.EntriesPerSecond = float64(rec.Pairs) / rec.Seconds
	if hasProc() {
		m, err := memoryOf(process.PID())
		if err != nil {
			return nil, fmt.Errorf("measuring %s: %w", r.contender.Name(), err)
		}
		rec.RSSBytes, rec.PeakBytes = m.resident, m.peak
	}
	after, err := r.end()
	if err == nil && after.Pairs != rec.Pairs {
		err = fmt.Errorf("%d pairs were recovered, of %d", after.Pairs, rec.Pairs)
	}
	return rec, err
}

// stateRecords is how many offsets the state table's topic has.
func (r *run) stateRecords(ctx context.Context) (n int64, err error) {
	cl, err := r.servers.client()
	if err != nil {
		return 0, err
	}
	defer cl.Close()
	ends, err := committedEnds(ctx, cl, schema.TopicState)
	for _, end := range ends {
		n += end
	}
	return n, err
}
