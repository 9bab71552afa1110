package cli

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"kudos/config"
	"kudos/ops/progress"
	"kudos/producer/importer"
)

func (a *app) importCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "import FILE|-",
		Short: "Import likes from a file into Kafka",
		Long: `Import likes from a file, or from standard input (-), into Kafka.

CSV starts with a header that names its columns, in any order:
  post_id, user_id   whole numbers, 1 to 2^64-1
  action             LIKE, UNLIKE or DISLIKE; true and false mean LIKE and UNLIKE
  time_ms            event time in Unix milliseconds; optional, default: the arrival time
  region             ISO 3166 ("US", "US-CA"); optional
NDJSON has one object per line, with the same names. Either may be compressed with gzip.

Events set the desired state, so you can simply repeat an import that was interrupted:
with time_ms, an event that arrives twice counts once.

Invalid lines are written to the rejects file, with line number and reason; all others
are imported. If there are invalid lines, the exit code is 1.`,
		Example: `  kudos import likes.csv.gz --brokers kafka:9092
  zcat ratings.csv.gz | ./to-likes | kudos import - --output json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("import takes one FILE, or - for standard input; got %d", len(args))
			}
			return nil
		},
	}
	format := cmd.Flags().String("format", string(importer.Auto), "csv, ndjson, or auto: detect it by the first byte")
	rejects := cmd.Flags().String("rejects", "", "file for invalid lines (default FILE.rejects)")
	out := addOutput(cmd)
	return addSettings(cmd, brokersFlag).run(func(ctx context.Context, cfg *config.Loaded, args []string) (err error) {
		opts := importer.Options{Progress: a.stderr, Terminal: isTerminal(a.stderr), Layout: cfg.Topics.Layout(),
			Repeat: progress.Repeat}
		if opts.Format, err = importer.ParseFormat(*format); err != nil {
			return usageError{err}
		}
		path, err := rejectsPath(*rejects, args[0])
		if err != nil {
			return usageError{err}
		}
		src, err := importer.Open(ctx, args[0], a.stdin)
		if err != nil {
			return err
		}
		defer src.Close()
		im := importer.New(opts, cfg.Kafka, quietLogger(cfg, a.stderr))
		summary, err := im.Run(ctx, src, importer.NewRejects(path))
		return errors.Join(err, out.print(a.stdout, summary, summaryText(summary)))
	})
}

// rejectsPath returns the path of the rejects file, which must not be the imported file.
func rejectsPath(flag, source string) (string, error) {
	switch {
	case flag == "" && source == "-":
		return "stdin.rejects", nil
	case flag == "":
		return source + ".rejects", nil
	case sameFile(flag, source):
		return "", fmt.Errorf("--rejects %s would overwrite the file to import", flag)
	}
	return flag, nil
}

func sameFile(a, b string) bool {
	infoA, errA := os.Stat(a)
	infoB, errB := os.Stat(b)
	return errA == nil && errB == nil && os.SameFile(infoA, infoB)
}

func summaryText(s importer.Summary) string {
	if s.Lines == 0 && !s.Complete {
		return "" // it failed before it started; the error says why
	}
	text := fmt.Sprintf("%s: %d lines read, %d events in Kafka, %d rejected, %d not acknowledged, in %s\n",
		s.Source, s.Lines, s.Acknowledged, s.Rejected, s.NotAcknowledged, took(s.Seconds))
	if s.UnknownRegions > 0 {
		text += fmt.Sprintf("%d of them have an invalid region; they count under ZZ\n", s.UnknownRegions)
	}
	return text
}
