package cli

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/spf13/cobra"

	"kudos/config"
	"kudos/producer"
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
		if err := CheckAuth(cfg); err != nil {
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

// CheckAuth refuses what nobody may have meant: an address that others reach, where nobody is asked who he is.
func CheckAuth(cfg *config.Loaded) error {
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
