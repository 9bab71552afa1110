package simulation

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	schedules = flag.Int("schedules", defaultSchedules, "how many schedules to run")
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

// inBubble runs one schedule in virtual time.
func inBubble(t *testing.T, seed uint64, trace func(string, ...any)) (tally Tally, err error) {
	synctest.Test(t, func(*testing.T) { tally, err = Run(seed, trace) })
	return tally, err
}

// TestSchedules runs schedules on all cores. `make simulate` is this with more of them.
func TestSchedules(t *testing.T) {
	if *replay {
		_, err := inBubble(t, *firstSeed, func(format string, args ...any) { fmt.Printf(format+"\n", args...) })
		require.NoError(t, err)
		return
	}
	r := runner{began: time.Now(), tally: Tally{}, progress: onTerminal()}
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for seed, ok := r.next(); ok; seed, ok = r.next() {
				tally, err := inBubble(t, seed, nil)
				r.finished(t, seed, tally, err)
			}
		})
	}
	wg.Wait()
	r.report(t)
}

// runner hands out seeds and collects what comes back.
type runner struct {
	began    time.Time
	progress bool

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
	if r.started == *schedules || r.violations >= *stopAt {
		return 0, false
	}
	r.started++
	return *firstSeed + uint64(r.started) - 1, true
}

func (r *runner) finished(t *testing.T, seed uint64, tally Tally, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done++
	for name, n := range tally {
		r.tally[name] += n
	}
	if err != nil {
		r.violations++
		t.Errorf("seed %d: %v\nto see each step: make simulate SEED=%d REPLAY=1", seed, err, seed)
	}
	if r.progress && time.Since(r.printed) > time.Second/2 {
		r.printed = time.Now()
		rate := float64(r.done) / time.Since(r.began).Seconds()
		left := time.Duration(float64(*schedules-r.done)/rate) * time.Second
		fmt.Fprintf(os.Stderr, "\r%d of %d schedules, %d violations, %.0f/s, %v left   ", r.done, *schedules, r.violations, rate, left)
	}
}

func (r *runner) report(t *testing.T) {
	if r.progress {
		fmt.Fprintln(os.Stderr)
	}
	took := time.Since(r.began)
	t.Logf("%d schedules in %v, %.0f/s", r.done, took.Round(time.Millisecond), float64(r.done)/took.Seconds())
	if *tallies {
		for _, name := range slices.Sorted(maps.Keys(r.tally)) {
			fmt.Printf("%9d  %s\n", r.tally[name], name)
		}
	}
	if r.done >= defaultSchedules && r.violations == 0 {
		r.everythingHappened(t)
	}
	lastLine.Lock()
	defer lastLine.Unlock()
	lastLine.text = fmt.Sprintf("schedules %d violations %d", r.done, r.violations)
}

// everythingHappened holds the schedules against what they are for.
func (r *runner) everythingHappened(t *testing.T) {
	want := []string{
		"kafka: request lost", "kafka: answer lost", "kafka: open transaction timed out", "kafka: open transaction fenced",
		"kafka: late commit arrives", "kafka: zombie refused",
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

// TestASeedReplaysIdentically: the same steps in the same order.
func TestASeedReplaysIdentically(t *testing.T) {
	for seed := uint64(1); seed <= 20; seed++ {
		steps := func() (lines []string) {
			_, err := inBubble(t, seed, func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) })
			require.NoError(t, err)
			return lines
		}
		require.Equal(t, steps(), steps(), "seed %d", seed)
	}
}
