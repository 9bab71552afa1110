package chaos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/integration/stack"
	"kudos/schema"
)

const (
	// sessionTimeout is the group's. After transactionTimeout, Kafka aborts the transaction of a dead owner.
	sessionTimeout     = 3 * time.Second
	transactionTimeout = 10 * time.Second
	diskBytes          = 512 << 20 // exceeds the size of any state, and is small enough to be filled quickly
	startTimeout       = time.Minute
	guests             = 2 // processors that come and go in a rebalance storm
)

type system struct {
	opts               Options
	log                *slog.Logger
	kafka              *stack.Kafka
	database           atomic.Pointer[database]
	network            *network
	watch              *watch
	processors, guests []*unit
	readers            []*unit
	followers          []*unit // rankers and the archive
	producer           *unit
	http               string
	buckets            string // the user buckets of the layout

	client *kgo.Client // bypasses all proxies
	admin  *kadm.Client
	ends   []func() error // cleanup, in order of the starts
}

func startSystem(ctx context.Context, o Options) (_ *system, err error) {
	s := &system{opts: o, log: o.Log}
	defer stack.CloseOnError(&err, s.close)
	s.kafka, err = stack.StartKafka(ctx, stack.KafkaOptions{
		Dir: o.Dir, Nodes: 3, Fronted: true, Keep: true, Log: o.Log,
		ExtraProperties: map[string]string{
			"group.min.session.timeout.ms":    "1000",
			"log.segment.bytes":               "67108864",
			"log.retention.check.interval.ms": "60000",
		},
	})
	if err != nil {
		return nil, err
	}
	s.atEnd(s.kafka.Close)
	if err := s.startDatabase(ctx); err != nil {
		return nil, err
	}
	primary := s.database.Load().primary
	s.network = &network{}
	s.atEnd(s.network.close)
	if err = s.network.start(s.kafka.Fronts(), primary.Address(), s.reserve); err != nil {
		return nil, err
	}
	if s.client, err = kgo.NewClient(kgo.SeedBrokers(s.kafka.Brokers()...), kgo.DisableClientMetrics(),
		kgo.MetadataMinAge(250*time.Millisecond)); err != nil {
		return nil, err
	}
	s.atEnd(func() error { s.client.Close(); return nil })
	s.admin = kadm.NewClient(s.client)
	if err := s.prepare(ctx, primary); err != nil {
		return nil, err
	}
	if err := s.startPrograms(ctx); err != nil {
		return nil, err
	}
	// Otherwise the first faults would have no effect.
	for _, u := range slices.Concat(s.processors, s.readers, s.followers) {
		if err := u.awaitWork(ctx, startTimeout); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *system) prepare(ctx context.Context, primary *stack.Database) error {
	// By the earlier version of rolling upgrades, if any: it refuses topics that a later one creates.
	creator := cmp.Or(s.opts.Previous, s.opts.Program)
	err := s.command(ctx, creator, "topics", "apply", "--brokers", strings.Join(s.kafka.Brokers(), ","), "--set",
		fmt.Sprintf("topics.partitions=%d", s.opts.Partitions), "--set", "topics.replication_factor=3")
	if err != nil {
		return err
	}
	// Lets the state table be compacted during the run, so that reading it again stays fast.
	configs := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "segment.bytes", Value: new("16777216")},
		{Op: kadm.SetConfig, Name: "min.cleanable.dirty.ratio", Value: new("0.3")}}
	if _, err = s.admin.AlterTopicConfigs(ctx, configs, schema.TopicState); err != nil {
		return fmt.Errorf("setting up the state table: %w", err)
	}
	return s.kudos(ctx, "migrate", "--mysql-dsn", primary.DSN(databaseName))
}

func (s *system) startPrograms(ctx context.Context) error {
	for i := range s.opts.Processors + guests {
		u, err := s.newProcessor(i)
		if err != nil {
			return err
		}
		if i >= s.opts.Processors {
			s.guests = append(s.guests, u)
			continue
		}
		s.processors = append(s.processors, u)
		if err := u.Start(ctx); err != nil {
			return err
		}
	}
	for i := range readers {
		u, err := s.newReader(i)
		if err == nil {
			s.readers = append(s.readers, u)
			err = u.Start(ctx)
		}
		if err != nil {
			return err
		}
	}
	for _, name := range []string{"ranker-0", "ranker-1", "archive"} {
		u, err := s.newFollower(name)
		if err == nil {
			s.followers = append(s.followers, u)
			err = u.Start(ctx)
		}
		if err != nil {
			return err
		}
	}
	var err error
	if s.http, err = s.reserve(); err != nil {
		return err
	}
	s.producer = &unit{}
	err = s.program(s.producer, "producer", "producer", "--set", "producer.http_addr="+s.http,
		"--set", "producer.ack_timeout=8s")
	if err != nil {
		return err
	}
	return s.producer.Start(ctx)
}

// newProcessor returns a processor process. Those beyond opts.Processors are guests, without a disk.
func (s *system) newProcessor(i int) (*unit, error) {
	name := fmt.Sprintf("processor-%d", i)
	u := &unit{state: filepath.Join(s.opts.Dir, name, "state"), hit: func() { s.watch.hit() }}
	if i < s.opts.Processors {
		var err error
		if u.disk, err = newDisk(diskBytes); err != nil {
			s.log.Warn("cannot create a disk that can be filled", "error", err)
		} else {
			s.atEnd(u.disk.close)
			u.state = filepath.Join(u.disk.path(), "state")
		}
	}
	return u, s.program(u, name, "processor", "--mysql-dsn", s.dsn(), "--set", "processor.standby=true",
		"--set", "processor.state_dir="+u.state,
		"--set", "processor.session_timeout="+sessionTimeout.String(),
		"--set", "processor.transaction_timeout="+transactionTimeout.String(),
		"--set", "processor.max_batch=2000", "--set", "processor.cache_bytes=33554432",
		"--set", "processor.park_interval=1s", "--set", "processor.position_check_interval=1s",
		"--set", "processor.shutdown_timeout=5s",
		"--set", "mysql.connect_timeout=2s", "--set", "mysql.read_timeout=4s", "--set", "mysql.write_timeout=4s",
		"--set", "mysql.lock_wait_timeout=1s", "--set", "mysql.idle_timeout=5s")
}

// dsn is the database behind the proxies.
func (s *system) dsn() string { return "root@tcp(" + s.network.commits.Addr() + ")/" + databaseName }

func (s *system) program(u *unit, name string, args ...string) error {
	admin, err := s.reserve()
	if err != nil {
		return err
	}
	u.admin, u.role = admin, args[0]
	dir := filepath.Join(s.opts.Dir, name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	args = append(args, "--brokers", strings.Join(s.network.brokerList(), ","), "--set", "admin.addr="+admin,
		"--set", "kafka.dial_timeout=2s", "--set", "kafka.request_timeout=15s")
	o := stack.ProgramOptions{Name: name, Path: s.opts.Program, Args: args, Dir: dir, Log: s.log}
	u.Server = stack.NewProgram(o)
	o.Path = cmp.Or(s.opts.Previous, o.Path)
	u.other = stack.NewProgram(o)
	s.atEnd(func() error {
		if u.Running() {
			return u.Kill()
		}
		return nil
	})
	return nil
}

func (s *system) reserve() (string, error) {
	r, err := stack.Reserve()
	if err != nil {
		return "", err
	}
	s.atEnd(r.Release)
	return r.Address(), nil
}

// ours are the processes that only faults end; guests are not among them.
func (s *system) ours() []*unit {
	return slices.Concat(s.processors, s.readers, s.followers, []*unit{s.producer})
}

func (s *system) of(role string) []*unit {
	return slices.DeleteFunc(s.ours(), func(u *unit) bool { return u.role != role })
}

func (s *system) lookAfter(ctx context.Context) {
	for wait(ctx, 250*time.Millisecond) == nil {
		for _, u := range s.ours() {
			if exited, err := u.lookAfter(ctx); exited {
				s.log.Error("exited by itself and was restarted", "server", u.String(), "error", err,
					"log", u.LogTail())
			}
		}
	}
}

func (s *system) exits() (n int) {
	for _, u := range slices.Concat(s.ours(), s.guests) {
		n += int(u.exits.Load())
	}
	return n
}

func (s *system) atEnd(end func() error) { s.ends = append(s.ends, end) }

// close shuts everything down, in reverse order. Data and logs stay in the directory.
func (s *system) close() error {
	var errs []error
	for _, end := range slices.Backward(s.ends) {
		errs = append(errs, end())
	}
	return errors.Join(errs...)
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// pause pauses servers for a duration. If one cannot be paused, the others resume at once.
func pause(ctx context.Context, d time.Duration, servers ...*stack.Server) (err error) {
	for _, s := range servers {
		if err := s.Pause(); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.Resume()) }()
	}
	return wait(ctx, d)
}

func waitUntil(ctx context.Context, within time.Duration, what string, condition func() bool) error {
	for end := time.Now().Add(within); !condition(); {
		if time.Now().After(end) {
			return fmt.Errorf("waited %v for %s", within, what)
		}
		if err := wait(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}
