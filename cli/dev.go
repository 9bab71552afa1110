//go:build !nodev

package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/gofrs/flock"
	"github.com/spf13/cobra"

	"kudos/config"
	"kudos/dev"
	"kudos/ops/audit"
	"kudos/ops/rebuild"
	"kudos/processor/fold/table"
	"kudos/producer"
	"kudos/schema"
	"kudos/sql"
	"kudos/stream/kafka"
)

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
server, the topics and tables, every role as it runs in production, and, with --simulate,
simulated likes.

It prints the addresses and what to try; start with the dashboard, a page that shows the
system at work. --brokers and --mysql-dsn (or their settings) replace the embedded servers
by real ones. You can keep it running: log records that are no longer needed are deleted,
and tables are compacted. The data of the embedded servers is deleted on exit. --data-dir
keeps it: Kafka's in files, from which MySQL is rebuilt at the next start. The embedded
servers are for development only; don't use them for real likes.`,
		Example: `  kudos dev --simulate 2000

  # Keep the data across restarts
  kudos dev --data-dir ~/kudos-dev

  # Any free ports; ready.json lists them once everything is up
  kudos dev --kafka-addr 127.0.0.1:0 --mysql-addr 127.0.0.1:0 --http-addr 127.0.0.1:0 \
            --reader-addr 127.0.0.1:0 --admin-addr 127.0.0.1:0 --ready-file ready.json

  # On a real Kafka and MySQL
  kudos dev --brokers 127.0.0.1:9092 --mysql-dsn 'root@tcp(127.0.0.1:3306)/kudos' \
            --set topics.replication_factor=1`,
	}
	var flags devFlags
	f := cmd.Flags()
	f.Float64Var(&flags.simulate, "simulate", 0, "simulated events per second")
	f.StringVar(&flags.kafkaAddr, "kafka-addr", dev.BrokerAddress,
		"listen address of the embedded Kafka; port 0 picks a free port")
	f.StringVar(&flags.mysqlAddr, "mysql-addr", dev.DatabaseAddress, "listen address of the embedded MySQL")
	f.StringVar(&flags.dataDir, "data-dir", "", "directory that keeps the data of the embedded servers across restarts")
	f.StringVar(&flags.readyFile, "ready-file", "",
		"file for the addresses as JSON (kafka, mysql, http, reader, admin), written once everything is up")
	settings := addSettings(cmd, brokersFlag, mysqlFlag,
		shortFlag{"http-addr", "producer.http_addr", "listen address of the producer"},
		shortFlag{"reader-addr", "reader.http_addr", "listen address of the reader and its dashboard"},
		shortFlag{"admin-addr", "admin.addr", "listen address of the admin server"})
	return []*cobra.Command{settings.run(func(ctx context.Context, cfg *config.Loaded, _ []string) error {
		if err := flags.check(cmd, cfg); err != nil {
			return usageError{err}
		}
		collectMoreOften()
		return newDevSystem(a, cfg, flags).run(ctx)
	})}
}

func (f devFlags) check(cmd *cobra.Command, cfg *config.Loaded) error {
	var errs []error
	refuse := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	given := cmd.Flags().Changed
	refuse(realKafka(cfg) && given("kafka-addr"),
		"--kafka-addr is for the embedded Kafka, but kafka.brokers is set (%s)", cfg.Origin("kafka.brokers"))
	refuse(given("data-dir") && (realKafka(cfg) || realMySQL(cfg)),
		"--data-dir is for the embedded Kafka and MySQL together; real servers keep their own data")
	refuse(realMySQL(cfg) && given("mysql-addr"),
		"--mysql-addr is for the embedded MySQL, but %s is set (%s)", mysqlKey(cfg), cfg.Origin(mysqlKey(cfg)))
	refuse(!realKafka(cfg) && (cfg.Kafka.TLS || cfg.Kafka.SASLMechanism != ""),
		"kafka.tls and kafka.sasl_mechanism are for a real Kafka: set --brokers, or remove them")
	refuse(!realMySQL(cfg) && (cfg.MySQL.TLS || cfg.MySQL.OfMigrations().HasServer()),
		"mysql.tls, mysql.migrate_dsn and mysql.migrate_shards are for a real MySQL: "+
			"set --mysql-dsn, or remove them")
	refuse(cfg.Producer.Auth != producer.AuthNone || cfg.Producer.TLSCert != "" || cfg.Reader.TLSCert != "",
		"producer.auth and tls_cert do not work with kudos dev: its simulator, its dashboard and the commands that it "+
			"prints use neither credentials nor TLS; start each role on its own")
	if given("simulate") {
		err := dev.CheckRate(f.simulate)
		refuse(err != nil, "--simulate: %w", err)
	}
	return errors.Join(errs...)
}

// A real server is used if its address is configured, in whatever way.
func realKafka(cfg *config.Loaded) bool { return cfg.Origin("kafka.brokers").Kind != "default" }
func realMySQL(cfg *config.Loaded) bool { return cfg.MySQL.HasServer() }

func mysqlKey(cfg *config.Loaded) string {
	if cfg.MySQL.DSN == "" {
		return "mysql.shards"
	}
	return "mysql.dsn"
}

// devData is the directory of --data-dir, or a temporary one. Only the embedded broker's data survives a restart: the
// state table holds every reaction, and the embedded MySQL is rebuilt from it.
//
//	DIR/kafka     topics, logs, offsets
//	DIR/state     the roles' state stores; always empty at the start
//	DIR/lock      locked while `kudos dev` runs
//	DIR/running   exists while `kudos dev` runs; if it exists at the start, the last run was killed
type devData struct {
	dir string
	// old: an earlier run left data. killed: that run was killed, so its last Kafka transaction may be partly written.
	old, killed bool
}

// openDevData creates and locks a directory; close releases it.
func openDevData(dir string) (data devData, close func() error, err error) {
	data = devData{dir: dir}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return data, nil, fmt.Errorf("data directory: %w", err)
	}
	lock := flock.New(data.path("lock"))
	switch locked, err := lock.TryLock(); {
	case err != nil:
		return data, nil, fmt.Errorf("data directory: locking %s: %w", lock.Path(), err)
	case !locked:
		return data, nil, fmt.Errorf("another kudos dev uses %s; stop it, or use another --data-dir", dir)
	}
	_, err = os.Stat(filepath.Join(data.path("kafka"), "meta.json"))
	data.old = err == nil
	_, err = os.Stat(data.path("running"))
	data.killed = data.old && err == nil
	if err := os.WriteFile(data.path("running"), nil, 0o644); err != nil {
		return data, nil, errors.Join(fmt.Errorf("data directory: %w", err), lock.Unlock())
	}
	return data, func() error { return errors.Join(os.Remove(data.path("running")), lock.Unlock()) }, nil
}

func (d devData) path(name string) string { return filepath.Join(d.dir, name) }

// restore rebuilds MySQL from Kafka's data, before any role runs.
func (d devData) restore(ctx context.Context, cfg config.Config, log *slog.Logger) (err error) {
	if d.killed {
		err = d.check(ctx, cfg, log)
	}
	if d.old && err == nil {
		err = d.rebuild(ctx, cfg, log)
	}
	return d.explain(ctx, err)
}

// explain adds what to do to a start-up error that the earlier kill may have caused.
func (d devData) explain(ctx context.Context, err error) error {
	if err == nil || !d.killed || ctx.Err() != nil {
		return err
	}
	return fmt.Errorf("kudos dev was killed, and its broker's data in %s is inconsistent: "+
		"delete the directory and start again: %w", d.dir, err)
}

// check compares the parts of each partition's last transaction. The embedded broker writes commit markers one by one,
// so a kill may have left only some of them.
func (d devData) check(ctx context.Context, cfg config.Config, log *slog.Logger) error {
	log.Info("kudos dev was killed; checking its data", "dir", d.dir)
	cl, err := cfg.Kafka.NewClient(log)
	if err != nil {
		return err
	}
	defer cl.Close()
	topics, err := kafka.LookUpTopics(ctx, cl, schema.TopicState, schema.TopicUpdates)
	if err != nil {
		return err
	}
	for p := range topics.ByName[schema.TopicState].Partitions {
		progress, err := table.LastProgress(ctx, cl, p)
		if err != nil {
			return err
		}
		if progress == nil {
			return fmt.Errorf("%s/%d has no progress record", schema.TopicState, p)
		}
		other, err := table.FindDisagreement(ctx, cl, topics, p, progress)
		if err != nil {
			return err
		}
		if other != nil {
			return errors.New(other.Why)
		}
		last, err := table.LastUpdate(ctx, cl, p)
		if err != nil {
			return err
		}
		if last == nil && progress.NextSeq > 0 || last != nil && last.Seq+1 != progress.NextSeq {
			return fmt.Errorf("%s/%d does not end with the state table's last update", schema.TopicUpdates, p)
		}
	}
	return nil
}

// rebuild runs `kudos rebuild` and, after a kill, `kudos audit --deep`.
func (d devData) rebuild(ctx context.Context, cfg config.Config, log *slog.Logger) (err error) {
	opts := rebuild.DefaultOptions()
	opts.DropOld = true
	opts.UserBuckets = cfg.Topics.Layout().UserBuckets()
	if _, err := rebuild.Run(ctx, opts, cfg.Kafka, cfg.MySQL, restorer{log}, log); err != nil {
		return fmt.Errorf("rebuilding MySQL from %s: %w", d.dir, err)
	}
	if !d.killed {
		return nil
	}
	db, err := sql.Open(cfg.MySQL, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	report, err := audit.Run(ctx, opts.Audit, cfg.Kafka, db, log)
	if err == nil && !report.Equal {
		err = fmt.Errorf("%d differences between the state table, like-updates and MySQL", report.Differences())
	}
	return err
}

// restorer answers the questions of a rebuild. It agrees to everything: the database is new and empty.
type restorer struct{ log *slog.Logger }

func (r restorer) Say(line string) error      { r.log.Info(line); return nil }
func (restorer) Show(*audit.Report) error     { return nil }
func (restorer) Agree(_ string) (bool, error) { return true, nil }
