package cli

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"kudos/config"
	"kudos/ops/repartition"
	"kudos/sql"
)

func (a *app) topicsRepartitionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "repartition",
		Short: "Add partitions, and move posts to where they live then",
		Long: `Add partitions to likes and to all that is made of it, and move each post, with who
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
there is one.`,
		Example: `  # How much would move
  kudos topics repartition --set topics.partitions=16 --dry-run --config kudos.yaml

  kudos topics repartition --set topics.partitions=16 --config kudos.yaml`,
		Args: cobra.NoArgs,
	}
	settings := addSettings(cmd, brokersFlag(), mysqlFlag())
	opts := repartition.DefaultOptions()
	f := cmd.Flags()
	f.BoolVar(&opts.DryRun, "dry-run", false, "only say how much would move; needs no MySQL")
	f.StringVar(&opts.TempDir, "temp-dir", opts.TempDir, "folder for a copy of the state table")
	f.IntVar(&opts.Parallel, "parallel", opts.Parallel, "partitions that are read at a time")
	f.IntVar(&opts.MovePairs, "move-pairs", opts.MovePairs, "reactions that one transaction moves at most")
	out := addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := settings.load()
		if err != nil {
			return err
		}
		opts.Layout = cfg.Topics.Layout()
		if err := opts.Validate(); err != nil {
			return usageError{err}
		}
		cfg.MySQL = cfg.MySQL.OfMigrations()
		if !opts.DryRun {
			if err := cfg.RequireMySQL(); err != nil {
				return usageError{err}
			}
		}
		return a.repartition(cmd.Context(), cfg, opts, *out)
	}
	return cmd
}

// repartition does it, and prints what was done.
func (a *app) repartition(ctx context.Context, cfg *config.Loaded, opts repartition.Options, format output) error {
	log := quietLogger(cfg, a.stderr)
	var db *sql.Shards
	if !opts.DryRun {
		var err error
		if db, err = sql.Open(cfg.MySQL, log); err != nil {
			return err
		}
		defer func() { _ = db.Close() }() // nothing is under way any more
	}
	opts.Progress.Out, opts.Progress.Terminal = a.stderr, isTerminal(a.stderr)
	says := a.stdout
	if format == "json" {
		says = a.stderr
	}
	opts.Say = func(line string) error {
		_, err := fmt.Fprintln(says, line)
		return err
	}
	r, err := repartition.New(opts, cfg.Kafka, db, log)
	if err != nil {
		return err
	}
	result, err := r.Run(ctx)
	if err != nil || format != "json" {
		return err
	}
	return json.NewEncoder(a.stdout).Encode(result)
}
