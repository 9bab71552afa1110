//go:build !nodev

package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/gofrs/flock"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/config"
	"kudos/ops/audit"
	"kudos/ops/rebuild"
	"kudos/processor/fold/table"
	"kudos/schema"
	"kudos/sql"
	"kudos/stream/kafka"
)

// devData is the directory of --data-dir. The embedded broker's data is all that is kept: the
// state table has every reaction, and the embedded MySQL is rebuilt from it.
//
//	DIR/kafka     topics, logs, offsets
//	DIR/state     local copies of the roles' tables; they always begin empty
//	DIR/lock      held while `kudos dev` runs
//	DIR/running   there while `kudos dev` runs; one that is found was killed
type devData struct {
	dir string
	// old: an earlier run left data. killed: it was not ended, so that Kafka's last
	// transaction may be in the logs in part.
	old, killed bool
}

// openDevData takes a directory into use, until close is called. Nobody else may use it.
func openDevData(dir string) (data devData, close func() error, err error) {
	data = devData{dir: dir}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return data, nil, fmt.Errorf("--data-dir: %w", err)
	}
	lock := flock.New(filepath.Join(dir, "lock"))
	switch locked, err := lock.TryLock(); {
	case err != nil:
		return data, nil, fmt.Errorf("--data-dir: locking %s: %w", lock.Path(), err)
	case !locked:
		return data, nil, fmt.Errorf("--data-dir: another kudos dev uses %s; end it, or give another directory", dir)
	}
	_, err = os.Stat(filepath.Join(data.kafka(), "meta.json"))
	data.old = err == nil
	_, err = os.Stat(data.running())
	data.killed = data.old && err == nil
	if err := os.WriteFile(data.running(), nil, 0o644); err != nil {
		return data, nil, errors.Join(fmt.Errorf("--data-dir: %w", err), lock.Unlock())
	}
	return data, func() error { return errors.Join(os.Remove(data.running()), lock.Unlock()) }, nil
}

func (d devData) kafka() string   { return filepath.Join(d.dir, "kafka") }
func (d devData) state() string   { return filepath.Join(d.dir, "state") }
func (d devData) running() string { return filepath.Join(d.dir, "running") }

// restore makes MySQL anew from what Kafka has kept, before anything runs.
func (d devData) restore(ctx context.Context, cfg config.Config, log *slog.Logger) error {
	if !d.old {
		return nil
	}
	err := d.check(ctx, cfg, log)
	if err == nil {
		err = d.rebuild(ctx, cfg, log)
	}
	return d.explain(ctx, err)
}

// explain says what to do if what keeps the system from starting may be that it was killed.
func (d devData) explain(ctx context.Context, err error) error {
	if err == nil || !d.killed || ctx.Err() != nil {
		return err
	}
	return fmt.Errorf("kudos dev was killed, and its broker's data in %s do not fit together: "+
		"delete the directory and start again: %w", d.dir, err)
}

// check holds the parts of each partition's last transaction against each other, if it may
// be there in part: the broker of `kudos dev` writes commit markers one by one.
func (d devData) check(ctx context.Context, cfg config.Config, log *slog.Logger) error {
	if !d.killed {
		return nil
	}
	log.Info("kudos dev was killed; checking what it left", "dir", d.dir)
	cl, err := cfg.Kafka.NewClient(log)
	if err != nil {
		return err
	}
	defer cl.Close()
	topics, err := kafka.LookUpTopics(ctx, cl, schema.TopicState)
	if err != nil {
		return err
	}
	for p := range topics.ByName[schema.TopicState].Partitions {
		progress, err := table.LastProgress(ctx, cl, p)
		if err != nil {
			return err
		}
		if progress == nil {
			return fmt.Errorf("%s/%d has no progress record", schema.TopicState, p)
		}
		committed, ok, err := kafka.CommittedOffset(ctx, cl, schema.GroupFold, schema.TopicLikes, p)
		if err != nil {
			return err
		}
		if ok && committed != progress.NextOffset {
			return fmt.Errorf("%s/%d stands at offset %d of %s, but the group has committed %d",
				schema.TopicState, p, progress.NextOffset, schema.TopicLikes, committed)
		}
		if err := checkLastUpdate(ctx, cl, p, progress.NextSeq); err != nil {
			return err
		}
	}
	return nil
}

// checkLastUpdate wants the update before next to be the last one of the partition.
func checkLastUpdate(ctx context.Context, cl *kgo.Client, partition int32, next uint64) error {
	at, err := audit.Locate(ctx, cl, partition, next)
	if err != nil {
		return err
	}
	return kafka.ReadLog(ctx, cl, schema.TopicUpdates, partition, at.NextOffset, func(c kafka.LogChunk) (bool, error) {
		if len(c.Records) > 0 {
			return false, fmt.Errorf("%s/%d goes on at offset %d, behind what the state table has published",
				schema.TopicUpdates, partition, c.Records[0].Offset)
		}
		return c.Next < c.End, nil
	})
}

// rebuild is `kudos rebuild` and, after a kill, `kudos audit --deep`.
func (d devData) rebuild(ctx context.Context, cfg config.Config, log *slog.Logger) (err error) {
	opts := rebuild.DefaultOptions()
	opts.DropOld = true
	opts.UserBuckets = cfg.Topics.Layout().UserBuckets()
	b, err := rebuild.New(opts, cfg.Kafka, cfg.MySQL, restorer{log}, log)
	if err != nil {
		return err
	}
	if _, err := b.Run(ctx); err != nil {
		return fmt.Errorf("rebuilding MySQL from %s: %w", d.dir, err)
	}
	if !d.killed {
		return nil
	}
	db, err := sql.Open(cfg.MySQL, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	report, err := audit.Run(ctx, opts.Audit, cfg.Kafka, db, log)
	if err != nil {
		return err
	}
	if !report.Equal {
		return fmt.Errorf("%d differences between the state table, like-updates and MySQL", report.Differences())
	}
	return nil
}

// restorer agrees to a rebuild: the database is new and empty.
type restorer struct{ log *slog.Logger }

func (r restorer) Say(line string) error      { r.log.Info(line); return nil }
func (restorer) Show(*audit.Report) error     { return nil }
func (restorer) Agree(_ string) (bool, error) { return true, nil }
