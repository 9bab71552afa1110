package chaos

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/integration/stack"
	"kudos/schema"
)

const (
	// sessionTimeout is how soon the group misses a processor, transactionTimeout how long Kafka keeps a transaction
	// whose owner is gone without a successor.
	sessionTimeout     = 3 * time.Second
	transactionTimeout = 10 * time.Second
	// diskBytes is more than the state ever takes, and little enough to be filled at once.
	diskBytes = 512 << 20
	// startTimeout bounds the first start of the processors.
	startTimeout = time.Minute
	// guests are the processors that come and go in a rebalance storm.
	guests = 2
)

// system is everything that runs.
type system struct {
	opts       Options
	log        *slog.Logger
	kafka      *stack.Kafka
	brokers    []*unit
	database   *database
	network    *network
	processors []*unit
	guests     []*unit
	producer   *unit
	http       string
	state      []string // folders, by processor
	disks      []*disk  // by processor; none where this machine cannot
	reserved   []*stack.Reservation

	client *kgo.Client // past all proxies
	admin  *kadm.Client
}

// startSystem starts all but the load.
func startSystem(ctx context.Context, o Options) (_ *system, err error) {
	s := &system{opts: o, log: o.Log}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	s.kafka, err = stack.StartKafka(ctx, stack.KafkaOptions{Dir: o.Dir, Nodes: 3, Fronted: true, Keep: true, Log: o.Log, ExtraProperties: map[string]string{
		"group.min.session.timeout.ms":    "1000",
		"log.segment.bytes":               "67108864",
		"log.retention.check.interval.ms": "60000",
	}})
	if err != nil {
		return nil, err
	}
	for _, n := range s.kafka.Nodes() {
		s.brokers = append(s.brokers, &unit{Server: n})
	}
	if s.database, err = startDatabase(ctx, stack.DatabaseOptions{Dir: o.Dir, Keep: true, Log: o.Log}); err != nil {
		return nil, err
	}
	primary, _, _ := s.database.primary()
	if s.network, err = newNetwork(s.kafka.Fronts(), primary.Address()); err != nil {
		return nil, err
	}
	if s.client, err = kgo.NewClient(kgo.SeedBrokers(s.kafka.Brokers()...), kgo.DisableClientMetrics(), kgo.MetadataMinAge(250*time.Millisecond)); err != nil {
		return nil, err
	}
	s.admin = kadm.NewClient(s.client)
	if err := s.prepare(ctx, primary); err != nil {
		return nil, err
	}
	if err := s.startPrograms(ctx); err != nil {
		return nil, err
	}
	for _, u := range s.processors { // or the first faults would strike nothing
		if err := u.tells(ctx, 0, startTimeout, assigned); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// prepare makes topics and tables.
func (s *system) prepare(ctx context.Context, primary *stack.Database) error {
	err := s.kudos(ctx, "topics", "apply", "--brokers", strings.Join(s.kafka.Brokers(), ","),
		"--set", fmt.Sprintf("topics.partitions=%d", s.opts.Partitions), "--set", "topics.replication_factor=3")
	if err != nil {
		return err
	}
	// So that the state table is compacted while all this goes on, and reading it again stays quick.
	set := func(name, value string) kadm.AlterConfig {
		return kadm.AlterConfig{Op: kadm.SetConfig, Name: name, Value: kadm.StringPtr(value)}
	}
	_, err = s.admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{set("segment.bytes", "16777216"), set("min.cleanable.dirty.ratio", "0.3")}, schema.TopicState)
	if err != nil {
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
	at, err := s.reserve()
	if err != nil {
		return err
	}
	s.http = at
	s.producer, err = s.program("producer", "producer", "--set", "producer.http_addr="+at, "--set", "producer.ack_timeout=8s")
	if err != nil {
		return err
	}
	return s.producer.Start(ctx)
}

// newProcessor makes a processor process; those beyond the first are guests, which have no disk of their own.
func (s *system) newProcessor(i int) (*unit, error) {
	name := fmt.Sprintf("processor-%d", i)
	state := filepath.Join(s.opts.Dir, name, "state")
	if i < s.opts.Processors {
		if d, err := newDisk(diskBytes); err == nil {
			s.disks = append(s.disks, d)
			state = filepath.Join(d.path(), "state")
		} else {
			s.log.Warn("no disk that could be full", "error", err)
		}
	}
	s.state = append(s.state, state)
	return s.program(name, "processor", "--mysql-dsn", "root@tcp("+s.network.mysqlAddress()+")/"+databaseName,
		"--set", "processor.state_dir="+state,
		"--set", "processor.session_timeout="+sessionTimeout.String(),
		"--set", "processor.transaction_timeout="+transactionTimeout.String(),
		"--set", "processor.max_batch=2000",
		"--set", "processor.cache_bytes=33554432",
		"--set", "processor.park_interval=1s",
		"--set", "processor.position_check_interval=1s",
		"--set", "processor.shutdown_timeout=5s",
		"--set", "mysql.connect_timeout=2s", "--set", "mysql.read_timeout=4s", "--set", "mysql.write_timeout=4s",
		"--set", "mysql.lock_wait_timeout=1s", "--set", "mysql.idle_timeout=5s")
}

// program makes a process of ours that reaches Kafka through the proxies.
func (s *system) program(name string, args ...string) (*unit, error) {
	admin, err := s.reserve()
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(s.opts.Dir, name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	args = append(args, "--brokers", strings.Join(s.network.brokerList(), ","), "--set", "admin.addr="+admin,
		"--set", "kafka.dial_timeout=2s", "--set", "kafka.request_timeout=15s")
	return &unit{Server: stack.NewProgram(stack.ProgramOptions{Name: name, Path: s.opts.Program, Args: args, Dir: dir, Log: s.log})}, nil
}

func (s *system) reserve() (string, error) {
	r, err := stack.Reserve()
	if err != nil {
		return "", err
	}
	s.reserved = append(s.reserved, r)
	return r.Address(), nil
}

// ours are the processes that nobody but a fault ends.
func (s *system) ours() []*unit {
	return append(s.processors[:len(s.processors):len(s.processors)], s.producer)
}

// lookAfter starts our processes again when they end by themselves, until ctx ends.
func (s *system) lookAfter(ctx context.Context) {
	for wait(ctx, 250*time.Millisecond) == nil {
		for _, u := range s.ours() {
			exited, err := u.lookAfter(ctx)
			if exited {
				s.log.Error("ended by itself, and was started again", "server", u.String(), "error", err, "log", u.LogTail())
			}
		}
	}
}

// exits is how often processes of ours ended by themselves.
func (s *system) exits() (n int) {
	for _, u := range append(s.ours(), s.guests...) {
		u.held.Lock()
		n += u.exits
		u.held.Unlock()
	}
	return n
}

// close ends everything. Data and logs stay in the directory.
func (s *system) close() error {
	var errs []error
	for _, u := range append(append(append([]*unit{}, s.processors...), s.guests...), s.producer) {
		if u != nil && u.Running() {
			errs = append(errs, u.Kill())
		}
	}
	if s.client != nil {
		s.client.Close()
	}
	if s.network != nil {
		errs = append(errs, s.network.close())
	}
	if s.database != nil {
		errs = append(errs, s.database.close())
	}
	if s.kafka != nil {
		errs = append(errs, s.kafka.Close())
	}
	for _, d := range s.disks {
		errs = append(errs, d.close())
	}
	for _, r := range s.reserved {
		errs = append(errs, r.Release())
	}
	return errors.Join(errs...)
}

// wait waits for a while, or for ctx to end.
func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// waitUntil waits, for at most the given while, until condition holds.
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
