package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"kudos/ops/audit"
	"kudos/sql"
)

func (a *app) auditCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Compare MySQL with the stream, while everything runs",
		Long: `Compare MySQL with the stream, while everything runs. It stops and changes nothing.

MySQL is read as of one moment, and says up to which update it has counted. What the
stream says is worked out as of that same update, so likes that pour in meanwhile make
no difference:

  plain    each post's count is that of its last update in like-updates
  --deep   it is counted anew from the state table, which says who likes what; and
           like_hourly with it, row by row. Reads all of the state table.

It needs room for temporary files (--temp-dir): some 40 bytes a post, with --deep also
the state of as many partitions as are read at a time (--parallel).

Exit codes: 0 no difference, 3 a difference, 1 something could not be compared.
"kudos rebuild" makes MySQL right again.`,
		Example: `  kudos audit --brokers kafka:9092 --mysql-dsn 'kudos:secret@tcp(db:3306)/kudos'

  # All there is to say, for a script
  kudos audit --deep --limit 1000000 --output json --config kudos.yaml | jq '.posts.rows[].post_id'`,
		Args: cobra.NoArgs,
	}
	settings := addSettings(cmd, brokersFlag(), mysqlFlag())
	opts := audit.DefaultOptions()
	cmd.Flags().BoolVar(&opts.Deep, "deep", false, "count anew from the state table, and compare like_hourly by its rows")
	addAuditFlags(cmd, &opts)
	out := addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		cfg, err := settings.load()
		if err != nil {
			return err
		}
		if err := errors.Join(cfg.RequireMySQL(), opts.Validate()); err != nil {
			return usageError{err}
		}
		opts.Progress.Out, opts.Progress.Terminal = a.stderr, isTerminal(a.stderr)
		log := quietLogger(cfg, a.stderr)
		db, err := sql.Open(cfg.MySQL, log)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, db.Close()) }()
		report, err := audit.Run(cmd.Context(), opts, cfg.Kafka, db, log)
		if err != nil {
			return err
		}
		if err := printAudit(a.stdout, *out, report); err != nil {
			return err
		}
		return verdictOf(report)
	}
	return cmd
}

// addAuditFlags are those of all commands that compare.
func addAuditFlags(cmd *cobra.Command, opts *audit.Options) {
	f := cmd.Flags()
	f.IntVar(&opts.Limit, "limit", opts.Limit, "rows of each kind that the report shows")
	f.StringVar(&opts.TempDir, "temp-dir", opts.TempDir, "folder for temporary files")
	f.IntVar(&opts.Parallel, "parallel", opts.Parallel, "partitions that are read at a time")
}

func printAudit(w io.Writer, format output, report *audit.Report) error {
	if format == "json" {
		return json.NewEncoder(w).Encode(report)
	}
	return report.WriteText(w)
}

// verdictOf turns what an audit found into the command's end.
func verdictOf(report *audit.Report) error {
	switch {
	case !report.Equal:
		return differentError{fmt.Errorf("MySQL and the stream differ: %d differences", report.Differences())}
	case len(report.Unknown) > 0:
		return fmt.Errorf("%d partitions could not be compared", len(report.Unknown))
	}
	return nil
}
