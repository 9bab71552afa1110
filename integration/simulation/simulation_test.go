package simulation

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/term"

	"kudos/ops/progress"
)

var (
	schedules = flag.Int("schedules", defaultSchedules(), "how many schedules to run")
	firstSeed = flag.Uint64("seed", 1, "seed of the first schedule; the others follow")
	replay    = flag.Bool("replay", false, "run only the schedule of -seed and print each step")
	stopAt    = flag.Int("violations", 5, "stop after this many violations")
	tallies   = flag.Bool("tally", false, "print how often each event happened")
)

var lastLine atomic.Value

func TestMain(m *testing.M) {
	flag.Parse()
	debug.SetGCPercent(400) // many short-lived objects
	code := m.Run()
	if text := lastLine.Load(); text != nil {
		fmt.Println(text)
	}
	os.Exit(code)
}

type tracer func(format string, args ...any)

func inBubble(t *testing.T, seed uint64, trace tracer) (tally Tally, s *Script, err error) {
	synctest.Test(t, func(*testing.T) { tally, s, err = Run(seed, trace) })
	return tally, s, err
}

// TestSchedules runs schedules on all cores. `make simulate` runs it with more of them.
func TestSchedules(t *testing.T) {
	if *replay {
		_, _, err := inBubble(t, *firstSeed, printLine)
		require.NoError(t, err)
		return
	}
	ctx, stop := signal.NotifyContext(t.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	r := runner{ctx: ctx, began: time.Now(), tally: Tally{}}
	printer := progress.Printer{Name: "simulation", Out: os.Stderr, Terminal: term.IsTerminal(int(os.Stderr.Fd()))}
	r.phase = printer.Begin("running schedules", "schedules", int64(*schedules))
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for seed, ok := r.next(); ok; seed, ok = r.next() {
				tally, script, err := inBubble(t, seed, nil)
				r.finished(t, seed, tally, script, err)
			}
		})
	}
	wg.Wait()
	r.phase.End()
	r.report(t)
}

type runner struct {
	ctx   context.Context // canceled by an interrupt
	began time.Time
	phase *progress.Phase

	mu            sync.Mutex
	started, done int
	violations    int
	tally         Tally
}

func (r *runner) next() (seed uint64, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.started == *schedules || r.violations >= *stopAt || r.ctx.Err() != nil {
		return 0, false
	}
	r.started++
	return *firstSeed + uint64(r.started) - 1, true
}

func (r *runner) finished(t *testing.T, seed uint64, tally Tally, script *Script, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done++
	r.phase.Add(1)
	for name, n := range tally {
		r.tally[name] += n
	}
	if err != nil {
		r.violations++
		t.Errorf("seed %d: %v\nto trace each step: make simulate SEED=%d REPLAY=1", seed, err, seed)
		if r.violations == 1 && *shrinkTime > 0 {
			t.Errorf("seed %d: %s", seed, shorten(r.ctx, t, script, err))
		}
	}
}

func (r *runner) report(t *testing.T) {
	assert.NoError(t, r.ctx.Err(), "interrupted after %d of %d schedules", r.done, *schedules)
	took := time.Since(r.began)
	t.Logf("%d schedules in %v, %.0f/s", r.done, took.Round(time.Millisecond), float64(r.done)/took.Seconds())
	if *tallies {
		fmt.Printf("%9d  schedules in %v, %.0f/s\n", r.done, took.Round(time.Second), float64(r.done)/took.Seconds())
		for _, name := range slices.Sorted(maps.Keys(r.tally)) {
			fmt.Printf("%9d  %s\n", r.tally[name], name)
		}
	}
	if r.done >= enough && r.violations == 0 {
		r.everythingHappened(t)
	}
	lastLine.Store(fmt.Sprintf("schedules %d violations %d", r.done, r.violations))
}

// enough is a number of schedules in which everything must happen.
const enough = 10_000

func (r *runner) everythingHappened(t *testing.T) {
	want := []string{
		"kafka: request lost", "kafka: response lost", "kafka: open transaction fenced",
		"kafka: transaction begins while the one before completes",
		"kafka: epochs used up", "kafka: transactional id expired in use", "kafka: commit lost",
		"kafka: commit late", "kafka: commit response lost",
		"kafka: high watermark behind", "kafka: end offset not available",
		"zombie: works on a partition that it no longer owns", "partition: stays in a rebalance",
		"zombie: rejected for its producer epoch",
		"process: disk lost", "process: disk restored from an old copy",
		"partition: parked", "partition: parked until repaired", "partition: fenced",
		"mysql: COMMIT lost", "mysql: COMMIT late", "mysql: COMMIT rejected", "mysql: response to COMMIT lost",
		"mysql: commits lost by failover", "mysql: waits for a row lock", "forwarded", "dead letter",
		"reader: answers compared", "reader: not ready", "reader: request fails", "reader: disk lost",
	}
	for _, f := range slices.Concat(faults, readerFaults) {
		want = append(want, f.name)
	}
	for _, d := range damages {
		want = append(want, "damage: "+d.name)
	}
	for _, name := range want {
		assert.NotZero(t, r.tally[name], "%q never happened in %d schedules", name, r.done)
	}
}
