package bench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jmoiron/sqlx"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/schema"
)

// This file measures how fast a contender counts a full topic.

// Drain is the result of counting a full topic.
type Drain struct {
	Events          int64   `json:"events"`
	Seconds         float64 `json:"seconds"` // from the first poll to the last commit in MySQL
	EventsPerSecond float64 `json:"events_per_second"`
	// Used is each process's cost in that time, by name: ContenderProcess (peak: of its whole life) and the servers.
	Used     map[string]Usage `json:"used,omitempty"`
	Rows     int64            `json:"rows"` // that InnoDB inserted and updated; -1 if the server does not count them
	State    State            `json:"state"`
	RSSBytes int64            `json:"rss_bytes,omitempty"` // the contender's resident memory after the last commit
}

// ContenderProcess is the key of the contender's process in Used, SenderProcess that of the benchmark itself.
const ContenderProcess, SenderProcess = "contender", "sender"

const (
	startTimeout = 10 * time.Minute // a reader reads the whole state
	checkTimeout = 5 * time.Minute
)

type Workload struct {
	Seed   uint64 `json:"seed"`
	Shape  Shape  `json:"shape"`
	Events int    `json:"events"`
}

type run struct {
	plan      *Plan
	contender Contender
	servers   *Servers
	load      Workload
	dir       string // for the files of its processes
	progress  func(string)

	stream  *Stream
	process Running // nil if none runs
}

func (r *run) measureDrain(ctx context.Context, into *Run) error {
	d, err := r.fillAndDrain(ctx)
	if err == nil {
		d.State, err = r.stop()
	}
	into.Drain = d
	return err
}

// fillAndDrain fills the topic and has the contender drain it. The contender's process keeps running.
func (r *run) fillAndDrain(ctx context.Context) (*Drain, error) {
	var err error
	if r.stream, err = NewStream(r.load.Seed, r.load.Shape); err != nil {
		return nil, err
	}
	if err := r.contender.Prepare(ctx, r.servers, r.load.Shape.Partitions); err != nil {
		return nil, fmt.Errorf("preparing %s: %w", r.contender.Name(), err)
	}
	begin := time.Now()
	if err := r.fill(ctx); err != nil {
		return nil, err
	}
	r.progress(fmt.Sprintf("%d events loaded in %.1f s", r.load.Events, time.Since(begin).Seconds()))
	// Query before the start: the query would take server time from the contender.
	rows, err := rowsWritten(ctx, r.servers.db)
	if err != nil {
		return nil, err
	}
	d, err := r.drain(ctx)
	if err != nil {
		return nil, err
	}
	if rows != notCounted {
		after, err := rowsWritten(ctx, r.servers.db)
		if err != nil {
			return nil, err
		}
		d.Rows = after - rows
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	return d, checkCounts(ctx, r.servers.db, r.stream, nil)
}

const (
	loadBuffer = 200_000               // records that the client may buffer while a topic is filled
	loadLinger = 10 * time.Millisecond // long enough to fill batches
	loadStep   = 50_000                // events between progress reports
)

// fill writes the events of the run to likes as any well-behaved producer would: in order within a partition, in
// batches as large as the topic allows. It returns when Kafka has acknowledged all of them.
func (r *run) fill(ctx context.Context) error {
	cl, err := r.servers.writer(loadLinger, loadBuffer)
	if err != nil {
		return err
	}
	defer cl.Close()
	ctx, fail := context.WithCancelCause(ctx) // with the first failure as cause
	defer fail(nil)
	records := records{partitions: r.load.Shape.Partitions}
	for i := range r.load.Events {
		e, err := r.stream.Next()
		if err != nil {
			return err
		}
		cl.Produce(ctx, records.of(&e), func(_ *kgo.Record, err error) {
			if err != nil {
				fail(err)
			}
		})
		if done := i + 1; done%loadStep == 0 || done == r.load.Events {
			if ctx.Err() != nil {
				break
			}
			r.progress(fmt.Sprintf("%d of %d events loaded", done, r.load.Events))
		}
	}
	if cl.Flush(ctx) != nil || ctx.Err() != nil {
		return fmt.Errorf("loading %s: %w", schema.TopicLikes, context.Cause(ctx))
	}
	return nil
}

func (r *run) start() (err error) {
	r.process, err = r.contender.Start(r.servers, filepath.Join(r.dir, r.contender.Name()))
	return err
}

// drain starts the contender on the full topic and measures until every event is counted.
func (r *run) drain(ctx context.Context) (*Drain, error) {
	if err := r.start(); err != nil {
		return nil, err
	}
	startCtx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	first, err := r.process.FirstPoll(startCtx)
	if err != nil {
		return nil, err
	}
	meter, err := startMeter(r.process.PID(), r.servers.Processes)
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
	d.Used, err = meter.read()
	d.RSSBytes = ResidentBytes(r.process.PID())
	return d, err
}

func (r *run) stop() (State, error) {
	p := r.process
	r.process = nil
	s, err := p.Stop()
	if err != nil {
		return s, err
	}
	// A contender may forget pairs without a like; kudos must not (rule 1 in docs/design.md).
	least, all := r.stream.Likes(), int64(r.stream.Pairs())
	if _, ok := r.contender.(*Kudos); ok {
		least = all
	}
	if s.Pairs < least || s.Pairs > all {
		return s, fmt.Errorf("%s keeps the state of %d pairs, but there are %d, %d of them with a like",
			r.contender.Name(), s.Pairs, all, r.stream.Likes())
	}
	return s, nil
}

const shownDifferences = 5 // how many wrong posts an error lists

// checkCounts compares every count in MySQL with the stream's, or a probe post's. A post without likes may be absent.
func checkCounts(ctx context.Context, db *sqlx.DB, stream *Stream, probes map[uint64]int64) error {
	rows, err := db.QueryContext(ctx, "SELECT post_id, `count` FROM like_count")
	if err != nil {
		return fmt.Errorf("reading the counts: %w", err)
	}
	defer rows.Close()
	var wrong []string
	differences, found := 0, 0
	for rows.Next() {
		var post uint64
		var have int64
		if err := rows.Scan(&post, &have); err != nil {
			return fmt.Errorf("reading the counts: %w", err)
		}
		want := stream.Count(post) + probes[post]
		if want != 0 {
			found++
		}
		if have == want {
			continue
		}
		if differences++; differences <= shownDifferences {
			wrong = append(wrong, fmt.Sprintf("post %d has %d, expected %d", post, have, want))
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("reading the counts: %w", err)
	}
	liked := len(probes)
	for range stream.Liked() {
		liked++
	}
	if missing := liked - found; missing > 0 {
		differences += missing
		wrong = append(wrong, fmt.Sprintf("%d posts are missing", missing))
	}
	if differences > 0 {
		return fmt.Errorf("the counts are wrong, %d of %d: %s", differences, liked, strings.Join(wrong, ", "))
	}
	return nil
}

const notCounted = -1 // the server does not count rows

// rowsWritten returns how many rows have been inserted and updated so far; only differences are meaningful. MySQL
// counts since the server started. MariaDB, which no longer has these counters, counts per table while `userstat` is
// on. The result is notCounted if the server has neither, or the user lacks the privilege.
func rowsWritten(ctx context.Context, db *sqlx.DB) (n int64, err error) {
	var counters int
	err = db.QueryRowContext(ctx, `SELECT COUNT(*), COALESCE(SUM(variable_value), 0)
		FROM performance_schema.global_status
		WHERE variable_name IN ('Innodb_rows_inserted', 'Innodb_rows_updated')`).Scan(&counters, &n)
	if err == nil && counters == 2 {
		return n, nil
	}
	if err == nil || refused(err) {
		var counted bool
		if err = db.GetContext(ctx, &counted, "SELECT @@userstat"); err == nil && !counted {
			return notCounted, nil
		}
		if err == nil {
			err = db.GetContext(ctx, &n, `SELECT COALESCE(SUM(rows_changed), 0) FROM information_schema.table_statistics
				WHERE table_schema = DATABASE()`)
		}
	}
	if refused(err) {
		return notCounted, nil
	}
	if err != nil {
		return 0, fmt.Errorf("reading the counters of the database: %w", err)
	}
	return n, nil
}

// refused reports whether err is an answer of the server (no such table, no privilege) and not a broken connection.
func refused(err error) bool { return errors.As(err, new(*mysql.MySQLError)) }
