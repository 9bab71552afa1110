package rebuild

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/lovoo/goka/storage"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/ops/audit"
	"kudos/processor/fold/table"
	"kudos/schema"
	"kudos/stream/kafka"
)

// planEvents finds out whether likes still has all events, and up to where they were
// folded: only up to there were events forwarded and buried.
func (b *Rebuild) planEvents(ctx context.Context, j *job) error {
	start, end, err := kafka.Bounds(ctx, b.cl, schema.TopicLikes, j.partition)
	if err != nil {
		return err
	}
	if start > 0 {
		return b.unexplained(ctx, fmt.Sprintf("%s/%d begins at offset %d: the events before were deleted (retention), so the state table cannot be made from it", schema.TopicLikes, j.partition, start))
	}
	progress, err := table.LastProgress(ctx, b.cl, j.partition)
	if err != nil {
		return err
	}
	committed, ok, err := kafka.CommittedOffset(ctx, b.cl, schema.GroupFold, schema.TopicLikes, j.partition)
	if err != nil {
		return err
	}
	published, err := table.LastUpdate(ctx, b.cl, j.partition)
	if err != nil {
		return err
	}
	switch {
	case progress != nil && progress.Moving:
		return errMoving
	case progress != nil && progress.Layouts > 0:
		return b.unexplained(ctx, fmt.Sprintf("the state table of partition %d cannot be made from %s/%d: since `kudos topics repartition`, what was folded of other partitions before lives here, too, and the other way round", j.partition, schema.TopicLikes, j.partition))
	case progress != nil && (progress.ClusterID != b.topics.ClusterID || progress.SourceID != b.topics.ByName[schema.TopicLikes].ID):
		return fmt.Errorf("the state table of partition %d was folded from another %s than is there now, whose events are gone; start over in empty topics (`kudos topics apply`)", j.partition, schema.TopicLikes)
	case published != nil: // !j.empty
		// All that was folded was published in the same transaction. Should Kafka have
		// torn one (see docs/design.md), what was published decides: others have it.
		j.until = published.SourceOffset
	case progress != nil && ok:
		j.until = max(progress.NextOffset, committed)
	case progress != nil:
		j.until = progress.NextOffset
	case ok:
		j.until = committed
	default:
		return fmt.Errorf("up to where %s/%d was folded is not known: the state table has no progress record, and group %s no committed offset; delete %s too and run `kudos topics apply`, then the processors fold all of it anew", schema.TopicLikes, j.partition, schema.GroupFold, schema.TopicUpdates)
	}
	if j.until > end {
		return fmt.Errorf("%s/%d was folded up to offset %d, but ends at %d: events are missing", schema.TopicLikes, j.partition, j.until, end)
	}
	return nil
}

// unexplained refuses a state table that likes alone does not explain. If a partition of it only disagrees with the
// committed offset, something else helps.
func (b *Rebuild) unexplained(ctx context.Context, why string) error {
	for partition := range b.partitions() {
		p, err := table.LastProgress(ctx, b.cl, partition)
		if err != nil {
			return err
		}
		if p == nil {
			continue
		}
		other, err := table.FindDisagreement(ctx, b.cl, b.topics, partition, p)
		if err != nil {
			return err
		}
		if other != nil {
			return fmt.Errorf("%s; of partition %d, %w", why, partition, disagree(other))
		}
	}
	return fmt.Errorf("%s; restore the state table from a backup, or accept the loss and start over from the events that are left, in empty topics (`kudos topics apply`)", why)
}

// fromEvents makes a partition's state table from its events, and its updates from
// that, in one transaction. old is the table as it stands.
func (b *Rebuild) fromEvents(ctx context.Context, j job, w *writer, old *audit.Table, dir string) (err error) {
	fresh, err := b.newTable(dir, j.partition)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, fresh.Close()) }()
	epoch, err := b.replay(ctx, j, fresh)
	if err != nil {
		return err
	}
	w.progress = schema.Progress{
		NextOffset: j.until, LeaderEpoch: epoch, ClusterID: b.topics.ClusterID, Partitions: b.partitions(), UserBuckets: b.layout.UserBuckets(),
		SourceID: b.topics.ByName[schema.TopicLikes].ID, StateID: b.topics.ByName[schema.TopicState].ID,
	}
	if !j.empty {
		if w.progress.NextSeq, err = b.checkUpdates(ctx, j, fresh, dir); err != nil {
			return err
		}
	}
	// Kafka gives the transaction up at that time, too; it begins with the first record.
	ctx, cancel := context.WithTimeout(ctx, b.opts.TransactionTimeout)
	defer cancel()
	err = eachDifference(old, fresh, func(key, value []byte) error {
		w.state++
		return w.t.add(ctx, schema.TopicState, key, value)
	})
	switch {
	case err != nil:
		return err
	case j.empty:
		return w.publish(ctx, fresh, false)
	case w.state == 0 && b.checkProgress(old, j.partition) == nil && b.checkCommitted(ctx, &old.Progress, j.partition) == nil && b.isSame(old, w.progress):
		return b.say("partition %d: the state table is what %s says, and %s belongs to it; left as they are", j.partition, schema.TopicLikes, schema.TopicUpdates)
	}
	return w.finish(ctx)
}

// isSame tells whether a table's progress record says the same as another, but for the
// leader epoch.
func (b *Rebuild) isSame(table *audit.Table, p schema.Progress) bool {
	p.UpdatesID, p.LeaderEpoch = b.topics.ByName[schema.TopicUpdates].ID, table.Progress.LeaderEpoch
	return table.Progress == p
}

// replay folds the events up to where they had been folded. It returns the leader
// epoch of the last.
func (b *Rebuild) replay(ctx context.Context, j job, into *audit.Table) (epoch int32, err error) {
	phase := b.opts.Audit.Progress.Begin(fmt.Sprintf("folding the events of partition %d", j.partition), "offsets", j.until)
	defer phase.End()
	fold := newReplay(into.Store, b.layout)
	epoch = -1
	if j.until == 0 {
		return epoch, nil
	}
	next := int64(0)
	err = kafka.ReadLog(ctx, b.cl, schema.TopicLikes, j.partition, 0, func(c kafka.LogChunk) (bool, error) {
		records := before(c.Records, j.until)
		through := min(c.Next, j.until)
		if through > next {
			if err := fold.Fold(records, through-1); err != nil {
				return false, fmt.Errorf("%s/%d: %w", schema.TopicLikes, j.partition, err)
			}
			phase.Add(through - next)
			next = through
		}
		if n := len(records); n > 0 {
			epoch = records[n-1].LeaderEpoch
		}
		return c.Next < j.until, nil
	})
	return epoch, err
}

// before cuts off the records from an offset on.
func before(records []*kgo.Record, offset int64) []*kgo.Record {
	n := len(records)
	for n > 0 && records[n-1].Offset >= offset {
		n--
	}
	return records[:n]
}

// checkUpdates is for a partition of like-updates that has updates: they stay, if they
// end where the table does, with its counts. It returns the seq after the last.
func (b *Rebuild) checkUpdates(ctx context.Context, j job, fresh *audit.Table, dir string) (seq uint64, err error) {
	last, err := b.newTable(dir, j.partition) // the last counts of each post, as in a state table
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, last.Close()) }()
	seq, source, whole, err := b.readLast(ctx, j.partition, last)
	if err != nil {
		return 0, err
	}
	different := 0
	err = fresh.EachPost(nil, func(post audit.Post) error {
		value, err := last.Get(string(schema.AppendCountsKey(nil, post.ID)))
		if err != nil {
			return err
		}
		have := schema.Counts{}
		if value != nil {
			if have, err = schema.DecodeCounts(value); err != nil {
				return err
			}
		}
		if have != post.Counted && (whole || value != nil) {
			different++
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	err = last.EachPost(nil, func(post audit.Post) error {
		there, err := fresh.Has(string(schema.AppendCountsKey(nil, post.ID)))
		if !there && post.Stored != (schema.Counts{}) {
			different++
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	if different > 0 || source != j.until {
		return 0, fmt.Errorf("%s/%d does not end where the events do that were folded: it covers %s up to offset %d, which was folded up to %d, and the counts of %d posts differ; delete %s, run `kudos topics apply`, and then this again", schema.TopicUpdates, j.partition, schema.TopicLikes, source, j.until, different, schema.TopicUpdates)
	}
	return seq, nil
}

// readLast lays down the last counts of each post in like-updates. whole: the log has
// its start.
func (b *Rebuild) readLast(ctx context.Context, partition int32, into *audit.Table) (seq uint64, source int64, whole bool, err error) {
	next, end, err := kafka.Bounds(ctx, b.cl, schema.TopicUpdates, partition)
	if err != nil {
		return 0, 0, false, err
	}
	whole = next == 0
	phase := b.opts.Audit.Progress.Begin(fmt.Sprintf("reading the updates of partition %d", partition), "offsets", end-next)
	defer phase.End()
	var u schema.Update
	var key, value []byte
	err = kafka.ReadLog(ctx, b.cl, schema.TopicUpdates, partition, next, func(c kafka.LogChunk) (bool, error) {
		if c.Next == next {
			return next < c.End, nil
		}
		write := into.NewWrite()
		for _, rec := range c.Records {
			if err := schema.DecodeUpdate(rec.Value, &u); err != nil {
				write.Discard()
				return false, fmt.Errorf("%s/%d offset %d: %w", schema.TopicUpdates, partition, rec.Offset, err)
			}
			seq, source = u.Seq+1, u.SourceOffset
			if string(rec.Key) == schema.ProgressKey {
				continue
			}
			post, err := schema.ParsePostKey(rec.Key)
			if err == nil {
				key, value = schema.AppendCountsKey(key[:0], post), schema.AppendCounts(value[:0], u.Counts)
				err = write.Set(key, value)
			}
			if err != nil {
				write.Discard()
				return false, fmt.Errorf("%s/%d offset %d: %w", schema.TopicUpdates, partition, rec.Offset, err)
			}
		}
		phase.Add(c.Next - next)
		next = c.Next
		return next < c.End, write.Commit(next - 1)
	})
	return seq, source, whole, err
}

// eachDifference calls write with what turns the old table into the fresh one: keys
// that are new or other, and those that are there no more, without a value. (A pair
// without a reaction is not such a one: its state stays.)
func eachDifference(old, fresh *audit.Table, write func(key, value []byte) error) error {
	a, err := old.Iterator()
	if err != nil {
		return err
	}
	defer a.Release()
	z, err := fresh.Iterator()
	if err != nil {
		return err
	}
	defer z.Release()
	inA, inZ := nextEntry(a), nextEntry(z)
	for inA || inZ {
		order := 0
		switch {
		case !inZ:
			order = -1
		case !inA:
			order = 1
		default:
			order = bytes.Compare(a.Key(), z.Key())
		}
		if order < 0 { // only in the old one
			if err := write(bytes.Clone(a.Key()), nil); err != nil {
				return err
			}
			inA = nextEntry(a)
			continue
		}
		value, err := z.Value()
		if err != nil {
			return fmt.Errorf("reading temporary files: %w", err)
		}
		same := false
		if order == 0 {
			was, err := a.Value()
			if err != nil {
				return fmt.Errorf("reading temporary files: %w", err)
			}
			same = bytes.Equal(was, value)
			inA = nextEntry(a)
		}
		if !same {
			if err := write(bytes.Clone(z.Key()), bytes.Clone(value)); err != nil {
				return err
			}
		}
		inZ = nextEntry(z)
	}
	return errors.Join(a.Err(), z.Err())
}

// nextEntry goes to the next pair or post.
func nextEntry(it storage.Iterator) bool {
	for it.Next() {
		if n := len(it.Key()); n == schema.PairKeySize || n == schema.PostKeySize {
			return true
		}
	}
	return false
}
