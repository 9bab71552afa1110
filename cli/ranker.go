package cli

import (
	"errors"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"kudos/config"
	"kudos/ranker"
	"kudos/sql"
)

func (a *app) rankerCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ranker",
		Short: "Rank the posts that rise, or take posts out of rankings",
		Long: `Make rankings: the posts with the most likes in each window (ranker.windows), of the day and
of all time, for each region and for all together. They go to the topic trending, and to
MySQL if mysql.dsn is set. "kudos trending" shows them.

Start as many as you like: they share the partitions. The settings of the section ranker
that rankings depend on, from windows to min_likes, must be the same in all of them. Each
needs a folder of its own for the local copies of its state tables (ranker.state_dir);
losing it costs a recovery from Kafka and nothing else.

It runs until SIGTERM or SIGINT, and then finishes the batches in hand
(ranker.shutdown_timeout). /livez, /readyz and /metrics are at admin.addr.`,
		Example: `  kudos ranker --brokers kafka:9092 --mysql-dsn 'kudos:secret@tcp(db:3306)/kudos'

  # Rankings in Kafka only, beside a processor on the same machine
  kudos ranker --brokers kafka:9092 --set admin.addr=127.0.0.1:9091

  # Moderation
  kudos ranker exclude 42 4711 --reason 'bought likes' --brokers kafka:9092`,
		Args: cobra.NoArgs,
	}
	a.runWithOptionalStore(cmd, "ranker", "rankings are in Kafka only", func(cfg config.Config, db *sql.Shards, log *slog.Logger, reg prometheus.Registerer) (role, error) {
		return ranker.New(cfg.Ranker, cfg.Kafka, db, log, reg)
	})
	cmd.AddCommand(a.excludeCommand(), a.includeCommand(), a.exclusionsCommand(), a.rankerResetCommand())
	return cmd
}

// runWithOptionalStore has a command run a role that can do without a database: the
// db is nil if none is set, and the log says what there is not.
func (a *app) runWithOptionalStore(cmd *cobra.Command, name, without string, newRole func(config.Config, *sql.Shards, *slog.Logger, prometheus.Registerer) (role, error)) {
	settings := addSettings(cmd, brokersFlag(), mysqlFlag())
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		cfg, err := settings.load()
		if err != nil {
			return err
		}
		log, reg := a.logger(cfg), observe(&cfg.Config)
		if err := checkConnections(&cfg.Config, log); err != nil {
			return err
		}
		var db *sql.Shards
		if cfg.RequireMySQL() != nil {
			log.Info(without + ": neither mysql.dsn nor mysql.shards is set")
		} else {
			if db, err = sql.Open(cfg.MySQL, log); err != nil {
				return err
			}
			defer func() { err = errors.Join(err, db.Close()) }()
			reg.MustRegister(db.Collectors()...)
		}
		r, err := newRole(cfg.Config, db, log, reg)
		if err != nil {
			return err
		}
		return runRole(cmd.Context(), name, r, cfg.Admin, reg, log)
	}
}
