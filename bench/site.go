package bench

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"log/slog"

	_ "github.com/go-sql-driver/mysql" // registers the driver "mysql"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/schema"
	"kudos/stream/kafka"
)

// Site is where runs take place. Each run gets servers that hold nothing of an earlier one.
type Site interface {
	// Open makes servers ready, for a contender that needs Redis or not. They are used until Close.
	Open(ctx context.Context, redis bool) (*Servers, error)
	// Close ends what Open made.
	Close() error
}

// Servers are those of one run.
type Servers struct {
	Kafka kafka.Options
	// DSN is of a database that holds nothing.
	DSN string
	// MySQL makes connections to it, where a DSN cannot say how (TLS by files); nil: by the DSN.
	MySQL driver.Connector
	// Redis is host:port; empty if there is none.
	Redis string
	// Processes are the ids of the servers' processes by name, where they run on this machine.
	Processes map[string]int
	// Replication is the replication factor of topics.
	Replication int16
	Log         *slog.Logger
}

// client is a plain Kafka client.
func (s *Servers) client(opts ...kgo.Opt) (*kgo.Client, error) {
	return s.Kafka.NewClient(s.Log, opts...)
}

// open is a pool of connections to the database. Close it.
func (s *Servers) open() (*sql.DB, error) {
	if s.MySQL != nil {
		return sql.OpenDB(s.MySQL), nil
	}
	db, err := sql.Open("mysql", s.DSN)
	if err != nil {
		return nil, fmt.Errorf("the database: %w", err)
	}
	return db, nil
}

// makeLikes makes the topic likes as kudos has it, for contenders that do not make it themselves.
func (s *Servers) makeLikes(ctx context.Context, partitions int32) error {
	cl, err := s.client()
	if err != nil {
		return err
	}
	defer cl.Close()
	for _, t := range schema.Topics(partitions, s.Replication) {
		if t.Name != schema.TopicLikes {
			continue
		}
		configs := map[string]*string{}
		for name, value := range t.Configs {
			configs[name] = kadm.StringPtr(value)
		}
		if _, err := kadm.NewClient(cl).CreateTopic(ctx, t.Partitions, t.ReplicationFactor, configs, t.Name); err != nil {
			return fmt.Errorf("creating topic %s: %w", t.Name, err)
		}
	}
	return nil
}

// Versions asks the servers what they are, by name.
func (s *Servers) Versions(ctx context.Context) (map[string]string, error) {
	cl, err := s.client()
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	versions := map[string]string{}
	brokers, err := kadm.NewClient(cl).ApiVersions(ctx)
	if err != nil {
		return nil, fmt.Errorf("asking Kafka for its version: %w", err)
	}
	for _, b := range brokers {
		if b.Err == nil {
			versions["Kafka"] = b.VersionGuess()
		}
	}
	db, err := s.open()
	if err != nil {
		return nil, err
	}
	defer db.Close()
	var version string
	if err := db.QueryRowContext(ctx, "SELECT VERSION()").Scan(&version); err != nil {
		return nil, fmt.Errorf("asking the database for its version: %w", err)
	}
	versions["database"] = version
	return versions, nil
}
