// Package progress shows a person how far long work has come: a bar on a terminal, a line now and then elsewhere.
package progress

import (
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/schollz/progressbar/v3"
)

// Printer shows the phases of a command's work, one after the other.
type Printer struct {
	// Name of the command, which begins each line.
	Name string
	// Out is where it goes; nil: nowhere.
	Out io.Writer
	// Terminal: a person looks at Out.
	Terminal bool
}

const (
	barInterval  = 100 * time.Millisecond
	lineInterval = 5 * time.Second
)

// Phase counts what is done of one phase; any goroutine may. The zero Phase shows nothing.
type Phase struct {
	done atomic.Int64
	stop func()
}

// Add counts n more.
func (p *Phase) Add(n int64) { p.done.Add(n) }

// End shows the last of it and waits for that.
func (p *Phase) End() {
	if p.stop != nil {
		p.stop()
	}
}

// Begin starts a phase of so many units of work; 0: nobody knows.
func (p Printer) Begin(what, unit string, total int64) *Phase {
	phase := &Phase{}
	if p.Out == nil {
		return phase
	}
	show, end, interval := p.lines(phase, what, unit, total, time.Now())
	if p.Terminal {
		show, end, interval = p.bar(phase, what, unit, total)
	}
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
	phase.stop = sync.OnceFunc(func() {
		close(done)
		wg.Wait()
	})
	return phase
}

func (p Printer) lines(
	phase *Phase, what, unit string, total int64, began time.Time,
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
		progressbar.OptionSetWriter(p.Out),
		progressbar.OptionSetDescription(what),
		progressbar.OptionShowCount(),
		progressbar.OptionShowIts(),
		progressbar.OptionSetItsString(unit),
		progressbar.OptionSetWidth(30),
		progressbar.OptionThrottle(barInterval/2),
		progressbar.OptionSetPredictTime(total > 0),
		progressbar.OptionSetSpinnerChangeInterval(0), // no goroutine of its own
	)
	show = func() {
		done := phase.done.Load()
		if total > 0 {
			done = min(done, total) // the log grows meanwhile
		}
		_ = bar.Set64(done) // a terminal that is gone is no reason to stop
	}
	end = func() {
		show()
		_, _ = fmt.Fprintln(p.Out) // what comes next stands below the bar
	}
	return show, end, barInterval
}
