package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"kudos/schema"
)

// DefaultRecovery is the workload of published reports: 10,000,000 pairs.
func DefaultRecovery(seed uint64) *Workload {
	shape, _ := ShapeNamed("skewed-1000") // always found
	return &Workload{Seed: seed, Shape: shape, Events: 11_120_000}
}

// Recovery is how long kudos takes to rebuild its local state from Kafka.
type Recovery struct {
	Pairs            int64   `json:"pairs"`
	Records          int64   `json:"records"`            // in the state table's topic, transaction markers included
	Seconds          float64 `json:"seconds"`            // from the process start until each partition polls for events
	EntriesPerSecond float64 `json:"entries_per_second"` // pairs
	// Memory of the process, 0 without /proc: resident when it was ready, and the peak until then.
	RSSBytes  int64 `json:"rss_bytes,omitempty"`
	PeakBytes int64 `json:"peak_bytes,omitempty"`
	Drained   Drain `json:"drained"` // the run of another process that created the state
}

// String returns a one-line summary.
func (r *Recovery) String() string {
	return fmt.Sprintf("%.0f entries/s (%d pairs in %.2f s), %d MiB when ready, peak %d MiB; %d MiB after the drain, "+
		"%.1f bytes per pair", r.EntriesPerSecond, r.Pairs, r.Seconds, r.RSSBytes>>20, r.PeakBytes>>20,
		r.Drained.RSSBytes>>20, float64(r.Drained.State.Bytes)/float64(max(1, r.Drained.State.Pairs)))
}

func (r *run) measureRecovery(ctx context.Context, into *Run) error {
	d, err := r.fillAndDrain(ctx)
	if err != nil {
		return err
	}
	if d.State, err = r.stop(); err != nil {
		return err
	}
	// Remove all files: the next process must start without state.
	if err := os.RemoveAll(filepath.Join(r.dir, r.contender.Name())); err != nil {
		return err
	}
	rec := &Recovery{Pairs: d.State.Pairs, Drained: *d}
	if rec.Records, err = r.servers.length(ctx, schema.TopicState); err != nil {
		return err
	}
	r.progress("recovering")
	begin := time.Now()
	if err := r.start(); err != nil {
		return err
	}
	limit, cancel := context.WithTimeout(ctx, startTimeout+time.Duration(rec.Pairs/10_000)*time.Second)
	defer cancel()
	ready, err := r.process.(*processor).allRunning(limit, r.load.Shape.Partitions)
	if err != nil {
		return err
	}
	rec.Seconds = ready.Sub(begin).Seconds()
	rec.EntriesPerSecond = float64(rec.Pairs) / rec.Seconds
	rec.RSSBytes, rec.PeakBytes = ResidentBytes(r.process.PID()), peakBytes(r.process.PID())
	after, err := r.stop()
	if err == nil && after.Pairs != rec.Pairs {
		err = fmt.Errorf("%d pairs were recovered, expected %d", after.Pairs, rec.Pairs)
	}
	into.Recovery = rec
	return err
}
