package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"kudos/archive"
	"kudos/config"
	"kudos/processor"
	"kudos/producer"
	"kudos/producer/bridge"
	"kudos/ranker"
	"kudos/ranker/notify"
	"kudos/reader"
	"kudos/sql"
)

type roleParts struct {
	*config.Loaded
	db  *sql.Shards // nil: not configured, or not used by the role
	log *slog.Logger
	reg *prometheus.Registry
}

// roleCommand completes the command of a role. The role uses MySQL if short contains mysqlFlag.
func (a *app) roleCommand(cmd *cobra.Command, create func(roleParts) (role, error), short ...shortFlag) *cobra.Command {
	return addSettings(cmd, short...).run(func(ctx context.Context, cfg *config.Loaded, _ []string) (err error) {
		p := roleParts{Loaded: cfg, log: a.logger(cfg), reg: observe(&cfg.Config)}
		if err := checkConnections(&cfg.Config, p.log); err != nil {
			return err
		}
		if slices.Contains(short, mysqlFlag) && cfg.MySQL.HasServer() {
			if p.db, err = sql.Open(cfg.MySQL, p.log); err != nil {
				return err
			}
			defer func() { err = errors.Join(err, p.db.Close()) }()
			p.reg.MustRegister(p.db.Collectors()...)
		}
		r, err := create(p)
		if err != nil {
			return err
		}
		return runRole(ctx, cmd.Name(), r, cfg.Admin, p.reg, p.log)
	})
}

func (p roleParts) goWithoutMySQL(missing string) {
	if p.db == nil {
		p.log.Info(missing + ": neither mysql.dsn nor mysql.shards is set")
	}
}

func (a *app) producerCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "producer",
		Short: "Accept likes over HTTP and publish them to Kafka",
		Long: `Accept likes over HTTP and publish them to Kafka.

A like is answered with 202 and its offset once Kafka has acknowledged it, otherwise with
an error. producer.auth is how clients are authenticated: by a gateway's header or by a
token. By default they are not, for use on 127.0.0.1; if other machines can reach the
address, you must set producer.auth.

It runs until SIGTERM or SIGINT, and then finishes the requests in flight
(producer.shutdown_timeout). /livez, /readyz and /metrics are at admin.addr.`,
		Example: `  kudos producer --brokers kafka-1:9092,kafka-2:9092 --set producer.http_addr=:8080 --set producer.auth=none

  curl -X PUT    http://127.0.0.1:8080/v1/posts/1/likes/42      # user 42 likes post 1
  curl -X PUT    http://127.0.0.1:8080/v1/posts/1/dislikes/42   # dislikes it now
  curl -X DELETE http://127.0.0.1:8080/v1/posts/1/likes/42      # has no reaction any more`,
	}
	return a.roleCommand(cmd, func(p roleParts) (role, error) {
		if err := CheckAuth(p.Loaded); err != nil {
			return nil, err
		}
		if p.Producer.Auth == producer.AuthNone {
			p.log.Warn("producer.auth is none: anyone who can reach this producer can like as any user; " +
				"docs/security.md describes the alternatives")
		}
		p.Producer.UserBuckets = p.Topics.Layout().UserBuckets()
		return producer.New(p.Producer, p.Kafka, p.log, p.reg)
	}, brokersFlag)
}

// CheckAuth rejects a producer that others can reach without a decision about authentication: probably a mistake.
func CheckAuth(cfg *config.Loaded) error {
	host, _, err := net.SplitHostPort(cfg.Producer.HTTPAddr)
	if err != nil {
		return err // Options.Validate has rejected it already
	}
	addr, _ := netip.ParseAddr(host)
	meant := cfg.Producer.Auth != producer.AuthNone || cfg.Origin("producer.auth").Kind != "default"
	if meant || host == "localhost" || addr.IsLoopback() {
		return nil
	}
	return usageError{fmt.Errorf("producer.http_addr is %s, which other machines can reach, but producer.auth is not "+
		"set. Set producer.auth to gateway or jwt (docs/security.md); or to none, and anyone who can reach it can "+
		"like as any user", cfg.Producer.HTTPAddr)}
}

func (a *app) processorCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "processor",
		Short: "Fold events and write counts to MySQL",
		Long: `Fold the events in Kafka into the state table of all reactions; write counts to MySQL.

Start as many as you like: they share the partitions. Each needs its own directory for the
local copy of the state table (processor.state_dir). It is a cache: if it is lost, it is
rebuilt from Kafka. If MySQL is unavailable, only the counts there wait.

It runs until SIGTERM or SIGINT, and then finishes the batches in flight
(processor.shutdown_timeout). /livez, /readyz and /metrics are at admin.addr.`,
		Example: `  kudos processor --brokers kafka:9092 --mysql-dsn 'kudos:secret@tcp(db:3306)/kudos'

  # A second one on the same machine
  kudos processor --config kudos.yaml --set processor.state_dir=state-2 --set admin.addr=127.0.0.1:9091`,
	}
	return a.roleCommand(cmd, func(p roleParts) (role, error) {
		if err := p.RequireMySQL(); err != nil {
			return nil, usageError{err}
		}
		collectMoreOften()
		return processor.New(p.Processor, p.Kafka, p.db, p.log, p.reg)
	}, brokersFlag, mysqlFlag)
}

func (a *app) rankerCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ranker",
		Short: "Rank trending posts, or exclude posts from rankings",
		Long: `Compute rankings: the posts with the most likes in each window (ranker.windows), of the day
and of all time, for each region and for all regions together. They are written to the topic
trending, and to MySQL if mysql.dsn is set. "kudos trending" shows them.

Start as many as you like: they share the partitions. The settings of the section ranker
that affect rankings, from windows to min_likes, must be the same in all of them. Each needs
its own directory for the local copies of its state tables (ranker.state_dir). It is a cache:
if it is lost, it is rebuilt from Kafka.

It runs until SIGTERM or SIGINT, and then finishes the batches in flight
(ranker.shutdown_timeout). /livez, /readyz and /metrics are at admin.addr.`,
		Example: `  kudos ranker --brokers kafka:9092 --mysql-dsn 'kudos:secret@tcp(db:3306)/kudos'

  # Rankings in Kafka only, next to a processor on the same machine
  kudos ranker --brokers kafka:9092 --set admin.addr=127.0.0.1:9091

  # Moderation
  kudos ranker exclude 42 4711 --reason 'bought likes' --brokers kafka:9092`,
	}
	cmd.AddCommand(a.excludeCommand(), a.includeCommand(), a.exclusionsCommand(), a.rankerResetCommand())
	return a.roleCommand(cmd, func(p roleParts) (role, error) {
		p.goWithoutMySQL("rankings are in Kafka only")
		return ranker.New(p.Ranker, p.Kafka, p.db, p.log, p.reg)
	}, brokersFlag, mysqlFlag)
}

func (a *app) readerCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "reader",
		Short: "Serve counts, likers and rankings over HTTP, also live, with a dashboard",
		Long: `Serve counts, reactions, rankings and likes over time over HTTP, and live updates of counts
and rankings (Server-Sent Events, WebSocket), from local views of what is in Kafka. The
dashboard is at /, the API description at /openapi.yaml.

Start as many as you like, behind a load balancer: each has all data. Each needs its own
directory for its views (reader.state_dir). It is a cache: if it is lost, it is rebuilt from
Kafka. A reader is ready (/readyz) once it has caught up. Likes over time come from MySQL
and need --mysql-dsn.

It has no authentication: put it behind a proxy that authorizes requests. It runs until
SIGTERM or SIGINT, and then finishes the requests in flight (reader.shutdown_timeout).
/livez, /readyz and /metrics are at admin.addr.`,
		Example: `  kudos reader --brokers kafka:9092 --mysql-dsn 'kudos:secret@tcp(db:3306)/kudos' \
               --set reader.http_addr=:8081

  curl 'http://127.0.0.1:8081/v1/posts/42/likes'
  curl 'http://127.0.0.1:8081/v1/likes?post_ids=42,43,44'       # a feed page
  curl 'http://127.0.0.1:8081/v1/posts/42/likers?page_size=10'
  curl -N 'http://127.0.0.1:8081/v1/stream?post_ids=42'         # live, until Ctrl-C

  # A second one on the same machine, or one next to "kudos dev"
  kudos reader --set reader.http_addr=127.0.0.1:8082 --set admin.addr=127.0.0.1:9091 \
               --set reader.state_dir=kudos-reader-state-2

  # With a like button on the dashboard
  kudos reader --set reader.producer_url=https://likes.example.com`,
	}
	return a.roleCommand(cmd, func(p roleParts) (role, error) {
		p.goWithoutMySQL("likes over time are not available")
		return reader.New(p.Reader, p.Kafka, p.db, p.log, p.reg)
	}, brokersFlag, mysqlFlag)
}

func (a *app) archiveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "archive",
		Short: "Archive every count change to hourly Parquet files",
		Long: `Archive like-updates, every net change of a post, to Parquet files in archive.dir, for
analysis: a directory for each hour (hour=2026-11-21T13), with files of one partition each.
Each row is in exactly one file, whatever is killed and restarted; a file is complete or
does not exist, and never changes. docs/archive.md describes the columns and has examples.
archive.dir may be a bucket, s3://BUCKET/PREFIX, and with archive.iceberg.catalog and the
program kudos-iceberg the files are those of an Iceberg table.

Run exactly one, and keep it running: like-updates holds every change for 7 days; a change
that is not archived by then is lost. archive.dir also stores the archive's position: it is
not a cache.

It runs until SIGTERM or SIGINT, and then finishes the files in progress. /livez, /readyz and
/metrics are at admin.addr.`,
		Example: `  kudos archive --brokers kafka:9092 --set archive.dir=/data/likes

  # Likes by region and day
  duckdb -c "SET TimeZone = 'UTC'; SELECT region, minute::DATE AS day, sum(likes) FROM '/data/likes/hour=*/*.parquet' GROUP BY ALL"`,
	}
	return a.roleCommand(cmd, func(p roleParts) (role, error) {
		p.Archive.OpenBucket = a.extras.OpenBucket
		if a.extras.OpenTable != nil {
			p.Archive.OpenTable = func(o archive.Options, log *slog.Logger) (archive.Table, error) {
				return a.extras.OpenTable(o, p.MySQL, log)
			}
		}
		return archive.New(p.Archive, p.Kafka, p.log, p.reg)
	}, brokersFlag)
}

func (a *app) bridgeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bridge",
		Short: "Publish another system's changes or events as likes",
		Long: `Publish as likes what another system writes to a Kafka topic of its own: the changes of a
table of likes that Debezium captures, events in JSON, or CloudEvents. bridge.columns says
which columns or fields are the post, the user and the rest. docs/migration.md describes how
to move from such a table to kudos while it is in use. With bridge.registry.url, values may be
in Avro or JSON Schema, by a schema registry.

Each source record is published exactly once: its position is committed in the transaction
that publishes it. What is no change of a reaction goes to likes.dlt, with the reason.

Start as many as you like: they share the partitions of bridge.topic. It runs until SIGTERM or
SIGINT, and then finishes the batches in flight (bridge.shutdown_timeout). /livez, /readyz and
/metrics are at admin.addr.`,
		Example: `  # The table post_likes of the database shop, captured by Debezium
  kudos bridge --brokers kafka:9092 --set bridge.topic=shop.shop.post_likes \
               --set bridge.columns.time=created_at

  # Events such as {"post": 42, "member": 7, "kind": "love"}
  kudos bridge --brokers kafka:9092 --set bridge.topic=reactions --set bridge.format=json \
               --set bridge.columns.post_id=post --set bridge.columns.user_id=member \
               --set bridge.columns.reaction=kind --set bridge.reactions=love=LIKE,none=UNLIKE`,
	}
	return a.roleCommand(cmd, func(p roleParts) (role, error) {
		if p.Bridge.Topic == "" {
			return nil, usageError{errors.New("bridge.topic is not set: set it to the topic to read")}
		}
		p.Bridge.UserBuckets, p.Bridge.OpenRegistry = p.Topics.Layout().UserBuckets(), a.extras.OpenRegistry
		return bridge.New(p.Bridge, p.Kafka, p.log, p.reg)
	}, brokersFlag)
}

func (a *app) notifyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "notify",
		Short: "Send milestones and rankings to a webhook",
		Long: `Send to a webhook what rankers publish: milestones (a post has reached 100, 1,000, … likes;
ranker.milestones), and the rankings that notify.rankings lists, whenever they change.

Each is a CloudEvent in JSON, signed as Standard Webhooks 1.0 says if notify.secret is set. It is
sent until the webhook answers 2xx, at least once, with the same id each time; after
notify.give_up_after it is written to notify.dlt. The first start begins with what comes then.

Start as many as you like: they share the partitions. It runs until SIGTERM or SIGINT, and then
finishes the requests in flight (notify.shutdown_timeout). /livez, /readyz and /metrics are at
admin.addr.`,
		Example: `  kudos notify --brokers kafka:9092 --set notify.url=https://example.com/hooks/likes \
               --set notify.secret_file=/run/secrets/webhook --set notify.rankings=global/1h`,
	}
	return a.roleCommand(cmd, func(p roleParts) (role, error) {
		if p.Notify.URL == "" {
			return nil, usageError{errors.New("notify.url is not set: set it to the URL of your webhook")}
		}
		return notify.New(p.Notify, p.Kafka, p.log, p.reg)
	}, brokersFlag)
}
