package dev

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"kudos/schema"
)

// Console is the terminal or file that log lines, the banner and, below them, the status line share.
type Console struct {
	terminal bool

	mu struct {
		sync.Mutex
		w     io.Writer
		shown bool // the last line is a status line
	}
}

// NewConsole writes to w. terminal: w is a terminal.
func NewConsole(w io.Writer, terminal bool) *Console {
	c := &Console{terminal: terminal}
	c.mu.w = w
	return c
}

const clearLine = "\r\x1b[K" // moves to the start of the line and erases it (ECMA-48, EL)

// Write requires whole lines.
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

// status shows a status line. On a terminal it replaces the last one.
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

// end keeps the last status line on the screen.
func (c *Console) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.shown {
		c.mu.shown = false
		_, _ = io.WriteString(c.mu.w, "\n") // nobody left to report an error to
	}
}

// Hooks provide the numbers of the status line. A nil hook is left out; a failing one is shown as unknown.
type Hooks struct {
	Published func() SimulatorCounts               // what the simulator has done
	Applied   func(context.Context) (int64, error) // sum of all counts in MySQL
	Lag       func(context.Context) (int64, error) // events published but not applied
}

const (
	statusOnTerminal = time.Second
	statusElsewhere  = 10 * time.Second
	statusTimeout    = 2 * time.Second // for one hook
)

// Status is the status line.
type Status struct {
	console *Console
	hooks   Hooks
	last    SimulatorCounts
	lastAt  time.Time
}

// NewStatus returns a status line on console.
func NewStatus(console *Console, hooks Hooks) *Status { return &Status{console: console, hooks: hooks} }

// Run updates the line every second on a terminal, every ten elsewhere, until ctx ends or the output is closed.
func (s *Status) Run(ctx context.Context) error {
	if s.console.terminal {
		return s.run(ctx, statusOnTerminal)
	}
	return s.run(ctx, statusElsewhere)
}

func (s *Status) run(ctx context.Context, interval time.Duration) error {
	defer s.console.end()
	ticker := time.NewTicker(interval)
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

func (s *Status) line(ctx context.Context, now time.Time) string {
	var parts []string
	if s.hooks.Published != nil {
		counts := s.hooks.Published()
		perSecond := 0.0
		if over := now.Sub(s.lastAt); over > 0 {
			perSecond = math.Round(float64(counts.Published-s.last.Published) / over.Seconds())
		}
		parts = append(parts,
			fmt.Sprintf("published %s (%s/s)", grouped(int64(counts.Published)), grouped(int64(perSecond))))
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

// grouped formats n with thousands separators: 1,234,567.
func grouped(n int64) string {
	digits := strconv.FormatInt(n, 10)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// Banner is the text printed once everything runs.
type Banner struct {
	Addresses
	EmbeddedKafka, EmbeddedMySQL bool    // which servers run in this process
	DataDir                      string  // stores Kafka's data across restarts; empty: the data ends with the process
	Rate                         float64 // simulated events per second; 0: none
}

// Print writes the banner.
func (b Banner) Print(w io.Writer) error {
	var text strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&text, format+"\n", args...) }
	line("\nkudos is up.%s\n", b.volatile())
	line("  dashboard  http://%s\n", b.Reader)
	line("  Kafka  %-24s %s", b.Kafka, whose(b.EmbeddedKafka, "no security"))
	line("  MySQL  %-24s %s", b.MySQL, whose(b.EmbeddedMySQL, "user root, no password, database kudos"))
	line("  likes  http://%-17s the producer's HTTP API", b.HTTP)
	line("  reads  http://%-17s the reader's HTTP API: /openapi.yaml", b.Reader)
	line("  admin  http://%-17s /metrics, /readyz\n", b.Admin)
	if b.Rate > 0 {
		line("%s simulated events arrive per second. Watch, or like something yourself:\n", grouped(int64(b.Rate)))
	} else {
		line("No events are simulated (--simulate 2000 does that). Like something:\n")
	}
	line("  curl -i -X PUT 'http://%s/v1/posts/42/likes/7?region=DE'", b.HTTP)
	line("  curl http://%s/v1/posts/42/likes", b.Reader)
	line("  curl -N 'http://%s/v1/stream?post_ids=42'", b.Reader)
	line("  %s -e 'select * from like_count order by 2 desc limit 10'", b.mysqlCommand())
	line("  kcat -b %s -C -t %s -o -10 -e -f 'post %%k, %%S bytes at %%p@%%o\\n'", b.Kafka, schema.TopicUpdates)
	line("  kudos trending --brokers %s --follow", b.Kafka)
	line("  kcat -b %s -C -t %s -o -20 -e -f '%%k: %%s\\n'", b.Kafka, schema.TopicTrending)
	line("  curl -s http://%s/readyz\n", b.Admin)
	_, err := io.WriteString(w, text.String())
	return err
}

func (b Banner) volatile() string {
	switch {
	case b.DataDir != "":
		return " Everything runs in this process. Ctrl-C stops it; " + b.DataDir + " keeps its data."
	case b.EmbeddedKafka && b.EmbeddedMySQL:
		return " Everything runs in this process, with its data in memory: Ctrl-C stops it and deletes the data."
	case b.EmbeddedKafka:
		return " Kafka runs in this process, with its data in memory: Ctrl-C deletes the data."
	case b.EmbeddedMySQL:
		return " MySQL runs in this process, with its data in memory: Ctrl-C deletes the data."
	}
	return " Ctrl-C stops it."
}

func whose(embedded bool, how string) string {
	if embedded {
		return "embedded; " + how
	}
	return "yours"
}

func (b Banner) mysqlCommand() string {
	first, _, _ := strings.Cut(b.MySQL, ",") // the first of several
	host, port, err := net.SplitHostPort(first)
	if err != nil {
		host, port = first, "3306"
	}
	login := "-uroot kudos"
	if !b.EmbeddedMySQL {
		login = "-u… -p …"
	}
	return fmt.Sprintf("mariadb -h%s -P%s %s", host, port, login)
}

// Addresses are where the parts listen, host:port.
type Addresses struct {
	Kafka  string `json:"kafka"`
	MySQL  string `json:"mysql"`
	HTTP   string `json:"http"` // the producer
	Reader string `json:"reader"`
	Admin  string `json:"admin"`
}

// WriteReady atomically writes the ready file, which says that everything runs, and where.
func WriteReady(path string, a Addresses) error {
	next := path + ".next"
	text, _ := json.Marshal(a) // cannot fail: only strings
	err := os.WriteFile(next, append(text, '\n'), 0o644)
	if err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("writing the ready file %s: %w", path, err), RemoveReady(next))
	}
	return nil
}

// RemoveReady removes the ready file if it exists: at the end, and at the start in case an earlier run died.
func RemoveReady(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing the ready file %s: %w", path, err)
	}
	return nil
}
