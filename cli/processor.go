package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"kudos/processor"
	"kudos/sql"
)

func (a *app) processorCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "processor",
		Short: "Judge the events and bring the counts to MySQL",
		Long: `Judge the events in Kafka, keep who likes what, and bring the counts to MySQL.

Start as many as you like: they share the partitions. Each needs a folder of its own
for the local copy of the state table (processor.state_dir); losing it costs a recovery
from Kafka and nothing else. While MySQL is away the counts there wait; nothing else does.

It runs until SIGTERM or SIGINT, and then finishes the batches in hand
(processor.shutdown_timeout). /livez, /readyz and /metrics are at admin.addr.`,
		Example: `  kudos processor --brokers kafka:9092 --mysql-dsn 'kudos:secret@tcp(db:3306)/kudos'

  # A second one on the same machine
  kudos processor --config kudos.yaml --set processor.state_dir=state-2 --set admin.addr=127.0.0.1:9091`,
		Args: cobra.NoArgs,
	}
	settings := addSettings(cmd, brokersFlag(), mysqlFlag())
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		cfg, err := settings.load()
		if err != nil {
			return err
		}
		if err := cfg.RequireMySQL(); err != nil {
			return usageError{err}
		}
		log, reg := a.logger(cfg), observe(&cfg.Config)
		if err := checkConnections(&cfg.Config, log); err != nil {
			return err
		}
		db, err := sql.Open(cfg.MySQL, log)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, db.Close()) }()
		reg.MustRegister(db.Collectors()...)
		collectMoreOften()
		p, err := processor.New(cfg.Processor, cfg.Kafka, db, log, reg)
		if err != nil {
			return err
		}
		return runRole(cmd.Context(), "processor", p, cfg.Admin, reg, log)
	}
	return cmd
}
