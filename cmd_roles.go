package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime/debug"

	"github.com/spf13/cobra"

	"kudos/config"
	"kudos/processor"
	"kudos/producer"
	"kudos/sql"
)

func (a *app) producerCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "producer",
		Short: "Take likes over HTTP and bring them to Kafka",
		Long: `Take likes over HTTP and bring them to Kafka.

A like is answered with 202 and its place once Kafka has it, and with what is wrong
otherwise. producer.auth says how it knows who sends a like: from a gateway's header, or
from a token. By default it asks nobody: that is for 127.0.0.1, and has to be said for
an address that others reach.

It runs until SIGTERM or SIGINT, and then answers the requests in hand
(producer.shutdown_timeout). /livez, /readyz and /metrics are at admin.addr.`,
		Example: `  kudos producer --brokers kafka-1:9092,kafka-2:9092 --set producer.http_addr=:8080 --set producer.auth=none

  curl -X PUT    http://127.0.0.1:8080/v1/posts/1/likes/42      # user 42 likes post 1
  curl -X PUT    http://127.0.0.1:8080/v1/posts/1/dislikes/42   # dislikes it now
  curl -X DELETE http://127.0.0.1:8080/v1/posts/1/likes/42      # has no reaction any more`,
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
		if err := checkAuth(cfg); err != nil {
			return err
		}
		if cfg.Producer.Auth == producer.AuthNone {
			log.Warn("whoever reaches this producer can like in anybody's name (producer.auth is none); docs/security.md has the other ways")
		}
		cfg.Producer.UserBuckets = cfg.Topics.Layout().UserBuckets()
		p, err := producer.New(cfg.Producer, cfg.Kafka, log, reg)
		if err != nil {
			return err
		}
		return runRole(cmd.Context(), "producer", p, cfg.Admin, reg, log)
	}
	return cmd
}

// checkAuth refuses what nobody may have meant: an address that others reach, where nobody is asked who he is.
func checkAuth(cfg *config.Loaded) error {
	host, _, err := net.SplitHostPort(cfg.Producer.HTTPAddr)
	if err != nil {
		return err // Options.Validate has refused it
	}
	addr, _ := netip.ParseAddr(host)
	if cfg.Producer.Auth != producer.AuthNone || cfg.Origin("producer.auth").Kind != "default" || host == "localhost" || addr.IsLoopback() {
		return nil
	}
	return usageError{fmt.Errorf("producer.http_addr is %s, which others reach: say how the producer is to know who sends a like. Set producer.auth to gateway or jwt (docs/security.md); or to none, and whoever reaches it can like in anybody's name", cfg.Producer.HTTPAddr)}
}

// processorGC is GOGC's value for a processor: what waits for the collector at Go's 100 % is 300 MiB more, and saves no
// time that can be measured (docs/performance.md).
const processorGC = 50

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
		if os.Getenv("GOGC") == "" {
			debug.SetGCPercent(processorGC)
		}
		p, err := processor.New(cfg.Processor, cfg.Kafka, db, log, reg)
		if err != nil {
			return err
		}
		return runRole(cmd.Context(), "processor", p, cfg.Admin, reg, log)
	}
	return cmd
}
