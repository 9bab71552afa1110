package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"kudos/config"
	"kudos/httpserver/admin"
	"kudos/schema"
	"kudos/sql"
	"kudos/stream/kafka"
)

// version is set by the linker if the build has no Git metadata.
var version string

type build struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func buildVersion() build {
	b := build{Version: version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	b.Version = cmp.Or(b.Version, info.Main.Version)
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			b.Revision = s.Value
		}
	}
	return b
}

func (a *app) versionCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "version", Short: "Show the version of this program", Args: cobra.NoArgs}
	out := addOutput(cmd)
	cmd.RunE = func(*cobra.Command, []string) error {
		b := buildVersion()
		return out.print(a.stdout, b, fmt.Sprintln("kudos", b.Version, b.Go, b.Platform))
	}
	return cmd
}

func (a *app) whereCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "where POST|REGION/WINDOW…",
		Short: "Show the partition and the MySQL server of a post",
		Long: `Show the partition and the MySQL server that have the counts of a post, or a ranking
(REGION/WINDOW, such as DE/1h or global/day). It asks Kafka for the number of partitions
and does not connect to MySQL. docs/reading.md explains how a program can compute it.`,
		Example: `  kudos where 42 4711 --config kudos.yaml
  kudos where global/1h --output json --config kudos.yaml | jq -r '.[].server'`,
		Args: cobra.MinimumNArgs(1),
	}
	out := addOutput(cmd)
	settings := addSettings(cmd, brokersFlag, mysqlFlag)
	return settings.run(func(ctx context.Context, cfg *config.Loaded, args []string) error {
		keys, err := parseKeys(args)
		if err := errors.Join(err, cfg.RequireMySQL()); err != nil {
			return usageError{err}
		}
		if err := locate(ctx, cfg, keys, quietLogger(cfg, a.stderr)); err != nil {
			return err
		}
		rows := []string{"KEY\tPARTITION\tSHARD\tSERVER"}
		for _, k := range keys {
			rows = append(rows, fmt.Sprintf("%s\t%d\t%d\t%s", k.Key, k.Partition, k.Shard, k.Server))
		}
		return out.print(a.stdout, keys, aligned(rows))
	})
}

type located struct {
	Key       string `json:"key"`
	Partition int32  `json:"partition"`
	Shard     int32  `json:"shard"`
	Server    string `json:"server"`
	topic     string // the topic of the key
}

func parseKeys(args []string) ([]located, error) {
	var keys []located
	var errs []error
	for _, arg := range args {
		key := located{Key: arg, topic: schema.TopicLikes}
		if region, window, isRanking := strings.Cut(arg, "/"); isRanking {
			errs = append(errs, (&sql.Ranking{Region: region, Window: window}).Validate())
			key.topic = schema.TopicTrending
		} else if post, err := schema.ParsePostKey([]byte(arg)); err != nil {
			errs = append(errs, fmt.Errorf("%q is neither a post nor REGION/WINDOW: %w", arg, err))
		} else {
			key.Key = string(schema.AppendPostKey(nil, post)) // canonical: no leading zeros
		}
		keys = append(keys, key)
	}
	return keys, errors.Join(errs...)
}

func locate(ctx context.Context, cfg *config.Loaded, keys []located, log *slog.Logger) (err error) {
	ctx, cancel := context.WithTimeout(ctx, topicsTimeout)
	defer cancel()
	cl, err := cfg.Kafka.NewClient(log)
	if err != nil {
		return err
	}
	defer cl.Close()
	shards, err := sql.Open(cfg.MySQL, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, shards.Close()) }()
	partitions := map[string]int32{} // by topic
	for i := range keys {
		key := &keys[i]
		if partitions[key.topic] == 0 {
			topics, err := kafka.LookUpTopics(ctx, cl, key.topic)
			if err != nil {
				return err
			}
			partitions[key.topic] = topics.ByName[key.topic].Partitions
		}
		key.Partition = schema.KeyPartition([]byte(key.Key), partitions[key.topic])
		store := shards.Of(key.Partition)
		key.Shard, key.Server = store.Shard().Index, store.Server()
	}
	return nil
}

// HealthTimeout is below the usual health check timeouts of container engines.
const HealthTimeout = 5 * time.Second

func (a *app) healthCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Check whether a role on this machine is ready",
		Long: `Check whether the role on this machine is ready: GET /readyz at admin.addr, for images
without a shell and HTTP client, such as kudos' own. Exit code 0 if it is ready; otherwise
1, and it prints what is not ready, why, and what to do.

It finds the role by admin.addr, so use the same settings as the role. Not ready means that
some work cannot be done, which a restart rarely fixes. To check whether the process is
alive, use /livez.`,
		Example: `  kudos health
  kudos health --admin-addr 127.0.0.1:9091

  # In docker-compose.yml
  healthcheck: {test: ["CMD", "/usr/local/bin/kudos", "health"]}`,
	}
	timeout := cmd.Flags().Duration("timeout", HealthTimeout, "maximum time to wait for the response")
	admins := shortFlag{"admin-addr", "admin.addr", "listen address of the role's admin server"}
	return addSettings(cmd, admins).run(func(ctx context.Context, cfg *config.Loaded, _ []string) error {
		if *timeout <= 0 {
			return usageError{fmt.Errorf("--timeout %s: must be above zero", *timeout)}
		}
		ctx, cancel := context.WithTimeout(ctx, *timeout)
		defer cancel()
		if err := admin.Ask(ctx, cfg.Admin.Addr); err != nil {
			return err
		}
		_, err := fmt.Fprintln(a.stdout, "ready")
		return err
	})
}

func (a *app) configCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Show every setting, and where its value came from",
		Long: `Show every setting as the other commands would see it, and where its value came
from: flag, env, file or default. Passwords are masked.

config/kudos.example.yaml in the source explains each setting. You can set it in
a file (--config), in the environment (kafka.client_id is
KUDOS_KAFKA_CLIENT_ID) or by flag (--set kafka.client_id=likes).`,
		Example: `  kudos config --config kudos.yaml
  kudos config --output json | jq '.[] | select(.from != "default")'`,
	}
	out := addOutput(cmd)
	return addSettings(cmd, brokersFlag, mysqlFlag).run(func(_ context.Context, cfg *config.Loaded, _ []string) error {
		if *out == "json" {
			return cfg.WriteJSON(a.stdout)
		}
		return cfg.WriteTable(a.stdout)
	})
}
