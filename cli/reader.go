package cli

import (
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"kudos/config"
	"kudos/reader"
	"kudos/sql"
)

func (a *app) readerCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "reader",
		Short: "Answer counts, likers and rankings over HTTP, and live; with a dashboard",
		Long: `Answer counts, who likes what, rankings and likes over time over HTTP, and all of it
live (Server-Sent Events, WebSocket), from local copies of what is in Kafka. There is a
dashboard at /, and the API is described at /openapi.yaml.

Start as many as you like, behind a load balancer: each has all of it. Each needs a folder
of its own for its copies (reader.state_dir); losing it costs a recovery from Kafka and
nothing else. It is ready (/readyz) once it has caught up. Likes over time come from MySQL;
without --mysql-dsn there are none.

It asks nobody who they are: put it behind what knows who may see what. It runs until
SIGTERM or SIGINT, and then answers the requests in hand (reader.shutdown_timeout).
/livez, /readyz and /metrics are at admin.addr.`,
		Example: `  kudos reader --brokers kafka:9092 --mysql-dsn 'kudos:secret@tcp(db:3306)/kudos' \
               --set reader.http_addr=:8081

  curl 'http://127.0.0.1:8081/v1/posts/42/likes'
  curl 'http://127.0.0.1:8081/v1/likes?post_ids=42,43,44'       # a feed page
  curl 'http://127.0.0.1:8081/v1/posts/42/likers?page_size=10'
  curl -N 'http://127.0.0.1:8081/v1/stream?post_ids=42'         # live, until Ctrl-C

  # A second one on the same machine, or one beside "kudos dev"
  kudos reader --set reader.http_addr=127.0.0.1:8082 --set admin.addr=127.0.0.1:9091 \
               --set reader.state_dir=kudos-reader-state-2

  # With a like button on the dashboard
  kudos reader --set reader.producer_url=https://likes.example.com`,
		Args: cobra.NoArgs,
	}
	a.runWithOptionalStore(cmd, "reader", "there are no likes over time", func(cfg config.Config, db *sql.Shards, log *slog.Logger, reg prometheus.Registerer) (role, error) {
		return reader.New(cfg.Reader, cfg.Kafka, db, log, reg)
	})
	return cmd
}
