package bench

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/schema"
	"kudos/stream/kafka"
)

const (
	// markTable says that the tables of a database and the topics of a cluster are a benchmark's, which the next one may
	// remove.
	markTable = "kudos_bench"
	// clearTimeout bounds removing what a run made. Groups whose process was killed are gone after its session timeout.
	clearTimeout = 2 * time.Minute
	clearPause   = 250 * time.Millisecond
)

// Tables are those that `kudos migrate` makes.
func Tables() []string {
	return []string{"like_count", "applied_offset", "like_hourly", "trending", "leaderboard", "trending_position", "kudos_shard", "kudos_schema_version"}
}

// NamedSite is servers that somebody named: they hold nothing of kudos but what an earlier benchmark left.
type NamedSite struct {
	Kafka       kafka.Options
	DSN         string
	MySQL       driver.Connector // as Servers have it
	Replication int16
	// Keep leaves topics and tables of the last run.
	Keep bool
	Log  *slog.Logger
}

// UnusableError says why no run can take place on a site: its servers are away, or in use.
type UnusableError struct{ error }

func (e *UnusableError) Unwrap() error { return e.error }

func inUse(what string, names []string, remedy string) error {
	return fmt.Errorf("%s (%s); %s", what, strings.Join(names, ", "), remedy)
}

// Open refuses servers that are in use, removes what an earlier run left, and marks the database.
func (n *NamedSite) Open(ctx context.Context, redis bool) (*Servers, error) {
	if redis {
		return nil, &UnusableError{errors.New("there is no Redis on servers that are named")}
	}
	s := &Servers{Kafka: n.Kafka, DSN: n.DSN, MySQL: n.MySQL, Replication: n.Replication, Log: n.Log}
	err := n.with(s, func(cl *kgo.Client, db *sql.DB) error {
		cluster, marked, err := n.survey(ctx, cl, db)
		if err == nil && marked {
			err = n.clear(ctx, cl, db)
		}
		if err != nil {
			return err
		}
		_, err = db.ExecContext(ctx, "CREATE TABLE "+markTable+" (cluster_id VARCHAR(64) NOT NULL) ENGINE = InnoDB COMMENT = 'left by `kudos bench`, which removes it'")
		if err == nil {
			_, err = db.ExecContext(ctx, "INSERT INTO "+markTable+" (cluster_id) VALUES (?)", cluster)
		}
		if err != nil {
			return fmt.Errorf("marking the database: %w", err)
		}
		return nil
	})
	if err != nil && ctx.Err() == nil {
		return nil, &UnusableError{err}
	}
	return s, err
}

// Close removes what the run made. It has a deadline of its own: a run that was interrupted is to leave nothing.
func (n *NamedSite) Close() error {
	if n.Keep {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), clearTimeout)
	defer cancel()
	return n.with(&Servers{Kafka: n.Kafka, DSN: n.DSN, MySQL: n.MySQL, Log: n.Log}, func(cl *kgo.Client, db *sql.DB) error { return n.clear(ctx, cl, db) })
}

func (n *NamedSite) with(s *Servers, do func(*kgo.Client, *sql.DB) error) error {
	cl, err := s.client()
	if err != nil {
		return err
	}
	defer cl.Close()
	db, err := s.open()
	if err != nil {
		return err
	}
	defer db.Close()
	return do(cl, db)
}

// survey looks at what is there. marked: it is a benchmark's, of this cluster.
func (n *NamedSite) survey(ctx context.Context, cl *kgo.Client, db *sql.DB) (cluster string, marked bool, err error) {
	meta, err := kadm.NewClient(cl).Metadata(ctx, topicNames()...)
	if err != nil {
		return "", false, fmt.Errorf("asking Kafka for its topics: %w", err)
	}
	topics := present(meta.Topics)
	found, err := tablesThere(ctx, db)
	if err != nil {
		return "", false, err
	}
	marks, err := marksIn(ctx, db, found)
	if err != nil {
		return "", false, err
	}
	ours := slices.Contains(marks, meta.Cluster)
	found = slices.DeleteFunc(found, func(t string) bool { return t == markTable || !slices.Contains(Tables(), t) })
	switch {
	case len(topics) > 0 && !ours:
		return "", false, inUse("this Kafka cluster has topics of kudos", topics, "a benchmark needs a cluster without them: name another with --brokers")
	case len(found) > 0 && len(marks) == 0:
		return "", false, inUse("this database has tables of kudos", found, "a benchmark needs a database without them: make one (CREATE DATABASE kudos_bench) and name it in --mysql-dsn")
	case len(marks) > 0 && !ours:
		return "", false, inUse("this database has what a benchmark with another Kafka cluster left", marks, "run it with that cluster, or drop the database and make it again")
	}
	return meta.Cluster, ours, nil
}

// topicNames are all topics of kudos.
func topicNames() []string {
	var names []string
	for _, t := range schema.Topics(1, 1) {
		names = append(names, t.Name)
	}
	return names
}

// present are the topics that are there.
func present(topics kadm.TopicDetails) []string {
	var names []string
	for _, t := range topics.Sorted() {
		if !errors.Is(t.Err, kerr.UnknownTopicOrPartition) {
			names = append(names, t.Topic)
		}
	}
	return names
}

func tablesThere(ctx context.Context, db *sql.DB) ([]string, error) {
	names, err := texts(ctx, db, "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE() ORDER BY table_name")
	if err != nil {
		return nil, fmt.Errorf("asking the database for its tables: %w", err)
	}
	return names, nil
}

// marksIn are the clusters that the mark names.
func marksIn(ctx context.Context, db *sql.DB, found []string) ([]string, error) {
	if !slices.Contains(found, markTable) {
		return nil, nil
	}
	marks, err := texts(ctx, db, "SELECT cluster_id FROM "+markTable)
	if err != nil {
		return nil, fmt.Errorf("reading the mark of an earlier benchmark: %w", err)
	}
	return marks, nil
}

func texts(ctx context.Context, db *sql.DB, query string) (list []string, err error) {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			return nil, err
		}
		list = append(list, text)
	}
	return list, rows.Err()
}

// clear removes topics, groups and tables, the mark last: until then the next benchmark may go on with it.
func (n *NamedSite) clear(ctx context.Context, cl *kgo.Client, db *sql.DB) error {
	ctx, cancel := context.WithTimeout(ctx, clearTimeout)
	defer cancel()
	if err := eventually(ctx, func() error { return clearKafka(ctx, kadm.NewClient(cl)) }); err != nil {
		return fmt.Errorf("removing topics and groups of the benchmark: %w", err)
	}
	for _, table := range append(Tables(), markTable) {
		if _, err := db.ExecContext(ctx, "DROP TABLE IF EXISTS "+table); err != nil {
			return fmt.Errorf("dropping table %s of the benchmark: %w", table, err)
		}
	}
	return nil
}

// clearKafka asks for everything to be deleted, and is nil once nothing is there any more.
func clearKafka(ctx context.Context, adm *kadm.Client) error {
	meta, err := adm.Metadata(ctx, topicNames()...)
	if err != nil {
		return err
	}
	var errs []error
	if topics := present(meta.Topics); len(topics) > 0 {
		_, err := adm.DeleteTopics(ctx, topics...)
		errs = append(errs, fmt.Errorf("topics %s are still there", strings.Join(topics, ", ")), err)
	}
	for _, group := range []string{schema.GroupFold, schema.GroupApply} {
		if _, err := adm.DeleteGroup(ctx, group); err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
			errs = append(errs, fmt.Errorf("group %s: %w", group, err))
		}
	}
	return errors.Join(errs...)
}

// eventually tries until there is no error; the last one is returned when time is up.
func eventually(ctx context.Context, try func() error) error {
	tick := time.NewTicker(clearPause)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%w; last: %w", context.Cause(ctx), err)
		}
	}
}
