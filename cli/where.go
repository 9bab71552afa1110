package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"kudos/config"
	"kudos/schema"
	"kudos/sql"
	"kudos/stream/kafka"
)

func (a *app) whereCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "where POST|REGION/WINDOW…",
		Short: "Say in which partition and on which MySQL server a post is",
		Long: `Say in which partition and on which MySQL server the counts of a post are, or a ranking
(REGION/WINDOW, such as DE/1h or global/day). Kafka is asked how many partitions there
are; MySQL is not asked. How a program finds it by itself: docs/reading.md.`,
		Example: `  kudos where 42 4711 --config kudos.yaml
  kudos where global/1h --output json --config kudos.yaml | jq -r '.[].server'`,
		Args: cobra.MinimumNArgs(1),
	}
	settings := addSettings(cmd, brokersFlag(), mysqlFlag())
	out := addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		cfg, err := settings.load()
		if err != nil {
			return err
		}
		keys, err := parseKeys(args)
		if err := errors.Join(err, cfg.RequireMySQL()); err != nil {
			return usageError{err}
		}
		places, err := findPlaces(cmd.Context(), cfg, keys, quietLogger(cfg, a.stderr))
		if err != nil {
			return err
		}
		return printPlaces(a.stdout, *out, places)
	}
	return cmd
}

// located is where the rows of a key are.
type located struct {
	Key       string `json:"key"`
	Partition int32  `json:"partition"`
	Shard     int32  `json:"shard"`
	Server    string `json:"server"`
	topic     string // that it is a key of
}

func parseKeys(args []string) ([]located, error) {
	var keys []located
	var errs []error
	for _, arg := range args {
		key := located{Key: arg, topic: schema.TopicLikes}
		if region, window, isRanking := strings.Cut(arg, "/"); isRanking {
			ranking := sql.Ranking{Region: region, Window: window}
			errs = append(errs, ranking.Validate())
			key.topic = schema.TopicTrending
		} else if post, err := schema.ParsePostKey([]byte(arg)); err != nil {
			errs = append(errs, fmt.Errorf("%q is neither a post nor REGION/WINDOW: %w", arg, err))
		} else {
			key.Key = string(schema.AppendPostKey(nil, post)) // not 007
		}
		keys = append(keys, key)
	}
	return keys, errors.Join(errs...)
}

// findPlaces asks Kafka for the count of partitions, which is what decides.
func findPlaces(ctx context.Context, cfg *config.Loaded, keys []located, log *slog.Logger) (_ []located, err error) {
	ctx, cancel := context.WithTimeout(ctx, topicsTimeout)
	defer cancel()
	cl, err := cfg.Kafka.NewClient(log)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	shards, err := sql.Open(cfg.MySQL, log)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, shards.Close()) }()
	known := map[string]int32{} // partitions
	for i := range keys {
		key := &keys[i]
		if known[key.topic] == 0 {
			topics, err := kafka.LookUpTopics(ctx, cl, key.topic)
			if err != nil {
				return nil, err
			}
			known[key.topic] = topics.ByName[key.topic].Partitions
		}
		key.Partition = schema.KeyPartition([]byte(key.Key), known[key.topic])
		store := shards.Of(key.Partition)
		key.Shard, key.Server = store.Shard().Index, store.Server()
	}
	return keys, nil
}

func printPlaces(w io.Writer, format output, places []located) error {
	if format == "json" {
		return json.NewEncoder(w).Encode(places)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "KEY\tPARTITION\tSHARD\tSERVER") // errors of writes come with Flush
	for _, p := range places {
		fmt.Fprintf(t, "%s\t%d\t%d\t%s\n", p.Key, p.Partition, p.Shard, p.Server)
	}
	return t.Flush()
}
