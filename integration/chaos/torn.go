package chaos

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/schema"
)

// Kafka 4.2.1 can tear a transaction. A broker that is killed and restarted within its old session believes that it
// still has its leaderships. If it was a transaction coordinator, and the end of its log is a decision that no other
// broker has, it acts on that decision: it sends COMMIT to the transaction's partitions. Then its session expires,
// another broker becomes the coordinator, does not know of the decision, and sends ABORT. The partitions that got
// COMMIT first have committed the transaction, the others have aborted it.
//
// No client can prevent that, but kudos must not count wrong: it parks the partition. So the run recognizes torn
// transactions by their markers in the log, reports them apart from differences, and runs the action that kudos names.

// tornWithin is how far back from the end of a log markers are searched.
const tornWithin = 50_000

// markers are the offsets of commit markers. Each end of a transaction has its own epoch (transaction.version 2).
type markers map[marker]int64

type marker struct {
	partition int32
	producer  int64
	epoch     int16
}

// add adds a control record, and reports whether it aborts a transaction that was committed at another offset.
func (m markers) add(rec *kgo.Record) (committed int64, twice bool) {
	if len(rec.Key) < 4 {
		return 0, false
	}
	const commit = 1 // after two bytes of version
	key := marker{rec.Partition, rec.ProducerID, rec.ProducerEpoch}
	if binary.BigEndian.Uint16(rec.Key[2:]) == commit {
		m[key] = rec.Offset
		return 0, false
	}
	committed, twice = m[key]
	return committed, twice
}

func (s *system) torn(ctx context.Context) (string, error) {
	var all []string
	for _, topic := range []string{schema.TopicState, schema.TopicUpdates, schema.TopicCounts} {
		found, err := s.tornIn(ctx, topic)
		if err != nil {
			return "", fmt.Errorf("searching for torn transactions in %s: %w", topic, err)
		}
		all = append(all, found...)
	}
	return strings.Join(all, "; "), nil
}

func (s *system) tornIn(ctx context.Context, topic string) (found []string, err error) {
	ends, err := s.admin.ListEndOffsets(ctx, topic)
	if err != nil {
		return nil, err
	}
	offsets, left := map[int32]kgo.Offset{}, map[int32]int64{}
	ends.Each(func(l kadm.ListedOffset) {
		err = errors.Join(err, l.Err)
		if l.Offset > 0 {
			offsets[l.Partition] = kgo.NewOffset().At(max(0, l.Offset-tornWithin))
			left[l.Partition] = l.Offset
		}
	})
	if err != nil || len(left) == 0 {
		return nil, err
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(s.kafka.Brokers()...), kgo.DisableClientMetrics(),
		kgo.KeepControlRecords(), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: offsets}))
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	seen := markers{}
	for len(left) > 0 {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		fetches.EachRecord(func(rec *kgo.Record) {
			if rec.Offset+1 >= left[rec.Partition] {
				delete(left, rec.Partition)
			}
			if !rec.Attrs.IsControl() {
				return
			}
			if at, twice := seen.add(rec); twice {
				found = append(found, fmt.Sprintf(
					"%s/%d has COMMIT at offset %d and ABORT at %d of one transaction (producer %d, epoch %d)",
					topic, rec.Partition, at, rec.Offset, rec.ProducerID, rec.ProducerEpoch))
			}
		})
	}
	return found, nil
}

const repairTimeout = 10 * time.Minute

// action does what kudos names for a torn transaction while likes is complete from its start: stop the processors, then
// `kudos rebuild --from-events`. It also repairs a lagging committed offset, for which kudos names `--offsets`.
func (r *run) action(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, repairTimeout)
	defer cancel()
	s := r.sys
	var errs []error
	for _, u := range s.processors {
		u.held.Lock()
		defer u.held.Unlock()
		if u.Running() {
			errs = append(errs, u.Stop())
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("stop the processors: %w", err)
	}
	if err := s.rebuild(ctx); err != nil {
		return err
	}
	r.watch.rebuilt()
	for _, u := range s.processors {
		errs = append(errs, u.Start(ctx))
	}
	return errors.Join(errs...)
}

// rebuild rebuilds the state table: refused while the group has members, which a killed guest is until it expires.
func (s *system) rebuild(ctx context.Context) (err error) {
	primary := s.database.Load().primary
	for end := time.Now().Add(10 * sessionTimeout); ; {
		err = s.kudos(ctx, "rebuild", "--from-events", "--yes", "--brokers", strings.Join(s.kafka.Brokers(), ","),
			"--mysql-dsn", primary.DSN(databaseName))
		if err == nil || !strings.Contains(err.Error(), "stop all processors first") || time.Now().After(end) {
			return err
		}
		if err := wait(ctx, time.Second); err != nil {
			return err
		}
	}
}

func (s *system) kudos(ctx context.Context, args ...string) error {
	return s.command(ctx, s.opts.Program, args...)
}

func (s *system) command(ctx context.Context, program string, args ...string) error {
	out, err := exec.CommandContext(ctx, program, args...).CombinedOutput()
	s.log.Info("ran", "command", "kudos "+strings.Join(args, " "), "error", err, "output", string(out))
	if err != nil {
		return fmt.Errorf("kudos %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}
