package dev

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Console is the terminal or file that log lines, the banner and the status line
// share. Whatever is written to it goes above the status line.
type Console struct {
	terminal bool

	mu struct {
		sync.Mutex
		w     io.Writer
		shown bool // the last line is a status line
	}
}

// NewConsole writes to w; terminal tells whether a person may be looking at it.
func NewConsole(w io.Writer, terminal bool) *Console {
	c := &Console{terminal: terminal}
	c.mu.w = w
	return c
}

// clearLine goes to the start of the line and deletes it (ECMA-48, EL).
const clearLine = "\r\x1b[K"

// Write takes whole lines.
func (c *Console) Write(lines []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.shown {
		if _, err := io.WriteString(c.mu.w, clearLine); err != nil {
			return 0, err
		}
		c.mu.shown = false
	}
	return c.mu.w.Write(lines)
}

// status shows a line: in the place of the one before on a terminal, below it elsewhere.
func (c *Console) status(line string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.terminal {
		line = clearLine + line
	} else {
		line += "\n"
	}
	c.mu.shown = c.terminal
	_, err := io.WriteString(c.mu.w, line)
	return err
}

// end leaves the last status line where it is.
func (c *Console) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.shown {
		c.mu.shown = false
		_, _ = io.WriteString(c.mu.w, "\n") // nobody is left to tell
	}
}

// Hooks are where the status line has its numbers from. One that is nil is left out;
// one that fails is shown as unknown.
type Hooks struct {
	// Published tells what the simulator has done.
	Published func() SimulatorCounts
	// Applied is the sum of all counts in MySQL.
	Applied func(context.Context) (int64, error)
	// Lag is how many events are published but not applied.
	Lag func(context.Context) (int64, error)
}

const (
	statusOnTerminal = time.Second
	statusElsewhere  = 10 * time.Second
	statusTimeout    = 2 * time.Second // for asking a hook
)

// Status shows how things go.
type Status struct {
	console  *Console
	hooks    Hooks
	interval time.Duration

	last   SimulatorCounts
	lastAt time.Time
}

// NewStatus makes a status line on console.
func NewStatus(console *Console, hooks Hooks) *Status {
	s := &Status{console: console, hooks: hooks, interval: statusElsewhere}
	if console.terminal {
		s.interval = statusOnTerminal
	}
	return s
}

// Run shows the line every second on a terminal, every ten elsewhere, until ctx ends or
// nobody reads it any more.
func (s *Status) Run(ctx context.Context) error {
	defer s.console.end()
	ticker := time.NewTicker(s.interval)
	defer ticker.Stop()
	s.lastAt = time.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-ticker.C:
			line := s.line(ctx, now)
			if ctx.Err() != nil {
				return nil
			}
			if err := s.console.status(line); err != nil {
				return fmt.Errorf("writing the status: %w", err)
			}
		}
	}
}

// line asks all hooks.
func (s *Status) line(ctx context.Context, now time.Time) string {
	var parts []string
	if s.hooks.Published != nil {
		counts := s.hooks.Published()
		parts = append(parts, fmt.Sprintf("published %s (%s/s)",
			grouped(int64(counts.Published)), grouped(perSecond(counts.Published-s.last.Published, now.Sub(s.lastAt)))))
		if counts.Failed > 0 {
			parts = append(parts, "failed "+grouped(int64(counts.Failed)))
		}
		s.last, s.lastAt = counts, now
	}
	ask := func(name string, hook func(context.Context) (int64, error)) {
		if hook == nil {
			return
		}
		ctx, cancel := context.WithTimeout(ctx, statusTimeout)
		defer cancel()
		text := "unknown"
		if n, err := hook(ctx); err == nil {
			text = grouped(n)
		}
		parts = append(parts, name+" "+text)
	}
	ask("likes counted", s.hooks.Applied)
	ask("lag", s.hooks.Lag)
	return strings.Join(parts, "   ")
}

func perSecond(n uint64, over time.Duration) int64 {
	if over <= 0 {
		return 0
	}
	return int64(float64(n)/over.Seconds() + 0.5)
}

// grouped writes n with its thousands apart: 1,234,567.
func grouped(n int64) string {
	digits := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign, digits = "-", digits[1:]
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}
