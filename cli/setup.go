package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"kudos/config"
	"kudos/ops/repartition"
	"kudos/ops/topics"
	"kudos/schema"
	"kudos/sql"
	"kudos/stream/kafka"
)

// topicsTimeout bounds creating or checking all topics.
const topicsTimeout = 2 * time.Minute

func (a *app) topicsCommand() *cobra.Command {
	apply := &cobra.Command{
		Use:   "apply",
		Short: "Create the topics and set them as they must be",
		Long: `Create the topics that are missing, correct settings that differ, and write the first
progress record of each partition. Doing it again changes nothing; a retention that was
made longer stays.

The partition count (topics.partitions) decides where a post lives, so this does not change
it: "kudos topics repartition" adds partitions.`,
		Example: `  kudos topics apply --brokers kafka:9092

  # One broker, to play with
  kudos topics apply --set topics.replication_factor=1 --set topics.partitions=4`,
	}
	check := &cobra.Command{
		Use:   "check",
		Short: "Compare the topics with how they must be",
		Long: `Compare the topics with how they must be, and print each difference with what mends it.
It changes nothing. Exit code 1 if there is a difference.`,
		Example: `  kudos topics check --brokers kafka:9092`,
	}
	return group("topics", "Set up the topics in Kafka, check them, or add partitions",
		a.topicsRun(apply, topics.Apply, "topics are as they must be already", false),
		a.topicsRun(check, topics.Check, "topics are as they must be", true),
		a.topicsRepartitionCommand())
}

type topicsFunc func(context.Context, kafka.Options, schema.Layout, int16, *slog.Logger) (*topics.Report, error)

// topicsRun completes a command that reports on topics. With failOnLines each line of the report is a difference,
// otherwise a change that was made.
func (a *app) topicsRun(cmd *cobra.Command, run topicsFunc, nothing string, failOnLines bool) *cobra.Command {
	out := addOutput(cmd)
	return addSettings(cmd, brokersFlag).run(func(ctx context.Context, cfg *config.Loaded, _ []string) error {
		ctx, cancel := context.WithTimeout(ctx, topicsTimeout)
		defer cancel()
		log := quietLogger(cfg, a.stderr)
		report, err := run(ctx, cfg.Kafka, cfg.Topics.Layout(), cfg.Topics.ReplicationFactor, log)
		if report == nil {
			return err
		}
		var text strings.Builder
		for _, line := range report.Lines {
			fmt.Fprintln(&text, line)
		}
		switch {
		case len(report.Lines) == 0 && err == nil:
			fmt.Fprintln(&text, nothing)
		case failOnLines && err == nil:
			err = fmt.Errorf("%d differences", len(report.Lines))
		}
		report.Lines = append([]string{}, report.Lines...) // encodes as [], not null
		return errors.Join(err, out.print(a.stdout, report, text.String()))
	})
}

func (a *app) migrateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Bring the tables in MySQL up to date",
		Long: `Bring the tables in MySQL (8.0 or later) or MariaDB (10.11 or later) up to date.

The database must exist, and the user may CREATE and ALTER in it: that of
mysql.migrate_dsn, if there is one, so that the roles' own need not. Doing it again
changes nothing; several at once take turns. Run it before a new version's processors.

Each database records which of mysql.shards it is, mysql.dsn that it is the only one. From
then on another list is refused, by all that use it.`,
		Example: `  kudos migrate --mysql-dsn 'kudos:secret@tcp(db:3306)/kudos'

  # The password not on the command line
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

const repartitionLong = `Add partitions to likes and to all that is made of it, and move each post, with who
likes it and its counts, to the partition where it lives then. topics.partitions is how
many there are to be; topics.user_buckets, which posts live in several.

Everything may keep running. Likes are accepted all the while, and none is lost or counted
twice. Counting pauses: the partitions park, say that a repartition has not ended, and go
on by themselves when it has. Nothing has to be written to other partitions at the same
moment: an event in the partition where its post lived before is forwarded.

In this order: each partition is locked, so that nothing is folded; the topics get their
partitions (the rankings' own topics keep theirs); MySQL is told of them; posts move, some
thousand reactions in a transaction; all partitions are unlocked at once.

It can be stopped or killed at any point and run again: it goes on where it was. Until it
has ended, nothing else can be done with the topics. There is no way back: Kafka takes no
partition away.

It needs room for a copy of the state table (--temp-dir). Afterwards set topics.partitions
to the new number wherever it is set. Its user in MySQL is that of mysql.migrate_dsn, if
there is one.`

func (a *app) topicsRepartitionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "repartition",
		Short: "Add partitions, and move posts to where they live then",
		Long:  repartitionLong,
		Example: `  # How much would move
  kudos topics repartition --set topics.partitions=16 --dry-run --config kudos.yaml

  kudos topics repartition --set topics.partitions=16 --config kudos.yaml`,
	}
	opts := repartition.DefaultOptions()
	f := cmd.Flags()
	f.BoolVar(&opts.DryRun, "dry-run", false, "only say how much would move; needs no MySQL")
	f.StringVar(&opts.TempDir, "temp-dir", opts.TempDir, "folder for a copy of the state table")
	f.IntVar(&opts.Parallel, "parallel", opts.Parallel, "partitions that are read at a time")
	f.IntVar(&opts.MovePairs, "move-pairs", opts.MovePairs, "reactions that one transaction moves at most")
	out := addOutput(cmd)
	settings := addSettings(cmd, brokersFlag, mysqlFlag)
	return settings.run(func(ctx context.Context, cfg *config.Loaded, _ []string) (err error) {
		opts.Layout = cfg.Topics.Layout()
		if err := opts.Validate(); err != nil {
			return usageError{err}
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
		opts.Progress, opts.Say = a.progress("repartition"), a.person(*out, true).Say
		result, err := repartition.Run(ctx, opts, cfg.Kafka, db, log)
		if err != nil {
			return err
		}
		return out.print(a.stdout, result, "") // Say has printed the text
	})
}
