package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"kudos/bench"
	"kudos/bench/child"
	"kudos/config"
)

var benchParts = []string{"drain", "latency", "recovery", "producer"}

type benchFlags struct {
	parts                          []string
	shapes                         []string
	events, recoveryEvents, rounds int
	seconds, producerTime          time.Duration
	seed                           uint64
	dir                            string
	keep                           bool
	out                            *output
}

func (a *app) benchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench [drain] [latency] [recovery] [producer]",
		Short: "Benchmark kudos on your own servers",
		Long: `Benchmark kudos on your own servers. Without arguments it runs all parts:

  drain     fills a topic and starts a processor on it: events per second from the first
            poll until the last count is committed in MySQL, and the resources used
  latency   searches the highest rate that is sustainable, and sends events at 10, 50 and
            80 % of it, and 1,000, 20,000 and 100,000 a second to one post: the time until
            an event's count is visible in MySQL, in a reader and in its live stream
  recovery  starts a processor without its local state: reactions per second until every
            partition is running
  producer  sends likes over HTTP, one by one and in batches of 1,000: the highest rate
            that a producer accepts, and the response time of a like at half of that rate

All counts are compared with the expected ones; a wrong count is a failure. The processor,
the reader and the producer are this program, on this machine, with your settings.

It needs a Kafka cluster without kudos topics and one database (not mysql.shards) without
kudos tables; otherwise it refuses to run. It creates both, with topics.partitions and
topics.replication_factor as configured, and removes them at the end (--keep leaves those
of the last run). What an interrupted run has left behind, the next run removes. The hot
post's topics have one partition, because a post is in one partition.

Rows written are counted if the server reports them: MySQL does, MariaDB after
SET GLOBAL userstat = 1.`,
		Example: `  kudos bench --brokers kafka:9092 --mysql-dsn 'kudos:secret@tcp(db:3306)/kudos_bench'

  # One broker, a minute
  kudos bench drain --events 500000 --set topics.replication_factor=1 --set topics.partitions=4 \
    --brokers 127.0.0.1:9092 --mysql-dsn 'root@tcp(127.0.0.1:3306)/kudos_bench'

  # All shapes, medians of five rounds, every run in a file
  kudos bench --config kudos.yaml --shapes hot,skewed-1000,skewed-1000000,uniform --rounds 5 --output json > bench.json`,
		Args: cobra.OnlyValidArgs, ValidArgs: benchParts,
	}
	b := addBenchFlags(cmd)
	settings := addSettings(cmd, brokersFlag, mysqlFlag)
	return settings.run(func(ctx context.Context, cfg *config.Loaded, args []string) error {
		b.parts = args
		if len(args) == 0 {
			b.parts = benchParts
		}
		plan, err := b.plan(cfg)
		if err := errors.Join(err, cfg.RequireMySQL(), oneDatabase(cfg)); err != nil {
			return usageError{err}
		}
		kudos, err := settings.asContender()
		if err != nil {
			return err
		}
		plan.Contenders = []bench.Contender{kudos}
		site := &bench.NamedSite{Keep: b.keep, Servers: bench.Servers{Kafka: cfg.Kafka, DSN: cfg.MySQL.DSN,
			Replication: cfg.Topics.ReplicationFactor, Log: quietLogger(cfg, a.stderr)}}
		if cfg.MySQL.TLS {
			if site.MySQL, err = cfg.MySQL.Connector(site.Log); err != nil {
				return usageError{err}
			}
		}
		plan.Site = site
		return a.bench(ctx, cfg, plan, b)
	})
}

// oneDatabase rejects mysql.shards: a benchmark measures and checks a single database.
func oneDatabase(cfg *config.Loaded) error {
	if len(cfg.MySQL.Shards) > 0 {
		return fmt.Errorf("kudos bench needs a single database, but mysql.shards is set (%s): set mysql.dsn instead",
			cfg.Origin("mysql.shards"))
	}
	return nil
}

func addBenchFlags(cmd *cobra.Command) *benchFlags {
	b := &benchFlags{out: addOutput(cmd)}
	f := cmd.Flags()
	f.StringSliceVar(&b.shapes, "shapes", []string{"hot", "skewed-1000"},
		"workloads to drain, comma-separated: "+strings.Join(bench.ShapeNames(), ", "))
	f.IntVar(&b.events, "events", 2_000_000, "events to drain, also to find the rate for latency")
	f.IntVar(&b.recoveryEvents, "recovery-events", 11_120_000,
		"events whose state is recovered; ten events make nine reactions")
	f.DurationVar(&b.seconds, "latency-time", 20*time.Second, "how long latency is measured at each rate; the "+
		"sustainable one is held three times as long, others in the search for 5 s at most")
	f.DurationVar(&b.producerTime, "producer-time", 5*time.Second,
		"how long the producer runs at each rate that is tried; at half of the highest, three times as long")
	f.IntVar(&b.rounds, "rounds", 1, "how many times everything is measured; figures are medians")
	f.Uint64Var(&b.seed, "seed", 1, "random seed of the events")
	f.StringVar(&b.dir, "dir", "",
		"existing directory for local state and logs (default: a new one next to processor.state_dir, then removed)")
	f.BoolVar(&b.keep, "keep", false, "keep the topics and tables of the last run")
	return b
}

func atLeast[T int | time.Duration](flag string, value, least T) error {
	if value < least {
		return fmt.Errorf("--%s is %v; it must be at least %v", flag, value, least)
	}
	return nil
}

func (b *benchFlags) plan(cfg *config.Loaded) (*bench.Plan, error) {
	p := &bench.Plan{Rounds: b.rounds}
	partitions := func(s *bench.Shape) {
		if s.Posts > 1 {
			s.Partitions = cfg.Topics.Partitions
		}
	}
	errs := []error{
		atLeast("events", b.events, 1), atLeast("recovery-events", b.recoveryEvents, 1), atLeast("rounds", b.rounds, 1),
		atLeast("latency-time", b.seconds, time.Second),
		atLeast("producer-time", b.producerTime, 100*time.Millisecond), // a few requests at any rate
	}
	if slices.Contains(b.parts, "drain") {
		for _, name := range b.shapes {
			shape, err := bench.ShapeNamed(name)
			errs = append(errs, err)
			partitions(&shape)
			p.Drains = append(p.Drains, bench.Workload{Seed: b.seed, Shape: shape, Events: b.events})
		}
	}
	if slices.Contains(b.parts, "latency") {
		shares, fixed := bench.DefaultLatencyPlans(b.seed)
		p.Latency = []*bench.LatencyPlan{shares, fixed}
		for _, plan := range p.Latency {
			plan.Load.Events = b.events
			plan.HoldEach(b.seconds)
			partitions(&plan.Load.Shape)
		}
	}
	if slices.Contains(b.parts, "recovery") {
		p.Recovery = bench.DefaultRecovery(b.seed)
		p.Recovery.Events = b.recoveryEvents
		partitions(&p.Recovery.Shape)
	}
	if slices.Contains(b.parts, "producer") {
		p.Producer = bench.DefaultProducerPlan()
		p.Producer.Partitions = cfg.Topics.Partitions
		p.Producer.HoldEach(b.producerTime)
	}
	return p, errors.Join(errs...)
}

// asContender returns this program as a contender with the settings of this command. They are passed in the
// environment, because a DSN holds a password and every local user can see a command line.
func (s *settings) asContender() (*bench.Kudos, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding the path of this program: %w", err)
	}
	c := child.Command{Path: path}
	if s.file != "" {
		file, err := filepath.Abs(s.file)
		if err != nil {
			return nil, fmt.Errorf("finding the path of %s: %w", s.file, err)
		}
		c.Args = []string{"--config", file}
	}
	for key, flag := range s.flags {
		c.Env = append(c.Env, config.EnvName(key)+"="+flag.Value)
	}
	return &bench.Kudos{Program: c}, nil
}

func (a *app) bench(ctx context.Context, cfg *config.Loaded, plan *bench.Plan, b *benchFlags) (err error) {
	if plan.Dir = b.dir; plan.Dir == "" {
		if plan.Dir, err = os.MkdirTemp(filepath.Dir(cfg.Processor.StateDir), "kudos-bench-"); err != nil {
			return fmt.Errorf("creating a directory for local state (to use another, set --dir): %w", err)
		}
		defer func() { err = errors.Join(err, os.RemoveAll(plan.Dir)) }()
	}
	plan.Progress = bench.NewProgress(a.stderr, isTerminal(a.stderr))
	version := buildVersion()
	report := bench.NewReport(version.Version+" "+version.Revision, plan.Contenders...)
	report.Versions["Go"] = version.Go
	if err := plan.Run(ctx, report); err != nil {
		return err
	}
	if *b.out == "json" {
		encoder := json.NewEncoder(a.stdout)
		encoder.SetIndent("", "  ")
		err = encoder.Encode(report)
	} else {
		err = report.WriteText(a.stdout, plan.Contenders[0].Name())
	}
	return errors.Join(err, report.Failed())
}
