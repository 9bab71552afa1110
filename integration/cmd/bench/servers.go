package main

import (
	"context"
	"errors"
	"log/slog"

	"kudos/bench"
	"kudos/integration/stack"
	"kudos/stream/kafka"
)

const (
	database     = "bench"
	retryBackoff = "add.partitions.to.txn.retry.backoff.ms"
)

// brokerProperties are the configurations of Kafka. A transaction that begins while the broker completes the previous
// one of its id is retried there after retryBackoff, 20 ms by default.
var brokerProperties = map[string]map[string]string{bench.DefaultBroker: nil, "tuned": {retryBackoff: "1"}}

type servers struct {
	dir string // for the servers' data
	log *slog.Logger

	open []interface{ Close() error }
}

func (s *servers) Open(ctx context.Context, c bench.Contender, broker string) (_ *bench.Servers, err error) {
	defer stack.CloseOnError(&err, s.Close)
	cluster, err := stack.StartKafka(ctx,
		stack.KafkaOptions{Dir: s.dir, Log: s.log, ExtraProperties: brokerProperties[broker]})
	if err != nil {
		return nil, err
	}
	s.open = append(s.open, cluster)
	mariadb, err := stack.StartMariaDB(ctx, stack.DatabaseOptions{
		Dir: s.dir, Log: s.log, ExtraArgs: []string{"--userstat=1"}, // counts rows
	})
	if err != nil {
		return nil, err
	}
	s.open = append(s.open, mariadb)
	if err := mariadb.CreateDatabase(ctx, database); err != nil {
		return nil, err
	}
	b := newServers(cluster, mariadb, mariadb.DSN(database), s.log)
	if p, ok := c.(*peer); ok && p.needsRedis {
		r, err := p.startRedis(ctx, b, s.dir)
		if err != nil {
			return nil, err
		}
		s.open = append(s.open, r)
	}
	return b, nil
}

func newServers(broker *stack.Kafka, mariadb *stack.Database, dsn string, log *slog.Logger) *bench.Servers {
	options := kafka.DefaultOptions()
	options.Brokers = broker.Brokers()
	return &bench.Servers{Kafka: options, DSN: dsn, Replication: 1, Log: log,
		Processes: map[string]int{"kafka": broker.Node(0).PID(), "mariadb": mariadb.PID()}}
}

func (p *peer) startRedis(ctx context.Context, s *bench.Servers, dir string) (*stack.Redis, error) {
	r, err := stack.StartRedis(ctx, stack.RedisOptions{Dir: dir, AppendOnly: true, Log: s.Log})
	if err != nil {
		return nil, err
	}
	p.redis, s.Processes["redis"] = r.Address(), r.PID()
	return r, nil
}

func (s *servers) Close() error {
	var errs []error
	for _, server := range s.open {
		errs = append(errs, server.Close())
	}
	s.open = nil
	return errors.Join(errs...)
}
