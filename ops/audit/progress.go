package audit

import (
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/schollz/progressbar/v3"
)

// Progress tells a person how far long work has come: a bar on a terminal, a line now
// and then elsewhere. Work is a row of phases, one at a time.
type Progress struct {
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

// Phase counts what is done of one phase; any goroutine may.
type Phase struct {
	done atomic.Int64
	stop func()
}

// Add counts n more.
func (p *Phase) Add(n int64) { p.done.Add(n) }

// End shows the last of it and waits for that.
func (p *Phase) End() { p.stop() }

// Begin starts a phase of so many units of work; 0: nobody knows.
func (p *Progress) Begin(what, unit string, total int64) *Phase {
	phase := &Phase{stop: func() {}}
	if p.Out == nil {
		return phase
	}
	began := time.Now()
	show, end, interval := p.lines(phase, what, unit, total, began)
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

func (p *Progress) lines(phase *Phase, what, unit string, total int64, began time.Time) (show, end func(), interval time.Duration) {
	line := func(suffix string) {
		part := ""
		if done := phase.done.Load(); total > 0 && suffix == "" {
			part = fmt.Sprintf(" (%d %%)", min(100, 100*done/total))
		}
		_, _ = fmt.Fprintf(p.Out, "%s: %s: %d %s%s%s\n", p.Name, what, phase.done.Load(), unit, part, suffix)
	}
	end = func() { line(fmt.Sprintf(", in %s", time.Since(began).Round(time.Millisecond))) }
	return func() { line("") }, end, lineInterval
}

func (p *Progress) bar(phase *Phase, what, unit string, total int64) (show, end func(), interval time.Duration) {
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
