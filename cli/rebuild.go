package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"kudos/config"
	"kudos/ops/audit"
	"kudos/ops/rebuild"
)

func (a *app) rebuildCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rebuild",
		Short: "Make the counts in MySQL anew, or what they are made from",
		Long: `Make like_count, like_hourly and applied_offset anew from the state table, which says
who likes what. Processors keep running. The new tables are built beside the present
ones; the difference is shown, and after a yes all three are put in place at once, at
an earlier position, from which the processors catch up. The old ones are kept as
…_before_rebuild until the next rebuild.

  --updates      first make like-updates anew from the state table, for when that topic
                 was lost. Delete it if it is not empty, run "kudos topics apply".
  --from-events  before that make the state table anew from likes, for when it was lost.
                 Refused if likes has lost its start; like-updates must be empty.

  --accept-loss  makes nothing anew: where the next events are gone from likes (deleted
                 before they were folded, cut off by an unclean leader election, the topic
                 made anew), the processors are to go on with those that are left. What
                 was counted stays counted.

  --offsets      makes nothing anew, either: commits again the offset that the state table
                 stands at, where somebody reset the group latest-like-action, or Kafka
                 lost its offset. Works whatever likes still holds.

Those four write to Kafka: stop all processors before, start them after.

It can be stopped at any point and run again: a database in MySQL changes in one step,
and a partition of the topics in one transaction; what was done already is left as it is.
Of mysql.shards all databases are made anew, one after the other.
Its user in MySQL is that of mysql.migrate_dsn, if there is one.`,
		Example: `  kudos rebuild --dry-run --brokers kafka:9092 --mysql-dsn 'kudos:secret@tcp(db:3306)/kudos'
  kudos rebuild --yes --config kudos.yaml

  # like-updates was deleted
  kudos topics apply --config kudos.yaml && kudos rebuild --updates --config kudos.yaml`,
		Args: cobra.NoArgs,
	}
	settings := addSettings(cmd, brokersFlag(), mysqlFlag())
	opts := rebuild.DefaultOptions()
	f := cmd.Flags()
	updates := f.Bool("updates", false, "make like-updates anew from the state table, too")
	events := f.Bool("from-events", false, "make the state table anew from likes, and like-updates from that, too")
	loss := f.Bool("accept-loss", false, "go on without the events that are gone from likes; make nothing anew")
	offsets := f.Bool("offsets", false, "commit again the offset that the state table stands at; make nothing anew")
	yes := f.Bool("yes", false, "do not ask")
	f.BoolVar(&opts.DryRun, "dry-run", false, "only show what would be done")
	f.BoolVar(&opts.DropOld, "drop-old", false, "drop the old tables instead of keeping them as …_before_rebuild")
	f.DurationVar(&opts.TransactionTimeout, "transaction-timeout", opts.TransactionTimeout, "how long Kafka leaves the transaction of a partition open")
	cmd.MarkFlagsMutuallyExclusive("updates", "from-events", "accept-loss", "offsets")
	addAuditFlags(cmd, &opts.Audit)
	out := addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := settings.load()
		if err != nil {
			return err
		}
		cfg.MySQL = cfg.MySQL.OfMigrations() // it makes tables, and puts them in place
		opts.Depth = depthOf(*updates, *events, *loss, *offsets)
		asks := !*yes && !opts.DryRun
		if asks && !readsTerminal(a.stdin) {
			err = errors.New("nobody is here to say yes: give --yes, or --dry-run to see what would be done")
		}
		if err := errors.Join(err, cfg.RequireMySQL(), opts.Validate()); err != nil {
			return usageError{err}
		}
		return a.rebuild(cmd.Context(), cfg, opts, !asks, *out)
	}
	return cmd
}

// depthOf is what the flags, of which one at most is given, ask for.
func depthOf(updates, events, loss, offsets bool) rebuild.Depth {
	switch {
	case events:
		return rebuild.Events
	case loss:
		return rebuild.Loss
	case offsets:
		return rebuild.Offsets
	case updates:
		return rebuild.Updates
	}
	return rebuild.MySQL
}

// rebuild does it, and prints what was done. yes: nobody is asked.
func (a *app) rebuild(ctx context.Context, cfg *config.Loaded, opts rebuild.Options, yes bool, format output) error {
	opts.Audit.Progress.Out, opts.Audit.Progress.Terminal = a.stderr, isTerminal(a.stderr)
	opts.UserBuckets = cfg.Topics.Layout().UserBuckets()
	person := &person{in: a.stdin, out: a.stdout, yes: yes}
	if format == "json" {
		person.out = a.stderr
	}
	r, err := rebuild.New(opts, cfg.Kafka, cfg.MySQL, person, quietLogger(cfg, a.stderr))
	if err != nil {
		return err
	}
	result, err := r.Run(ctx)
	if result == nil {
		return err
	}
	return errors.Join(err, printRebuild(a.stdout, format, opts, result, err == nil))
}

// readsTerminal says whether a person can answer.
func readsTerminal(r io.Reader) bool {
	f, ok := r.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// person is whoever has typed the command.
type person struct {
	in  io.Reader
	out io.Writer
	yes bool // to everything
}

func (p *person) Say(line string) error {
	_, err := fmt.Fprintln(p.out, line)
	return err
}

func (p *person) Show(r *audit.Report) error {
	_, err := fmt.Fprintln(p.out, "MySQL as it is now, against the stream:")
	return errors.Join(err, r.WriteFindings(p.out))
}

// Agree takes yes for yes, and anything else for no.
func (p *person) Agree(question string) (bool, error) {
	if p.yes {
		return true, nil
	}
	if _, err := fmt.Fprintf(p.out, "%s [yes/no] ", question); err != nil {
		return false, err
	}
	answer, err := bufio.NewReader(p.in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return false, fmt.Errorf("read the answer: %w", err)
	}
	if answer = strings.TrimSpace(answer); answer == "yes" || answer == "y" {
		return true, nil
	}
	return false, p.Say("nothing was changed")
}

func printRebuild(w io.Writer, format output, opts rebuild.Options, r *rebuild.Result, done bool) error {
	if format == "json" {
		return json.NewEncoder(w).Encode(r)
	}
	if !done || !r.Swapped {
		if done && r.State > 0 {
			_, err := fmt.Fprintln(w, "next: start the processors")
			return err
		}
		return nil
	}
	_, err := fmt.Fprintf(w, "MySQL was made anew: %d posts and %d rows of like_hourly, in %s; running processors go on from there\n",
		r.Posts, r.Hours, time.Duration(r.Seconds*float64(time.Second)).Round(10*time.Millisecond))
	if opts.Depth != rebuild.MySQL && err == nil {
		_, err = fmt.Fprintln(w, "next: start the processors")
	}
	return err
}
