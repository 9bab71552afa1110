//go:build !nodev

package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"kudos/config"
	"kudos/dev"
	"kudos/producer"
)

// devFlags are what `kudos dev` has besides settings.
type devFlags struct {
	simulate             float64
	kafkaAddr, mysqlAddr string
	readyFile, dataDir   string
}

func (a *app) devCommands() []*cobra.Command {
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run the whole system in this process, with nothing installed",
		Long: `Run the whole system in this process, with nothing installed: a Kafka broker and a MySQL
server, the topics and tables, every role as it runs in production, and likes that arrive by
themselves, if you wish.

It prints where everything listens and what to try: first of all the dashboard, a page to
see it all work. --brokers and --mysql-dsn (or their settings) put real servers in the
place of the embedded ones. It can stay on: logs are deleted up to what nobody needs any
more, tables are compacted. The data of embedded servers goes on exit; --data-dir keeps it:
Kafka's in files, from which MySQL is rebuilt at the next start. They are for development
and no place for real likes.`,
		Example: `  kudos dev --simulate 2000

  # Everything is there again the next time
  kudos dev --data-dir ~/kudos-dev

  # Any free ports, and a file that tells a script which, once all is up
  kudos dev --kafka-addr 127.0.0.1:0 --mysql-addr 127.0.0.1:0 --http-addr 127.0.0.1:0 \
            --reader-addr 127.0.0.1:0 --admin-addr 127.0.0.1:0 --ready-file ready.json

  # On a real Kafka and MySQL
  kudos dev --brokers 127.0.0.1:9092 --mysql-dsn 'root@tcp(127.0.0.1:3306)/kudos' \
            --set topics.replication_factor=1`,
		Args: cobra.NoArgs,
	}
	var flags devFlags
	f := cmd.Flags()
	f.Float64Var(&flags.simulate, "simulate", 0, "simulated events per second")
	f.StringVar(&flags.kafkaAddr, "kafka-addr", dev.DefaultBrokerOptions().Address, "where the embedded Kafka listens; port 0 takes a free one")
	f.StringVar(&flags.mysqlAddr, "mysql-addr", dev.DefaultDatabaseOptions().Address, "where the embedded MySQL listens")
	f.StringVar(&flags.dataDir, "data-dir", "", "directory that keeps the data of the embedded servers over a restart")
	f.StringVar(&flags.readyFile, "ready-file", "", "file that gets the addresses as JSON (kafka, mysql, http, reader, admin) once all is up")
	settings := addSettings(cmd, brokersFlag(), mysqlFlag(),
		shortFlag{name: "http-addr", key: "producer.http_addr", usage: "where the producer takes likes"},
		shortFlag{name: "reader-addr", key: "reader.http_addr", usage: "where the reader answers, with its dashboard"},
		shortFlag{name: "admin-addr", key: "admin.addr", usage: "where the admin server listens"})
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := settings.load()
		if err != nil {
			return err
		}
		if err := flags.check(cmd, cfg); err != nil {
			return usageError{err}
		}
		collectMoreOften()
		return newDevSystem(a, cfg, flags).run(cmd.Context())
	}
	return []*cobra.Command{cmd}
}

func (f devFlags) check(cmd *cobra.Command, cfg *config.Loaded) error {
	var errs []error
	if realKafka(cfg) && cmd.Flags().Changed("kafka-addr") {
		errs = append(errs, fmt.Errorf("--kafka-addr is for the embedded Kafka, but kafka.brokers is set (%s)", cfg.Origin("kafka.brokers")))
	}
	if cmd.Flags().Changed("data-dir") && (realKafka(cfg) || realMySQL(cfg)) {
		errs = append(errs, errors.New("--data-dir is for the embedded Kafka and MySQL together; "+
			"servers of your own keep their data themselves"))
	}
	if realMySQL(cfg) && cmd.Flags().Changed("mysql-addr") {
		errs = append(errs, fmt.Errorf("--mysql-addr is for the embedded MySQL, but %s is set (%s)", mysqlKey(cfg), cfg.Origin(mysqlKey(cfg))))
	}
	if !realKafka(cfg) && (cfg.Kafka.TLS || cfg.Kafka.SASLMechanism != "") {
		errs = append(errs, errors.New("kafka.tls and kafka.sasl_mechanism are for a Kafka of your own: give --brokers, or leave them out"))
	}
	if !realMySQL(cfg) && (cfg.MySQL.TLS || cfg.MySQL.OfMigrations().HasServer()) {
		errs = append(errs, errors.New("mysql.tls, mysql.migrate_dsn and mysql.migrate_shards are for a MySQL of your own: give --mysql-dsn, or leave them out"))
	}
	if cfg.Producer.Auth != producer.AuthNone || cfg.Producer.TLSCert != "" || cfg.Reader.TLSCert != "" {
		errs = append(errs, errors.New("producer.auth and tls_cert are not for kudos dev: its simulator, its dashboard and the commands that it prints have neither a name nor a certificate; start the roles by themselves"))
	}
	if cmd.Flags().Changed("simulate") {
		opts := dev.DefaultSimulatorOptions()
		opts.Rate = f.simulate
		if err := opts.Validate(); err != nil {
			errs = append(errs, fmt.Errorf("--simulate: %w", err))
		}
	}
	return errors.Join(errs...)
}

// A server of your own is used where its address was set in any way.
func realKafka(cfg *config.Loaded) bool { return cfg.Origin("kafka.brokers").Kind != "default" }
func realMySQL(cfg *config.Loaded) bool { return cfg.MySQL.HasServer() }

// mysqlKey is the setting that names the database, or databases.
func mysqlKey(cfg *config.Loaded) string {
	if cfg.MySQL.DSN == "" {
		return "mysql.shards"
	}
	return "mysql.dsn"
}

// stopped is a context that has ended: work that was started ends with it.
func stopped() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}
