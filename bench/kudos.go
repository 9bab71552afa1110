package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/twmb/franz-go/pkg/kadm"
	"golang.org/x/sync/errgroup"

	"kudos/bench/child"
	"kudos/schema"
	"kudos/stream/store"
)

// This file is kudos as a contender, and its recovery.

// Kudos is kudos as a contender: one `kudos processor` with default settings.
type Kudos struct {
	Program child.Command // the binary, with the arguments and environment that configure it
	// Profile, unless nil, profiles a processor while it drains. admin is the address of its admin server.
	Profile func(ctx context.Context, admin string) error
}

func (k *Kudos) Name() string { return "kudos" }

func (k *Kudos) About() string {
	return "one processor with default settings: Kafka transactions, exact under redelivery, reordering and crashes"
}

func (k *Kudos) on(s *Servers, env ...string) child.Command {
	c := k.Program
	c.Env = slices.Concat(c.Env, []string{
		"KUDOS_KAFKA_BROKERS=" + strings.Join(s.Kafka.Brokers, ","),
		"KUDOS_MYSQL_DSN=" + s.DSN, "KUDOS_MYSQL_DSN_FILE=", // the DSN must come from one of them only
		"KUDOS_LOG_FORMAT=json", "KUDOS_LOG_LEVEL=info",
	}, env)
	return c
}

// Prepare creates topics and tables.
func (k *Kudos) Prepare(ctx context.Context, s *Servers, partitions int32) error {
	c := k.on(s, fmt.Sprintf("KUDOS_TOPICS_PARTITIONS=%d", partitions),
		fmt.Sprintf("KUDOS_TOPICS_REPLICATION_FACTOR=%d", s.Replication))
	for _, words := range []string{"topics apply", "migrate"} {
		cmd := exec.CommandContext(ctx, c.Path, append(strings.Fields(words), c.Args...)...)
		cmd.Env = append(os.Environ(), c.Env...)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s %s: %w\n%s", filepath.Base(c.Path), words, err, strings.TrimSpace(string(out)))
		}
	}
	return nil
}

// Start starts a processor.
func (k *Kudos) Start(s *Servers, dir string) (Running, error) {
	stateDir := filepath.Join(dir, "state")
	r, err := k.start(s, "processor", dir,
		"KUDOS_PROCESSOR_STATE_DIR="+stateDir, fmt.Sprintf("KUDOS_ADMIN_PROFILES=%t", k.Profile != nil))
	if err != nil {
		return nil, err
	}
	return &processor{role: r, servers: s, stateDir: stateDir, profile: k.Profile}, nil
}

type processor struct {
	*role
	servers  *Servers
	stateDir string
	profile  func(ctx context.Context, admin string) error
}

func (p *processor) FirstPoll(ctx context.Context) (at time.Time, err error) {
	err = p.Wait(ctx, "the first poll", func() bool { at = p.firstRan; return !at.IsZero() })
	return at, err
}

const (
	// lookAtKafka and lookAtMySQL are the intervals of checking whether everything is counted. They are long because
	// checking takes resources from what is measured; a few milliseconds are negligible against seconds.
	lookAtKafka = 25 * time.Millisecond
	lookAtMySQL = 5 * time.Millisecond
)

// Counted polls until the fold's group has committed the end of likes and MySQL has applied like-updates to its end.
func (p *processor) Counted(ctx context.Context, _ int64) (time.Time, error) {
	var profiling errgroup.Group
	if p.profile != nil {
		profiling.Go(func() error {
			var admin string
			known := func() bool { admin = p.addr[adminServer]; return admin != "" }
			if err := p.Wait(ctx, "the admin server's address", known); err != nil {
				return err
			}
			return p.profile(ctx, admin)
		})
	}
	at, err := p.counted(ctx)
	return at, errors.Join(err, profiling.Wait())
}

func (p *processor) counted(ctx context.Context) (at time.Time, err error) {
	adm, db := p.servers.adm, p.servers.db
	err = p.Poll(ctx, lookAtKafka, "all events to be folded", func() (bool, error) { return folded(ctx, adm) })
	if err != nil {
		return time.Time{}, err
	}
	// The broker writes a transaction's commit markers to one log after another, so the group's offset may be committed
	// before the updates are. Nobody writes to like-updates any more, so it is complete once no transaction is open.
	var end map[int32]int64
	err = p.Poll(ctx, lookAtMySQL, "the last transactions to complete", func() (bool, error) {
		written, err := offsets(ctx, schema.TopicUpdates, adm.ListEndOffsets)
		if err == nil {
			end, err = offsets(ctx, schema.TopicUpdates, adm.ListCommittedOffsets)
		}
		return maps.Equal(written, end), err
	})
	if err != nil {
		return time.Time{}, err
	}
	err = p.Poll(ctx, lookAtMySQL, "all updates to be in MySQL", func() (bool, error) {
		at = time.Now()
		return applied(ctx, db, end)
	})
	return at, err
}

// folded reports whether the fold's group has committed the end of likes. Only forwarding of misrouted events writes
// transactions to likes, and there are none here, so no transaction marker is at the end.
func folded(ctx context.Context, adm *kadm.Client) (bool, error) {
	ends, err := offsets(ctx, schema.TopicLikes, adm.ListCommittedOffsets)
	if err != nil {
		return false, err
	}
	committed, err := adm.FetchOffsets(ctx, schema.GroupFold)
	if err != nil {
		return false, fmt.Errorf("fetching the offsets of group %s: %w", schema.GroupFold, err)
	}
	for p, end := range ends {
		at, _ := committed.Lookup(schema.TopicLikes, p)
		if at.Err != nil || at.At < end {
			return false, nil
		}
	}
	return true, nil
}

// applied reports whether MySQL has reached the ends of like-updates. The last offset of a partition is a transaction
// marker, so the position after the last update is one below the end.
func applied(ctx context.Context, db *sqlx.DB, ends map[int32]int64) (bool, error) {
	var positions []struct {
		Partition int32 `db:"partition_id"`
		Next      int64 `db:"next_offset"`
	}
	err := db.SelectContext(ctx, &positions,
		"SELECT partition_id, next_offset FROM applied_offset WHERE topic = ?", schema.TopicUpdates)
	if err != nil {
		return false, fmt.Errorf("reading the applied offset from MySQL: %w", err)
	}
	at := map[int32]int64{}
	for _, p := range positions {
		at[p.Partition] = p.Next
	}
	for p, end := range ends {
		if end > 0 && at[p] < end-1 {
			return false, nil
		}
	}
	return true, nil
}

// Stop ends the processor and compacts its state store.
func (p *processor) Stop() (State, error) {
	if err := p.Terminate(StopTimeout); err != nil {
		return State{}, err
	}
	var s State
	for partition := range p.running {
		dir := filepath.Join(p.stateDir, schema.TopicState, strconv.Itoa(int(partition)))
		bytes, err := store.CompactStopped(dir, p.servers.Log, func(key []byte) {
			if len(key) == schema.PairKeySize {
				s.Pairs++
			}
		})
		if err != nil {
			return State{}, err
		}
		s.Bytes += bytes
	}
	return s, nil
}

// DefaultRecovery is the workload of published reports: 10,000,000 pairs.
func DefaultRecovery(seed uint64) *Workload {
	shape, _ := ShapeNamed("skewed-1000") // always found
	return &Workload{Seed: seed, Shape: shape, Events: 11_120_000}
}

// Recovery is how long kudos takes to rebuild its local state from Kafka.
type Recovery struct {
	Pairs            int64   `json:"pairs"`
	Records          int64   `json:"records"`            // in the state table's topic, transaction markers included
	Seconds          float64 `json:"seconds"`            // from the process start until each partition polls for events
	EntriesPerSecond float64 `json:"entries_per_second"` // pairs
	// Memory of the process, 0 without /proc: resident when it was ready, and the peak until then.
	RSSBytes  int64 `json:"rss_bytes,omitempty"`
	PeakBytes int64 `json:"peak_bytes,omitempty"`
	// KilledSeconds is for a process that was killed and has its files: from its assignment until it polls.
	KilledSeconds float64 `json:"killed_seconds,omitempty"`
	Drained       Drain   `json:"drained"` // the run of another process that created the state
}

func (r *run) measureRecovery(ctx context.Context, into *Run) error {
	d, err := r.fillAndDrain(ctx)
	if err != nil {
		return err
	}
	r.process.(*processor).Kill()
	assigned, ran, err := r.recover(ctx, "killed", d.Events)
	if err != nil {
		return err
	}
	if d.State, err = r.stop(); err != nil {
		return err
	}
	// Remove all files: the next process must start without state.
	if err := os.RemoveAll(filepath.Join(r.dir, r.contender.Name())); err != nil {
		return err
	}
	rec := &Recovery{Pairs: d.State.Pairs, Drained: *d, KilledSeconds: ran.Sub(assigned).Seconds()}
	if rec.Records, err = r.servers.length(ctx, schema.TopicState); err != nil {
		return err
	}
	begin := time.Now()
	if _, ran, err = r.recover(ctx, "without local state", d.Events); err != nil {
		return err
	}
	rec.Seconds = ran.Sub(begin).Seconds()
	rec.EntriesPerSecond = float64(rec.Pairs) / rec.Seconds
	rec.RSSBytes, rec.PeakBytes = ResidentBytes(r.process.PID()), peakBytes(r.process.PID())
	after, err := r.stop()
	if err == nil && after.Pairs != rec.Pairs {
		err = fmt.Errorf("%d pairs were recovered, expected %d", after.Pairs, rec.Pairs)
	}
	into.Recovery = rec
	return err
}

// recover starts a processor. It returns when all partitions were assigned, and when the last one polled for events.
func (r *run) recover(ctx context.Context, how string, events int64) (assigned, ran time.Time, err error) {
	r.progress("recovering, " + how)
	if err := r.start(); err != nil {
		return assigned, ran, err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout+time.Duration(events/10_000)*time.Second)
	defer cancel()
	p := r.process.(*processor)
	err = p.Wait(ctx, "all partitions", func() bool {
		assigned, ran = p.assigned, p.lastRan
		return len(p.running) == int(r.load.Shape.Partitions)
	})
	return assigned, ran, err
}
