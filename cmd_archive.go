package main

import (
	"github.com/spf13/cobra"

	"kudos/processor/archive"
)

func (a *app) archiveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "archive",
		Short: "Write every change of the counts into Parquet files, by hour",
		Long: `Write like-updates, every net change of a post, into Parquet files below archive.dir: a
folder for each hour (hour=2026-11-21T13), in it files of one partition each. Each row is in
exactly one file, over crashes and restarts: files appear whole, and their names say which
offsets they cover.

Start one, and keep it running: like-updates is compacted after 7 days, and what was missed
until then is missing (it says so, and stops).

It runs until SIGTERM or SIGINT, and then finishes the files in hand. /livez, /readyz and
/metrics are at admin.addr.`,
		Example: `  kudos archive --brokers kafka:9092 --set archive.dir=/data/likes

  # Likes by region and day
  duckdb -c "SELECT region, minute::DATE AS day, sum(likes) FROM '/data/likes/*/*.parquet' GROUP BY ALL"`,
		Args: cobra.NoArgs,
	}
	settings := addSettings(cmd, brokersFlag())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := settings.load()
		if err != nil {
			return err
		}
		log, reg := a.logger(cfg), observe(&cfg.Config)
		r, err := archive.New(cfg.Archive, cfg.Kafka, log, reg)
		if err != nil {
			return err
		}
		return runRole(cmd.Context(), "archive", r, cfg.Admin, reg, log)
	}
	return cmd
}
