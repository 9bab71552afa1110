package cli

import (
	"bufio"
	"context"
	stdsql "database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"kudos/config"
	"kudos/ops/audit"
	"kudos/ops/rebuild"
	"kudos/schema"
	"kudos/sql"
)

const rebuildLong = `Rebuild like_count, like_hourly and applied_offset from the state table, which has all
reactions. Processors keep running. The new tables are built next to the current ones;
the difference is shown, and once you confirm, all three are swapped in at once, at an
earlier position, from which the processors catch up. The old ones are kept as
…_before_rebuild until the next rebuild.

  --updates      first rebuilds like-updates from the state table, if that topic was
                 lost. Delete it if it is not empty, and run "kudos topics apply".
  --from-events  before that, rebuilds the state table from likes, if it was lost.
                 Refused if likes has lost its start; like-updates must be empty or match it.

  --accept-loss  rebuilds nothing: if the next events are missing in likes (deleted
                 before they were folded, truncated by an unclean leader election, or the
                 topic was recreated), the processors continue with the events that are
                 left. What was counted stays counted.

  --offsets      rebuilds nothing: commits the offset that the state table is at again, if
                 somebody reset the group latest-like-action, or Kafka lost its offset.
                 Works regardless of what likes still holds.

These four write to Kafka: stop all processors before, and start them afterwards.

It can be stopped at any point and run again: each MySQL database changes in one step, and
each partition of the topics in one transaction; what is already done is left as it is.
With mysql.shards, all databases are rebuilt, one after the other.
It connects to MySQL as the user of mysql.migrate_dsn, if that is set.`

func (a *app) rebuildCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rebuild",
		Short: "Rebuild the counts in MySQL, or the topics they come from",
		Long:  rebuildLong,
		Example: `  kudos rebuild --dry-run --brokers kafka:9092 --mysql-dsn 'kudos:secret@tcp(db:3306)/kudos'
  kudos rebuild --yes --config kudos.yaml

  # like-updates was deleted
  kudos topics apply --config kudos.yaml && kudos rebuild --updates --config kudos.yaml`,
	}
	opts := rebuild.DefaultOptions()
	f := cmd.Flags()
	for _, d := range depths {
		f.Bool(d.flag, false, d.usage)
	}
	yes := addYes(cmd)
	f.BoolVar(&opts.DryRun, "dry-run", false, "only show what would be done")
	f.BoolVar(&opts.DropOld, "drop-old", false, "drop the old tables instead of keeping them as …_before_rebuild")
	f.DurationVar(&opts.TransactionTimeout, "transaction-timeout", opts.TransactionTimeout,
		"how long Kafka keeps the transaction of a partition open")
	cmd.MarkFlagsMutuallyExclusive("updates", "from-events", "accept-loss", "offsets")
	addAuditFlags(cmd, &opts.Audit)
	out := addOutput(cmd)
	settings := addSettings(cmd, brokersFlag, mysqlFlag)
	return settings.run(func(ctx context.Context, cfg *config.Loaded, _ []string) (err error) {
		cfg.MySQL = cfg.MySQL.OfMigrations() // it creates and renames tables
		for _, d := range depths {
			if given, _ := f.GetBool(d.flag); given { // the flags are mutually exclusive
				opts.Depth = d.depth
			}
		}
		agreed := *yes || opts.DryRun
		if err := errors.Join(a.canAsk(cmd, agreed), cfg.RequireMySQL(), opts.Validate()); err != nil {
			return usageError{err}
		}
		opts.Audit.Progress = a.progress("rebuild")
		opts.UserBuckets, opts.Regions = cfg.Topics.Layout().UserBuckets(), cfg.Topics.RegionRules()
		result, err := rebuild.Run(ctx, opts, cfg.Kafka, cfg.MySQL, a.person(*out, agreed), quietLogger(cfg, a.stderr))
		if result == nil {
			return err
		}
		text := ""
		if err == nil {
			text = rebuiltText(opts.Depth, result)
		}
		return errors.Join(err, out.print(a.stdout, result, text))
	})
}

var depths = []struct {
	flag  string
	depth rebuild.Depth
	usage string
}{
	{"updates", rebuild.Updates, "also rebuild like-updates from the state table"},
	{"from-events", rebuild.Events, "also rebuild the state table from likes, and like-updates from that"},
	{"accept-loss", rebuild.Loss, "continue without the events that are missing in likes; rebuild nothing"},
	{"offsets", rebuild.Offsets, "commit the offset that the state table is at again; rebuild nothing"},
}

// addYes adds a flag to a command that cannot be taken back.
func addYes(cmd *cobra.Command) *bool {
	return cmd.Flags().Bool("yes", false, "do not ask for confirmation")
}

// canAsk is the error of a command that must ask, but whose input may not be a person.
func (a *app) canAsk(cmd *cobra.Command, agreed bool) error {
	switch {
	case agreed, isTerminal(a.stdin):
		return nil
	case cmd.Flags().Lookup("dry-run") == nil:
		return usageError{errors.New("standard input is not a terminal: use --yes")}
	}
	return usageError{errors.New("standard input is not a terminal: use --yes, or --dry-run to see what would be done")}
}

type person struct {
	in  io.Reader
	out io.Writer
	yes bool // yes to every question
}

// person talks to the user on standard error if standard output is JSON for a script.
func (a *app) person(format output, yes bool) *person {
	if format == "json" {
		return &person{in: a.stdin, out: a.stderr, yes: yes}
	}
	return &person{in: a.stdin, out: a.stdout, yes: yes}
}

func (p *person) Say(line string) error {
	_, err := fmt.Fprintln(p.out, line)
	return err
}

func (p *person) Show(r *audit.Report) error {
	_, err := fmt.Fprintln(p.out, "MySQL as it is now, against the stream:")
	return errors.Join(err, r.WriteFindings(p.out))
}

// Agree reports whether the answer is yes; everything else means no.
func (p *person) Agree(question string) (bool, error) {
	if p.yes {
		return true, nil
	}
	if _, err := fmt.Fprintf(p.out, "%s [yes/no] ", question); err != nil {
		return false, err
	}
	answer, err := bufio.NewReader(p.in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return false, fmt.Errorf("reading the answer: %w", err)
	}
	if answer = strings.TrimSpace(answer); answer == "yes" || answer == "y" {
		return true, nil
	}
	return false, p.Say("nothing was changed")
}

func rebuiltText(depth rebuild.Depth, r *rebuild.Result) (text string) {
	stopped := r.State > 0 // processors were stopped before Kafka was written to
	if r.Swapped {
		stopped = depth != rebuild.MySQL
		text = fmt.Sprintf("MySQL was rebuilt: %d posts and %d rows of like_hourly, in %s; "+
			"running processors continue from there\n", r.Posts, r.Hours, took(r.Seconds))
	}
	if stopped {
		text += "next: start the processors\n"
	}
	return text
}

const auditLong = `Compare MySQL with the stream while everything runs. It stops nothing, and writes only its
result: as metadata of an offset of the consumer group audit, for the reader's health page.

MySQL is read from one snapshot, with the position of the last update that it has counted.
The expected counts are computed from the stream up to that same update, so likes that
arrive in the meantime make no difference:

  plain    a post's expected count is that of its last update in like-updates
  --deep   it is recounted from the reactions in the state table, and like_hourly is
           compared, too, row by row. Reads the whole state table.

It needs disk space for temporary files (--temp-dir): about 40 bytes per post; with --deep
also the state of the partitions that are read in parallel (--parallel).

With --against it compares like_count with a query instead, such as one of the table that
likes came from: post id, likes and, optionally, dislikes. Likes must have stopped, or differ.

Exit codes: 0 no difference, 3 a difference, 1 something could not be compared.
"kudos rebuild" repairs MySQL.`

func (a *app) auditCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Compare MySQL with the stream while everything runs",
		Long:  auditLong,
		Example: `  kudos audit --brokers kafka:9092 --mysql-dsn 'kudos:secret@tcp(db:3306)/kudos'

  # The full report, for a script
  kudos audit --deep --limit 1000000 --output json --config kudos.yaml | jq '.posts.rows[].post_id'

  # After a migration
  kudos audit --against 'SELECT post_id, COUNT(*) FROM post_likes GROUP BY post_id' \
              --against-dsn-file /run/secrets/shop-dsn --config kudos.yaml`,
	}
	opts := audit.DefaultOptions()
	cmd.Flags().BoolVar(&opts.Deep, "deep", false, "recount from the state table, and compare like_hourly row by row")
	var against against
	cmd.Flags().StringVar(&against.query, "against", "", "a query to compare like_count with, instead of the stream")
	cmd.Flags().StringVar(&against.dsnFile, "against-dsn-file", "",
		"file with the DSN of the query's database (default: mysql.dsn)")
	cmd.MarkFlagsMutuallyExclusive("deep", "against")
	addAuditFlags(cmd, &opts)
	out := addOutput(cmd)
	settings := addSettings(cmd, brokersFlag, mysqlFlag)
	return settings.run(func(ctx context.Context, cfg *config.Loaded, _ []string) (err error) {
		if err := errors.Join(cfg.RequireMySQL(), opts.Validate(), against.validate()); err != nil {
			return usageError{err}
		}
		opts.Progress = a.progress("audit")
		log := quietLogger(cfg, a.stderr)
		db, err := sql.Open(cfg.MySQL, log)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, db.Close()) }()
		if against.query != "" {
			return against.compare(ctx, a, cfg, opts, db, out)
		}
		report, err := audit.Run(ctx, opts, cfg.Kafka, db, log)
		if err != nil {
			return err
		}
		exit, result := exitDone, error(nil)
		switch {
		case !report.Equal:
			exit, result = exitDifferent,
				differentError{fmt.Errorf("MySQL and the stream differ: %d differences", report.Differences())}
		case len(report.Unknown) > 0:
			exit, result = exitFailed, fmt.Errorf("%d partitions could not be compared", len(report.Unknown))
		}
		if err := report.Store(ctx, cfg.Kafka, exit, log); err != nil {
			log.Warn("the result is not stored for the reader's health page; see docs/security.md for the ACLs",
				"group", schema.GroupAudit, "error", err)
		}
		var text strings.Builder
		_ = report.WriteText(&text) // to memory: cannot fail
		return errors.Join(result, out.print(a.stdout, report, text.String()))
	})
}

// against is what --against compares with.
type against struct{ query, dsnFile string }

func (g against) validate() error {
	if g.dsnFile != "" && g.query == "" {
		return errors.New("--against-dsn-file is only for --against")
	}
	return nil
}

func (g against) compare(ctx context.Context, a *app, cfg *config.Loaded, opts audit.Options, db *sql.Shards,
	out *output,
) (err error) {
	dsn := cfg.MySQL.DSN
	if g.dsnFile != "" {
		text, err := os.ReadFile(g.dsnFile)
		if err != nil {
			return usageError{err}
		}
		dsn = strings.TrimSpace(string(text))
	}
	if dsn == "" {
		return usageError{errors.New("--against needs --against-dsn-file, as mysql.dsn is not set")}
	}
	other, err := stdsql.Open("mysql", dsn)
	if err != nil {
		return usageError{fmt.Errorf("--against-dsn-file: %w", err)}
	}
	defer func() { err = errors.Join(err, other.Close()) }()
	report, err := audit.Against(ctx, opts, db, other, g.query, quietLogger(cfg, a.stderr))
	if err != nil {
		return err
	}
	if !report.Equal {
		err = differentError{fmt.Errorf("kudos and the query differ: %d differences", report.Posts.Different)}
	}
	var text strings.Builder
	_ = report.WriteText(&text) // to memory: cannot fail
	return errors.Join(err, out.print(a.stdout, report, text.String()))
}

func addAuditFlags(cmd *cobra.Command, opts *audit.Options) {
	f := cmd.Flags()
	f.IntVar(&opts.Limit, "limit", opts.Limit, "maximum rows of each kind in the report")
	f.StringVar(&opts.TempDir, "temp-dir", opts.TempDir, "directory for temporary files")
	f.IntVar(&opts.Parallel, "parallel", opts.Parallel, "partitions to read in parallel")
}
