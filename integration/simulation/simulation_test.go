package simulation

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

var (
	schedules = flag.Int("schedules", 20_000, "how many schedules to run")
	firstSeed = flag.Uint64("seed", 1, "seed of the first one; the others follow")
)

// inBubble runs one schedule in virtual time.
func inBubble(t *testing.T, seed uint64, trace func(string, ...any)) (err error) {
	synctest.Test(t, func(*testing.T) { err = Run(seed, trace) })
	return err
}

func TestSchedules(t *testing.T) {
	var next, done, violations atomic.Int64
	began := time.Now()
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for {
				i := next.Add(1) - 1
				if i >= int64(*schedules) || violations.Load() >= 5 {
					return
				}
				seed := *firstSeed + uint64(i)
				if err := inBubble(t, seed, nil); err != nil {
					violations.Add(1)
					t.Errorf("seed %d: %v", seed, err)
				}
				done.Add(1)
			}
		})
	}
	wg.Wait()
	fmt.Fprintf(os.Stderr, "%d schedules in %v\n", done.Load(), time.Since(began).Round(time.Millisecond))
}

func TestReplay(t *testing.T) {
	if os.Getenv("REPLAY") == "" {
		t.Skip()
	}
	err := inBubble(t, *firstSeed, func(format string, args ...any) { fmt.Printf(format+"\n", args...) })
	fmt.Println("result:", err)
}
