package cli

import (
	"github.com/spf13/cobra"

	"kudos/archive"
)

func (a *app) archiveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "archive",
		Short: "Bring every change of the counts into Parquet files, by hour",
		Long: `Bring like-updates, every net change of a post, into Parquet files below archive.dir, for
whoever wants to ask questions of them: a folder for each hour (hour=2026-11-21T13), in it
files of one partition each. A row is in exactly one file, whatever is killed and started
again; a file is there whole or not at all, and never changes. docs/archive.md has the
columns and examples.

Start one, and keep it running: like-updates holds every change for 7 days, and what was
missed then is missing. The folder (archive.dir) says how far it has come: it is no cache.

It runs until SIGTERM or SIGINT, and then finishes the files in hand. /livez, /readyz and
/metrics are at admin.addr.`,
		Example: `  kudos archive --brokers kafka:9092 --set archive.dir=/data/likes

  # Likes by region and day
  duckdb -c "SET TimeZone = 'UTC'; SELECT region, minute::DATE AS day, sum(likes) FROM '/data/likes/hour=*/*.parquet' GROUP BY ALL"`,
		Args: cobra.NoArgs,
	}
	settings := addSettings(cmd, brokersFlag())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := settings.load()
		if err != nil {
			return err
		}
		log, reg := a.logger(cfg), observe(&cfg.Config)
		if err := checkConnections(&cfg.Config, log); err != nil {
			return err
		}
		r, err := archive.New(cfg.Archive, cfg.Kafka, log, reg)
		if err != nil {
			return err
		}
		return runRole(cmd.Context(), "archive", r, cfg.Admin, reg, log)
	}
	return cmd
}
