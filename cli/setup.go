package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"

	"kudos/config"
	"kudos/ops/repartition"
	"kudos/ops/topics"
	"kudos/sql"
	"kudos/stream/kafka"
)

// topicsTimeout bounds creating or checking all topics.
const topicsTimeout = 2 * time.Minute

func (a *app) topicsCommand() *cobra.Command {
	apply := &cobra.Command{
		Use:   "apply",
		Short: "Create the topics and correct their settings",
		Long: `Create missing topics, correct settings that differ, and write the first progress record
of each partition. Running it again changes nothing. It does not reduce a retention that
somebody increased.

The partition count (topics.partitions) decides which partition owns a post, so this command
does not change it: "kudos topics repartition" adds partitions.`,
		Example: `  kudos topics apply --brokers kafka:9092

  # One broker, for development
  kudos topics apply --set topics.replication_factor=1 --set topics.partitions=4`,
	}
	check := &cobra.Command{
		Use:   "check",
		Short: "Check the topics and their settings",
		Long: `Check the topics and their settings, and print each difference and how to fix it.
It changes nothing. Exit code 1 if there is a difference; not for warnings, which are of
settings of the brokers that cost latency or safety.`,
		Example: `  kudos topics check --brokers kafka:9092`,
	}
	fix := apply.Flags().Bool("fix-regions", false, "bound the regions of an earlier version's state table from now on")
	return group("topics", "Set up the topics in Kafka, check them, or add partitions",
		a.topicsRun(apply, func(ctx context.Context, cluster kafka.Options, o topics.Options, log *slog.Logger,
		) (*topics.Report, error) {
			o.FixRegions = *fix
			return topics.Apply(ctx, cluster, o, log)
		}, "topics are already up to date", false),
		a.topicsRun(check, topics.Check, "topics are up to date", true), a.topicsRepartitionCommand())
}

type topicsFunc func(context.Context, kafka.Options, topics.Options, *slog.Logger) (*topics.Report, error)

// topicsRun completes a command that reports on topics: changes made or, with failOnLines, differences.
func (a *app) topicsRun(cmd *cobra.Command, run topicsFunc, nothing string, failOnLines bool) *cobra.Command {
	out := addOutput(cmd)
	return addSettings(cmd, brokersFlag).run(func(ctx context.Context, cfg *config.Loaded, _ []string) error {
		ctx, cancel := context.WithTimeout(ctx, topicsTimeout)
		defer cancel()
		log := quietLogger(cfg, a.stderr)
		cl, err := cfg.Kafka.NewClient(log)
		if err != nil {
			return err
		}
		defer cl.Close()
		report, err := run(ctx, cfg.Kafka, cfg.Topics, log)
		if report == nil {
			return err
		}
		text, p, r := slices.Clone(report.Lines), cfg.Processor, cfg.Ranker
		switch {
		case len(text) == 0 && err == nil:
			text = []string{nothing}
		case failOnLines && err == nil:
			err = fmt.Errorf("%d differences", len(text))
		}
		report.Warnings = append(report.Warnings, topics.CheckBrokers(ctx, kadm.NewClient(cl),
			[]time.Duration{p.SessionTimeout, r.SessionTimeout},
			[]time.Duration{p.TransactionTimeout, r.TransactionTimeout}, cfg.Topics.ReplicationFactor)...)
		for _, warning := range report.Warnings {
			text = append(text, "warning: "+warning)
		}
		return errors.Join(err, out.print(a.stdout, report, strings.Join(append(text, ""), "\n")))
	})
}

func (a *app) migrateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Create or update the tables in MySQL",
		Long: `Create or update the tables in MySQL (8.0 or later) or MariaDB (10.11 or later).

The database must exist. The user needs CREATE and ALTER: that of mysql.migrate_dsn, if it
is set, so that the user of the roles does not need them. Running it again changes nothing;
concurrent runs wait for each other. Run it before the processors of a new version.

Each database records which of mysql.shards it is; with mysql.dsn, that it is the only one.
From then on, all commands and roles reject a different list.`,
		Example: `  kudos migrate --mysql-dsn 'kudos:secret@tcp(db:3306)/kudos'

  # Keep the password off the command line
  KUDOS_MYSQL_DSN='kudos:secret@tcp(db:3306)/kudos' kudos migrate
  KUDOS_MYSQL_MIGRATE_DSN_FILE=/run/secrets/migrate-dsn kudos migrate`,
	}
	return addSettings(cmd, mysqlFlag).run(func(ctx context.Context, cfg *config.Loaded, _ []string) error {
		cfg.MySQL = cfg.MySQL.OfMigrations()
		if err := errors.Join(cfg.RequireMySQL(), cfg.MySQL.CheckFiles()); err != nil {
			return usageError{err}
		}
		return sql.Migrate(ctx, cfg.MySQL, a.logger(cfg))
	})
}

const repartitionLong = `Add partitions to likes and to the topics derived from it, and move each post, with its
reactions and counts, to the partition that owns it then. topics.partitions is the new
number of partitions; topics.user_buckets, which posts are sharded across several.

Everything may keep running. Likes are accepted all the time, and none is lost or counted
twice. Counting pauses: the partitions park, report that a repartition is in progress, and
resume once it has ended. Writers need not switch to the new partitions at the same
moment: an event in the partition that owned its post before is forwarded.

In this order: each partition is locked, so that nothing is folded; partitions are added
to the topics (except to the rankings' own topics); MySQL is notified; posts are moved, a
few thousand reactions per transaction; all partitions are unlocked at once.

It can be stopped or killed at any point and run again: it resumes where it stopped. Until
it has ended, nothing else can be done with the topics. It cannot be undone: Kafka cannot
remove partitions.

It needs disk space for a copy of the state table (--temp-dir). Afterwards set
topics.partitions to the new number wherever it is set. It connects to MySQL as the user
of mysql.migrate_dsn, if that is set.`

func (a *app) topicsRepartitionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "repartition",
		Short: "Add partitions, and move posts to their new partitions",
		Long:  repartitionLong,
		Example: `  # How much would move
  kudos topics repartition --set topics.partitions=16 --dry-run --config kudos.yaml

  kudos topics repartition --set topics.partitions=16 --yes --config kudos.yaml`,
	}
	opts := repartition.DefaultOptions()
	f := cmd.Flags()
	f.BoolVar(&opts.DryRun, "dry-run", false, "only report how much would move; needs no MySQL")
	f.StringVar(&opts.TempDir, "temp-dir", opts.TempDir, "directory for a copy of the state table")
	f.IntVar(&opts.Parallel, "parallel", opts.Parallel, "partitions to read in parallel")
	f.IntVar(&opts.MovePairs, "move-pairs", opts.MovePairs, "maximum reactions that one transaction moves")
	out, yes := addOutput(cmd), addYes(cmd)
	settings := addSettings(cmd, brokersFlag, mysqlFlag)
	return settings.run(func(ctx context.Context, cfg *config.Loaded, _ []string) (err error) {
		opts.Layout = cfg.Topics.Layout()
		agreed := *yes || opts.DryRun
		if err := errors.Join(a.canAsk(cmd, agreed), opts.Validate()); err != nil {
			return usageError{err}
		}
		person := a.person(*out, agreed)
		agreed, err = person.Agree(fmt.Sprintf(
			"This makes %d partitions of the topics; Kafka cannot remove any. Continue?", opts.Layout.Partitions))
		if err != nil || !agreed {
			return err
		}
		cfg.MySQL = cfg.MySQL.OfMigrations()
		log := quietLogger(cfg, a.stderr)
		var db *sql.Shards
		if !opts.DryRun {
			if err := cfg.RequireMySQL(); err != nil {
				return usageError{err}
			}
			if db, err = sql.Open(cfg.MySQL, log); err != nil {
				return err
			}
			defer func() { _ = db.Close() }() // nothing is in flight
		}
		opts.Progress, opts.Say = a.progress("repartition"), person.Say
		result, err := repartition.Run(ctx, opts, cfg.Kafka, db, log)
		if err != nil {
			return err
		}
		return out.print(a.stdout, result, "") // Say has printed the text
	})
}
