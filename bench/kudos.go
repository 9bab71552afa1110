package bench

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/schema"
	"kudos/stream/store"
)

// Kudos is the contender that this project is: one `kudos processor`, with its defaults.
type Kudos struct {
	// Program is the binary, with arguments and environment that its configuration comes from.
	Program Command
	// Profiles is the folder that CPU profiles of drains go to; "": none are made.
	Profiles string
}

func (k *Kudos) Name() string { return "kudos" }

func (k *Kudos) About() string {
	return "one processor with default settings: Kafka transactions, exact under redelivery, reordering and crashes"
}

func (k *Kudos) NeedsRedis() bool { return false }

// on is the program for these servers.
func (k *Kudos) on(s *Servers, partitions int32) Command {
	c := k.Program
	c.Env = append(c.Env[:len(c.Env):len(c.Env)],
		"KUDOS_KAFKA_BROKERS="+strings.Join(s.Kafka.Brokers, ","),
		"KUDOS_MYSQL_DSN="+s.DSN, "KUDOS_MYSQL_DSN_FILE=", // not both
		"KUDOS_LOG_FORMAT=json", "KUDOS_LOG_LEVEL=info",
	)
	if partitions > 0 {
		c.Env = append(c.Env, fmt.Sprintf("KUDOS_TOPICS_PARTITIONS=%d", partitions), fmt.Sprintf("KUDOS_TOPICS_REPLICATION_FACTOR=%d", s.Replication))
	}
	return c
}

func (k *Kudos) Prepare(ctx context.Context, s *Servers, partitions int32) error {
	c := k.on(s, partitions)
	if err := c.run(ctx, "topics", "apply"); err != nil {
		return err
	}
	return c.run(ctx, "migrate")
}

func (k *Kudos) Start(s *Servers, dir string) (Running, error) {
	r := &kudosProcess{servers: s, stateDir: filepath.Join(dir, "state"), profiles: k.Profiles, running: map[int32]int64{}}
	r.init(k.Name(), dir)
	c := k.on(s, 0)
	c.Args = append([]string{"processor"}, c.Args...)
	c.Env = append(c.Env, "KUDOS_PROCESSOR_STATE_DIR="+r.stateDir, "KUDOS_ADMIN_ADDR=127.0.0.1:0", fmt.Sprintf("KUDOS_ADMIN_PROFILES=%t", k.Profiles != ""))
	return r, r.process.start(c, true, r.line)
}

// kudosProcess is a processor and what its log has told.
type kudosProcess struct {
	news
	servers  *Servers
	stateDir string
	profiles string

	admin string // the address of its admin server
	// firstPoll is when the first partition of the fold began to ask for events.
	firstPoll time.Time
	// running are the partitions of the fold that ask for events, and from which offset on.
	running map[int32]int64
	lastRan time.Time
}

const (
	// runningMessage is what a processor logs when a partition begins to ask for events (stream/claim_work.go).
	runningMessage = "partition is running"
	// listeningMessage is what an admin server logs when it has its address (httpserver/admin).
	listeningMessage = "listening"
)

func (r *kudosProcess) line(text []byte) {
	var l struct {
		Time      time.Time `json:"time"`
		Msg       string    `json:"msg"`
		Addr      string    `json:"addr"`
		Group     string    `json:"group"`
		Partition int32     `json:"partition"`
		Offset    int64     `json:"offset"`
	}
	if err := json.Unmarshal(text, &l); err != nil {
		return // the log is for people; what was not understood is in the file
	}
	if l.Msg == listeningMessage {
		r.tell(func() { r.admin = l.Addr })
	}
	if l.Msg != runningMessage || l.Group != schema.GroupFold {
		return
	}
	r.tell(func() {
		if r.firstPoll.IsZero() {
			r.firstPoll = l.Time
		}
		r.running[l.Partition], r.lastRan = l.Offset, l.Time
	})
}

func (r *kudosProcess) FirstPoll(ctx context.Context) (time.Time, error) {
	var at time.Time
	err := r.wait(ctx, "the first poll", func() bool { at = r.firstPoll; return !at.IsZero() })
	return at, err
}

// allRunning waits until all partitions ask for events, and returns when the last one began to.
func (r *kudosProcess) allRunning(ctx context.Context, partitions int32) (time.Time, error) {
	var at time.Time
	err := r.wait(ctx, "all partitions", func() bool { at = r.lastRan; return len(r.running) == int(partitions) })
	return at, err
}

const (
	// lookAtKafka and lookAtMySQL are how often is looked whether a log has been drained: seldom, since looking takes
	// from what is measured, and a few milliseconds are little against seconds.
	lookAtKafka = 25 * time.Millisecond
	lookAtMySQL = 5 * time.Millisecond
)

// Counted asks Kafka and MySQL, not the process: the fold's group has committed the end of likes, and MySQL stands at
// the end of like-updates.
func (r *kudosProcess) Counted(ctx context.Context, _ int64) (time.Time, error) {
	profiled := r.profile(ctx)
	at, err := r.counted(ctx)
	return at, errors.Join(err, profiled())
}

func (r *kudosProcess) counted(ctx context.Context) (time.Time, error) {
	cl, err := r.servers.client()
	if err != nil {
		return time.Time{}, err
	}
	defer cl.Close()
	if err := r.every(ctx, lookAtKafka, "all events to be folded", func() (bool, error) { return folded(ctx, cl) }); err != nil {
		return time.Time{}, err
	}
	var ends map[int32]int64
	err = r.every(ctx, lookAtMySQL, "the last transactions to be whole", func() (settled bool, err error) {
		ends, settled, err = settledEnds(ctx, cl, schema.TopicUpdates)
		return settled, err
	})
	if err != nil {
		return time.Time{}, err
	}
	db, err := r.servers.open()
	if err != nil {
		return time.Time{}, err
	}
	defer db.Close()
	var at time.Time
	err = r.every(ctx, lookAtMySQL, "all updates to be in MySQL", func() (bool, error) {
		at = time.Now()
		return applied(ctx, db, ends)
	})
	return at, err
}

// every looks until it is so.
func (r *kudosProcess) every(ctx context.Context, pause time.Duration, what string, look func() (bool, error)) error {
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		if ok, err := look(); ok || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-r.process.Done():
			return r.process.ended()
		case <-ctx.Done():
			return r.gaveUp(ctx, what)
		}
	}
}

func committedEnds(ctx context.Context, cl *kgo.Client, topic string) (map[int32]int64, error) {
	listed, err := kadm.NewClient(cl).ListCommittedOffsets(ctx, topic)
	if err == nil {
		err = listed.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("looking for the end of %s: %w", topic, err)
	}
	ends := map[int32]int64{}
	listed.Each(func(o kadm.ListedOffset) { ends[o.Partition] = o.Offset })
	return ends, nil
}

// settledEnds are the ends of a topic to which nothing is written any more, if no transaction in it is open. The broker
// writes a transaction's markers to one log after another: the group's offset may be committed before this topic's
// updates are.
func settledEnds(ctx context.Context, cl *kgo.Client, topic string) (ends map[int32]int64, settled bool, err error) {
	listed, err := kadm.NewClient(cl).ListEndOffsets(ctx, topic)
	if err == nil {
		err = listed.Error()
	}
	if err != nil {
		return nil, false, fmt.Errorf("looking for the end of %s: %w", topic, err)
	}
	committed, err := committedEnds(ctx, cl, topic)
	if err != nil {
		return nil, false, err
	}
	settled = true
	listed.Each(func(o kadm.ListedOffset) { settled = settled && committed[o.Partition] == o.Offset })
	return committed, settled, nil
}

// folded tells whether the fold's group has committed the end of likes. (No transactions write to it but for events
// that were misplaced, which there are none of: the end is behind an event.)
func folded(ctx context.Context, cl *kgo.Client) (bool, error) {
	ends, err := committedEnds(ctx, cl, schema.TopicLikes)
	if err != nil {
		return false, err
	}
	committed, err := kadm.NewClient(cl).FetchOffsets(ctx, schema.GroupFold)
	if err != nil {
		return false, fmt.Errorf("asking for the offsets of group %s: %w", schema.GroupFold, err)
	}
	for p, end := range ends {
		at, _ := committed.Lookup(schema.TopicLikes, p)
		if at.Err != nil || at.At < end {
			return false, nil
		}
	}
	return true, nil
}

// applied tells whether MySQL stands at the ends of like-updates. The last offset of a partition is that of a
// transaction's marker; behind the last update is one before the end.
func applied(ctx context.Context, db *sql.DB, ends map[int32]int64) (bool, error) {
	rows, err := db.QueryContext(ctx, "SELECT partition_id, next_offset FROM applied_offset WHERE topic = ?", schema.TopicUpdates)
	if err != nil {
		return false, fmt.Errorf("asking MySQL for its position: %w", err)
	}
	defer rows.Close()
	at := map[int32]int64{}
	for rows.Next() {
		var p int32
		var next int64
		if err := rows.Scan(&p, &next); err != nil {
			return false, fmt.Errorf("asking MySQL for its position: %w", err)
		}
		at[p] = next
	}
	if err := rows.Err(); err != nil {
		return false, fmt.Errorf("asking MySQL for its position: %w", err)
	}
	for p, end := range ends {
		if end > 0 && at[p] < end-1 {
			return false, nil
		}
	}
	return true, nil
}

// Stop ends the processor and compacts its state.
func (r *kudosProcess) Stop() (State, error) {
	if err := r.process.stop(); err != nil {
		return State{}, err
	}
	var s State
	for p := range r.running {
		dir := filepath.Join(r.stateDir, schema.TopicState, strconv.Itoa(int(p)))
		bytes, err := store.CompactStopped(dir, r.servers.Log, func(key []byte) {
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
