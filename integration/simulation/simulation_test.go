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
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	schedules = flag.Int("schedules", defaultSchedules(), "how many schedules to run")
	firstSeed = flag.Uint64("seed", 1, "seed of the first schedule; the others follow")
	replay    = flag.Bool("replay", false, "run the schedule of -seed only, and print each step")
	stopAt    = flag.Int("violations", 5, "stop after so many violations")
	tallies   = flag.Bool("tally", false, "print what happened, how often")
)

// lastLine is what TestMain ends with, when schedules have run.
var lastLine struct {
	sync.Mutex
	text string
}

func TestMain(m *testing.M) {
	flag.Parse()
	debug.SetGCPercent(400) // many short lives
	code := m.Run()
	lastLine.Lock()
	if lastLine.text != "" {
		fmt.Println(lastLine.text)
	}
	os.Exit(code)
}

// tracer gets a line for each step.
type tracer func(format string, args ...any)

// inBubble runs one schedule in virtual time.
func inBubble(t *testing.T, seed uint64, trace tracer) (tally Tally, s *Script, err error) {
	synctest.Test(t, func(*testing.T) { tally, s, err = Run(seed, trace) })
	return tally, s, err
}

// TestSchedules runs schedules on all cores. `make simulate` is this with more of them.
func TestSchedules(t *testing.T) {
	if *replay {
		_, _, err := inBubble(t, *firstSeed, func(format string, args ...any) { fmt.Printf(format+"\n", args...) })
		require.NoError(t, err)
		return
	}
	ctx, stop := signal.NotifyContext(t.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	r := runner{ctx: ctx, began: time.Now(), tally: Tally{}, terminal: onTerminal()}
	r.printed = r.began
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
	r.report(t)
}

// runner hands out seeds and collects what comes back.
type runner struct {
	ctx      context.Context // ends early when somebody interrupts
	began    time.Time
	terminal bool

	mu         sync.Mutex
	started    int
	done       int
	violations int
	printed    time.Time
	tally      Tally
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
	for name, n := range tally {
		r.tally[name] += n
	}
	if err != nil {
		r.violations++
		t.Errorf("seed %d: %v\nto see each step: make simulate SEED=%d REPLAY=1", seed, err, seed)
		if r.violations == 1 && *shrinkTime > 0 {
			t.Errorf("seed %d: %s", seed, shorten(r.ctx, t, script, err))
		}
	}
	r.tell()
}

// tell prints how far it is: a line that changes on a terminal, now and then one elsewhere.
func (r *runner) tell() {
	before, after, every := "\r", "   ", time.Second/2
	if !r.terminal {
		before, after, every = "", "\n", 30*time.Second
	}
	if time.Since(r.printed) < every {
		return
	}
	r.printed = time.Now()
	rate := float64(r.done) / time.Since(r.began).Seconds()
	left := time.Duration(float64(*schedules-r.done)/rate) * time.Second
	fmt.Fprintf(os.Stderr, "%s%d of %d schedules, %d violations, %.0f/s, %v left%s", before, r.done, *schedules, r.violations, rate, left, after)
}

func (r *runner) report(t *testing.T) {
	if r.terminal {
		fmt.Fprintln(os.Stderr)
	}
	if r.ctx.Err() != nil {
		t.Errorf("interrupted after %d of %d schedules", r.done, *schedules)
	}
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
	lastLine.Lock()
	defer lastLine.Unlock()
	lastLine.text = fmt.Sprintf("schedules %d violations %d", r.done, r.violations)
}

// enough schedules for everything to happen in.
const enough = 10_000

// everythingHappened holds the schedules against what they are for.
func (r *runner) everythingHappened(t *testing.T) {
	want := []string{
		"kafka: request lost", "kafka: answer lost", "kafka: open transaction fenced",
		"kafka: commit lost", "kafka: commit late", "kafka: answer to commit lost",
		"kafka: high watermark behind", "kafka: end not available",
		"zombie: works on a partition that is not its own any more", "zombie: refused by its producer epoch",
		"process: disk lost", "process: disk restored from an old copy",
		"partition: parked", "partition: parked until mended", "partition: fenced",
		"mysql: COMMIT lost", "mysql: COMMIT late", "mysql: COMMIT refused", "mysql: answer to COMMIT lost",
		"mysql: commits lost by failover", "mysql: waits for a row lock", "forwarded", "dead letter",
	}
	for _, f := range faults {
		want = append(want, f.name)
	}
	for _, d := range damages {
		want = append(want, "damage: "+d.name)
	}
	for _, name := range want {
		if r.tally[name] == 0 {
			t.Errorf("%q never happened in %d schedules", name, r.done)
		}
	}
}

// onTerminal tells whether somebody watches.
func onTerminal() bool {
	info, err := os.Stderr.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// TestASeedReplaysIdentically: the same steps in the same order, with a trace or without.
func TestASeedReplaysIdentically(t *testing.T) {
	for n := range uint64(max(20, *schedules/100)) {
		seed := *firstSeed + n
		steps := func() (lines []string, tally Tally) {
			tally, _, _ = inBubble(t, seed, func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) })
			return lines, tally
		}
		once, tally := steps()
		again, _ := steps()
		for i := range max(len(once), len(again)) {
			require.True(t, i < len(once) && i < len(again) && once[i] == again[i],
				"seed %d step %d is\n%v\nand again\n%v", seed, i, once[i:min(i+1, len(once))], again[i:min(i+1, len(again))])
		}
		untraced, _, _ := inBubble(t, seed, nil)
		require.Equal(t, tally, untraced, "what happened with seed %d, without a trace", seed)
	}
}
