package bench

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	_ "github.com/go-sql-driver/mysql" // registers the driver "mysql"
	"github.com/jmoiron/sqlx"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/schema"
	"kudos/stream/kafka"
)

// Site provides servers. Each run gets servers without data of earlier runs.
type Site interface {
	// Open makes servers ready, until Close, with a broker configuration that it knows by name.
	Open(ctx context.Context, c Contender, broker string) (*Servers, error)
	Close() error // cleans up after Open
}

// Servers are the servers of one run.
type Servers struct {
	Kafka       kafka.Options
	DSN         string           // of an empty database
	MySQL       driver.Connector // connects to it if a DSN cannot say how (TLS files); nil: use the DSN
	Processes   map[string]int   // ids of the servers on this machine, by name
	Replication int16            // replication factor of topics
	Log         *slog.Logger

	// Set between connect and disconnect.
	adm *kadm.Client
	db  *sqlx.DB
}

// connect opens the clients, unless they are open.
func (s *Servers) connect() error {
	if s.db != nil {
		return nil
	}
	cl, err := s.Kafka.NewClient(s.Log)
	if err != nil {
		return err
	}
	if s.MySQL != nil {
		s.db = sqlx.NewDb(sql.OpenDB(s.MySQL), "mysql")
	} else if s.db, err = sqlx.Open("mysql", s.DSN); err != nil {
		s.db = nil
		cl.Close()
		return fmt.Errorf("the database: %w", err)
	}
	s.adm = kadm.NewClient(cl)
	return nil
}

func (s *Servers) disconnect() {
	if s.db == nil {
		return
	}
	s.adm.Close()
	_ = s.db.Close()
	s.adm, s.db = nil, nil
}

// writer returns a client that writes to likes, in batches as large as the topic allows.
func (s *Servers) writer(linger time.Duration, maxBuffered int) (*kgo.Client, error) {
	return s.Kafka.NewClient(s.Log, kgo.DefaultProduceTopic(schema.TopicLikes),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchMaxBytes(schema.BatchMaxBytes(schema.TopicLikes)),
		kgo.ProducerLinger(linger), kgo.MaxBufferedRecords(maxBuffered))
}

func (s *Servers) versions(ctx context.Context) (map[string]string, error) {
	versions := map[string]string{}
	brokers, err := s.adm.ApiVersions(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the version of Kafka: %w", err)
	}
	for _, b := range brokers {
		if b.Err == nil {
			versions["Kafka"] = b.VersionGuess()
		}
	}
	var version string
	if err := s.db.GetContext(ctx, &version, "SELECT VERSION()"); err != nil {
		return nil, fmt.Errorf("reading the version of the database: %w", err)
	}
	versions["database"] = version
	return versions, nil
}

// lister is adm.ListEndOffsets or adm.ListCommittedOffsets.
type lister func(ctx context.Context, topics ...string) (kadm.ListedOffsets, error)

func offsets(ctx context.Context, topic string, list lister) (map[int32]int64, error) {
	listed, err := list(ctx, topic)
	if err = cmp.Or(err, listed.Error()); err != nil {
		return nil, fmt.Errorf("listing the end offsets of %s: %w", topic, err)
	}
	offsets := map[int32]int64{}
	listed.Each(func(o kadm.ListedOffset) { offsets[o.Partition] = o.Offset })
	return offsets, nil
}

// length is the sum of the last stable offsets of a topic's partitions.
func (s *Servers) length(ctx context.Context, topic string) (n int64, err error) {
	ends, err := offsets(ctx, topic, s.adm.ListCommittedOffsets)
	for _, end := range ends {
		n += end
	}
	return n, err
}

const (
	// markTable marks a benchmark's database and names its cluster: the next run may remove their tables and topics.
	markTable = "kudos_bench"
	// clearTimeout bounds the cleanup. The group of a killed process can be deleted after its session timeout.
	clearTimeout = 2 * time.Minute
	clearPause   = 250 * time.Millisecond
)

// kudosTables are the tables that `kudos migrate` creates.
var kudosTables = []string{"like_count", "applied_offset", "like_hourly", "trending", "leaderboard",
	"trending_position", "kudos_shard", "kudos_schema_version"}

// NamedSite is servers that the user names. They must hold nothing of kudos, except what an earlier benchmark left.
type NamedSite struct {
	Servers
	Keep bool // keep topics and tables of the last run
}

// unusableError says why a site cannot be used: its servers are unavailable, or in use.
type unusableError struct{ error }

func (e *unusableError) Unwrap() error { return e.error }

// Open rejects servers that are in use, removes what an earlier run left, and marks the database.
func (n *NamedSite) Open(ctx context.Context, _ Contender, _ string) (*Servers, error) {
	if err := n.claim(ctx); err != nil {
		n.disconnect()
		if ctx.Err() == nil {
			err = &unusableError{err}
		}
		return nil, err
	}
	return &n.Servers, nil
}

func (n *NamedSite) claim(ctx context.Context) error {
	if err := n.connect(); err != nil {
		return err
	}
	cluster, marked, err := n.survey(ctx)
	if err == nil && marked {
		err = n.clear(ctx)
	}
	if err != nil {
		return err
	}
	_, err = n.db.ExecContext(ctx, "CREATE TABLE "+markTable+" (cluster_id VARCHAR(64) NOT NULL) ENGINE = InnoDB "+
		"COMMENT = 'left by `kudos bench`, which removes it'")
	if err == nil {
		_, err = n.db.ExecContext(ctx, "INSERT INTO "+markTable+" (cluster_id) VALUES (?)", cluster)
	}
	if err != nil {
		return fmt.Errorf("marking the database: %w", err)
	}
	return nil
}

// Close removes what the run created, also after an interrupt. It reconnects, since clients may cache older metadata.
func (n *NamedSite) Close() error {
	if n.Keep {
		return nil
	}
	n.disconnect()
	if err := n.connect(); err != nil {
		return err
	}
	return n.clear(context.Background())
}

// survey checks what the servers hold. marked: the database is marked as a benchmark's, of this cluster.
func (n *NamedSite) survey(ctx context.Context) (cluster string, marked bool, err error) {
	cluster, topics, err := kudosTopics(ctx, n.adm)
	if err != nil {
		return "", false, fmt.Errorf("listing the topics of Kafka: %w", err)
	}
	var found, marks []string
	err = n.db.SelectContext(ctx, &found,
		"SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE() ORDER BY table_name")
	if err != nil {
		return "", false, fmt.Errorf("listing the tables of the database: %w", err)
	}
	if slices.Contains(found, markTable) {
		if err := n.db.SelectContext(ctx, &marks, "SELECT cluster_id FROM "+markTable); err != nil {
			return "", false, fmt.Errorf("reading the mark of an earlier benchmark: %w", err)
		}
	}
	marked = slices.Contains(marks, cluster)
	tables := slices.DeleteFunc(found, func(t string) bool { return !slices.Contains(kudosTables, t) })
	inUse := func(what string, names []string, action string) error {
		return fmt.Errorf("%s (%s); %s", what, strings.Join(names, ", "), action)
	}
	switch {
	case len(topics) > 0 && !marked:
		err = inUse("this Kafka cluster has topics of kudos", topics,
			"a benchmark needs a cluster without them: use another with --brokers")
	case len(tables) > 0 && len(marks) == 0:
		err = inUse("this database has tables of kudos", tables, "a benchmark needs a database without them: "+
			"create one (CREATE DATABASE kudos_bench) and name it in --mysql-dsn")
	case len(marks) > 0 && !marked:
		err = inUse("this database has data left by a benchmark with another Kafka cluster", marks,
			"run it with that cluster, or drop the database and recreate it")
	}
	return cluster, marked, err
}

// kudosTopics returns the cluster id and which topics of kudos exist.
func kudosTopics(ctx context.Context, adm *kadm.Client) (cluster string, there []string, err error) {
	var names []string
	for _, t := range schema.Topics(1, 1) {
		names = append(names, t.Name)
	}
	meta, err := adm.Metadata(ctx, names...)
	for _, t := range meta.Topics.Sorted() {
		if !errors.Is(t.Err, kerr.UnknownTopicOrPartition) {
			there = append(there, t.Topic)
		}
	}
	return meta.Cluster, there, err
}

// clear removes topics, groups, tables, then the mark, so that the next benchmark can finish an interrupted cleanup.
func (n *NamedSite) clear(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, clearTimeout)
	defer cancel()
	for err := clearKafka(ctx, n.adm); err != nil; err = clearKafka(ctx, n.adm) {
		if !kafka.Sleep(ctx, clearPause) {
			return fmt.Errorf("removing topics and groups of the benchmark: %w; last: %w", context.Cause(ctx), err)
		}
	}
	for _, table := range append(slices.Clip(kudosTables), markTable) {
		if _, err := n.db.ExecContext(ctx, "DROP TABLE IF EXISTS "+table); err != nil {
			return fmt.Errorf("dropping table %s of the benchmark: %w", table, err)
		}
	}
	return nil
}

// clearKafka deletes everything, and returns nil once nothing is left.
func clearKafka(ctx context.Context, adm *kadm.Client) error {
	_, topics, err := kudosTopics(ctx, adm)
	if err != nil {
		return err
	}
	var errs []error
	if len(topics) > 0 {
		_, err := adm.DeleteTopics(ctx, topics...)
		errs = append(errs, fmt.Errorf("topics %s still exist", strings.Join(topics, ", ")), err)
	}
	for _, group := range []string{schema.GroupFold, schema.GroupApply} {
		if _, err := adm.DeleteGroup(ctx, group); err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
			errs = append(errs, fmt.Errorf("group %s: %w", group, err))
		}
	}
	return errors.Join(errs...)
}
