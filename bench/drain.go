package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"time"
)

// Drain is what counting a full topic came to.
type Drain struct {
	Events int64 `json:"events"`
	// Seconds from the first poll to the last commit in MySQL.
	Seconds         float64 `json:"seconds"`
	EventsPerSecond float64 `json:"events_per_second"`
	// Used is what each process cost in that time, by name: "contender" and the servers. The peak of the contender is
	// that of its life.
	Used map[string]Usage `json:"used,omitempty"`
	// Rows that InnoDB inserted and updated; -1 where the server does not tell.
	Rows  int64 `json:"rows"`
	State State `json:"state"`
	// RSSBytes is the contender's resident memory after the last commit.
	RSSBytes int64 `json:"rss_bytes,omitempty"`
}

// contenderName is the contender's process among those that are measured.
const contenderName = "contender"

// Bounds on what is waited for.
const (
	startTimeout = 2 * time.Minute
	// leastRate is the slowest that a contender may be before a run is given up, in events a second.
	leastRate    = 100
	checkTimeout = 5 * time.Minute
)

// Workload is the events of a run.
type Workload struct {
	Seed   uint64 `json:"seed"`
	Shape  Shape  `json:"shape"`
	Events int    `json:"events"`
}

// run is a contender at work on the servers of one run.
type run struct {
	contender Contender
	servers   *Servers
	load      Workload
	dir       string // for the files of its processes
	progress  func(string)

	stream   *Stream
	process  Running
	versions map[string]string // of the servers
}

// prepare fills the topic.
func (r *run) prepare(ctx context.Context) (err error) {
	if r.stream, err = NewStream(r.load.Seed, r.load.Shape); err != nil {
		return err
	}
	if err := r.contender.Prepare(ctx, r.servers, r.load.Shape.Partitions); err != nil {
		return fmt.Errorf("preparing %s: %w", r.contender.Name(), err)
	}
	begin := time.Now()
	err = Load(ctx, r.servers, r.stream, r.load.Shape.Partitions, r.load.Events, func(done int) {
		r.progress(fmt.Sprintf("%d of %d events loaded", done, r.load.Events))
	})
	if err == nil {
		r.progress(fmt.Sprintf("%d events loaded in %.1f s", r.load.Events, time.Since(begin).Seconds()))
	}
	return err
}

// drain starts the contender on the full topic and takes the times. The process runs on.
func (r *run) drain(ctx context.Context) (*Drain, error) {
	db, err := r.servers.open()
	if err != nil {
		return nil, err
	}
	defer db.Close()
	// Before the start: asking takes time that the contender would have the servers for.
	rows, err := rowsWritten(ctx, db)
	if err != nil {
		return nil, err
	}
	process, err := r.contender.Start(r.servers, filepath.Join(r.dir, r.contender.Name()))
	if err != nil {
		return nil, err
	}
	r.process = process
	startCtx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	first, err := r.process.FirstPoll(startCtx)
	if err != nil {
		return nil, err
	}
	meters, err := r.meters()
	if err != nil {
		return nil, err
	}
	events := int64(r.stream.Events())
	limit := time.Minute + time.Duration(events/leastRate)*time.Second
	countCtx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not counted within %v", limit))
	defer cancel()
	last, err := r.process.Counted(countCtx, events)
	if err != nil {
		return nil, err
	}
	d := &Drain{Events: events, Seconds: last.Sub(first).Seconds(), Rows: notCounted}
	d.EventsPerSecond = float64(events) / d.Seconds
	if d.Used, err = meters.read(); err != nil {
		return nil, err
	}
	if meters.on(contenderName) {
		m, err := memoryOf(r.process.PID())
		if err != nil {
			return nil, fmt.Errorf("measuring %s: %w", r.contender.Name(), err)
		}
		d.RSSBytes = m.resident
	}
	if rows != notCounted {
		after, err := rowsWritten(ctx, db)
		if err != nil {
			return nil, err
		}
		d.Rows = after - rows
	}
	ctx, cancel = context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	return d, checkCounts(ctx, db, r.stream, nil)
}

// meters begins to measure the servers and the contender, where /proc tells.
func (r *run) meters() (*meter, error) {
	if !hasProc() {
		return startMeter(nil)
	}
	pids := maps.Clone(r.servers.Processes)
	if pids == nil {
		pids = map[string]int{}
	}
	m, err := startMeter(pids)
	if err != nil {
		return nil, err
	}
	return m, m.add(contenderName, r.process.PID())
}

// end ends the contender and returns the state that it keeps.
func (r *run) end() (State, error) {
	p := r.process
	r.process = nil
	s, err := p.Stop()
	if err != nil {
		return s, err
	}
	// A design may forget pairs without a like; kudos must not (see rule 1 in docs/design.md).
	least, all := r.stream.Likes(), int64(r.stream.Pairs())
	if _, ok := r.contender.(*Kudos); ok {
		least = all
	}
	if s.Pairs < least || s.Pairs > all {
		return s, fmt.Errorf("%s keeps the state of %d pairs, but there are %d, %d of them with a like", r.contender.Name(), s.Pairs, all, r.stream.Likes())
	}
	return s, nil
}

// close ends what still runs after an error.
func (r *run) close() {
	if r.process != nil {
		r.process.Kill()
	}
}

// on opens servers for a run, does it, and closes them.
func on(ctx context.Context, site Site, r *run, do func() error) (err error) {
	if r.servers, err = site.Open(ctx, r.contender.NeedsRedis()); err != nil {
		return fmt.Errorf("servers: %w", err)
	}
	defer func() { err = errors.Join(err, site.Close()) }()
	defer r.close()
	if r.versions, err = r.servers.Versions(ctx); err != nil {
		return err
	}
	return do()
}

// measureDrain is a run that fills the topic and drains it.
func measureDrain(ctx context.Context, site Site, r *run) (d *Drain, err error) {
	err = on(ctx, site, r, func() error {
		if err := r.prepare(ctx); err != nil {
			return err
		}
		if d, err = r.drain(ctx); err != nil {
			return err
		}
		d.State, err = r.end()
		return err
	})
	return d, err
}

// String is the result in a line.
func (d *Drain) String() string {
	cpu := ""
	if u, ok := d.Used[contenderName]; ok {
		cpu = fmt.Sprintf(", %.2f CPU s and %d MiB at most", u.CPUSeconds, u.PeakBytes>>20)
	}
	return fmt.Sprintf("%.0f events/s (%d in %.2f s)%s, %d rows, %.1f bytes a pair",
		d.EventsPerSecond, d.Events, d.Seconds, cpu, d.Rows, float64(d.State.Bytes)/float64(max(1, d.State.Pairs)))
}
