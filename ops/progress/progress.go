// Package progress shows the progress of long-running commands: a bar on a terminal, an occasional line elsewhere.
package progress

import (
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/schollz/progressbar/v3"
)

// Printer shows the phases of a command, one after the other.
type Printer struct {
	Name     string    // of the command; the prefix of each line
	Out      io.Writer // nil disables the output
	Terminal bool      // Out is a terminal
}

const barInterval, lineInterval = 100 * time.Millisecond, 5 * time.Second

// Phase counts the work done in one phase. It is safe for concurrent use. The zero Phase shows nothing.
type Phase struct {
	done atomic.Int64
	stop func()
}

// Add adds n units of work.
func (p *Phase) Add(n int64) { p.done.Add(n) }

// End shows the final state and waits until it is written.
func (p *Phase) End() {
	if p.stop != nil {
		p.stop()
	}
}

// Begin starts a phase with total units of work, or 0 if unknown.
func (p Printer) Begin(what, unit string, total int64) *Phase {
	phase := &Phase{}
	if p.Out == nil {
		return phase
	}
	show, end, interval := p.lines(phase, what, unit, total, time.Now())
	if p.Terminal {
		show, end, interval = p.bar(phase, what, unit, total)
	}
	phase.stop = Repeat(interval, show, end)
	return phase
}

// Repeat calls show at an interval until stop is called, which calls end and waits until that has returned.
func Repeat(interval time.Duration, show, end func()) (stop func()) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				show()
			case <-done:
				end()
				return
			}
		}
	})
	return sync.OnceFunc(func() {
		close(done)
		wg.Wait()
	})
}

func (p Printer) lines(phase *Phase, what, unit string, total int64, began time.Time,
) (show, end func(), interval time.Duration) {
	line := func(suffix string) {
		_, _ = fmt.Fprintf(p.Out, "%s: %s: %d %s%s\n", p.Name, what, phase.done.Load(), unit, suffix)
	}
	show = func() {
		if total > 0 {
			line(fmt.Sprintf(" (%d %%)", min(100, 100*phase.done.Load()/total)))
		} else {
			line("")
		}
	}
	end = func() { line(fmt.Sprintf(", in %s", time.Since(began).Round(time.Millisecond))) }
	return show, end, lineInterval
}

func (p Printer) bar(phase *Phase, what, unit string, total int64) (show, end func(), interval time.Duration) {
	if total <= 0 {
		total = -1
	}
	bar := progressbar.NewOptions64(total,
		progressbar.OptionSetWriter(p.Out), progressbar.OptionSetDescription(what), progressbar.OptionSetWidth(30),
		progressbar.OptionShowCount(), progressbar.OptionShowIts(), progressbar.OptionSetItsString(unit),
		progressbar.OptionThrottle(barInterval/2), progressbar.OptionSetPredictTime(total > 0),
		progressbar.OptionSetSpinnerChangeInterval(0), // no extra goroutine
	)
	show = func() {
		done := phase.done.Load()
		if total > 0 {
			done = min(done, total) // the log may have grown in the meantime
		}
		_ = bar.Set64(done) // a lost terminal must not stop the command
	}
	end = func() {
		show()
		_, _ = fmt.Fprintln(p.Out) // continue on the line below the bar
	}
	return show, end, barInterval
}
