package rebuild

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/ops/audit"
	"kudos/processor/fold"
	"kudos/processor/fold/classify"
	"kudos/processor/fold/table"
	"kudos/schema"
	"kudos/stream/kafka"
	"kudos/stream/store"
)

// planEvents checks whether likes still has all events, and finds the offset up to which they were folded. The rebuild
// stops there, because later events have not been forwarded or dead-lettered yet.
func (b *rebuild) planEvents(ctx context.Context, j *job) error {
	start, end, err := kafka.Bounds(ctx, b.cl, schema.TopicLikes, j.partition)
	if err != nil {
		return err
	}
	if start > 0 {
		return b.unexplained(ctx, fmt.Sprintf("%s/%d starts at offset %d: earlier events were deleted (retention), "+
			"so the state table cannot be rebuilt from it", schema.TopicLikes, j.partition, start))
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
	case progress != nil && progress.Migrating:
		return errMigrating
	case progress != nil && progress.Layouts > 0:
		return b.unexplained(ctx, fmt.Sprintf("the state table of partition %d cannot be rebuilt from %s/%d: "+
			"since `kudos topics repartition`, it also has reactions that were folded in other partitions, "+
			"and vice versa", j.partition, schema.TopicLikes, j.partition))
	case progress != nil &&
		(progress.ClusterID != b.topics.ClusterID || progress.SourceID != b.topics.ByName[schema.TopicLikes].ID):
		return fmt.Errorf("the state table of partition %d was folded from a topic %s that is not the current one, "+
			"whose events are gone; start over in empty topics (`kudos topics apply`)", j.partition, schema.TopicLikes)
	case published != nil: // !j.empty
		// Everything folded was published in the same transaction. If Kafka has torn one apart (see docs/design.md),
		// like-updates decides, because others have read it.
		j.until = published.SourceOffset
	case progress != nil:
		j.until = max(progress.NextOffset, committed) // committed is not above 0 if there is none
	case ok:
		j.until = committed
	default:
		return fmt.Errorf("the folded offset of %s/%d is unknown: the state table has no progress record, "+
			"and group %s has no committed offset; delete %s too and run `kudos topics apply`, "+
			"then the processors fold everything again",
			schema.TopicLikes, j.partition, schema.GroupFold, schema.TopicUpdates)
	}
	if j.until > end {
		return fmt.Errorf("%s/%d was folded up to offset %d, but ends at %d: events are missing",
			schema.TopicLikes, j.partition, j.until, end)
	}
	return nil
}

// unexplained returns the error for a state table that likes alone cannot explain. If a partition of it merely
// disagrees with the committed offset, the error says what to do about that.
func (b *rebuild) unexplained(ctx context.Context, why string) error {
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
			return fmt.Errorf("%s; in partition %d, %w", why, partition, disagree(other))
		}
	}
	return fmt.Errorf("%s; restore the state table from a backup, or accept the loss and start over from the events "+
		"that are left, in empty topics (`kudos topics apply`)", why)
}

// fromEvents rebuilds a partition's state table from its events, and its updates from that, in one transaction.
func (b *rebuild) fromEvents(ctx context.Context, j job, w *writer, old *audit.Table) (err error) {
	fresh, err := audit.NewTable(b.opts.Audit.TempDir, j.partition, b.log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, fresh.Close()) }()
	regions := b.regions
	if old.Progress != nil {
		regions = old.Progress.Regions
	}
	was := cmp.Or(old.Progress, &schema.Progress{Alternating: true, Voids: true}) // if lost: as in a new state table
	epoch, err := b.replay(ctx, j, fresh, regions, was)
	if err != nil {
		return err
	}
	w.progress = schema.Progress{NextOffset: j.until, LeaderEpoch: epoch, ClusterID: b.topics.ClusterID,
		Partitions: b.partitions(), UserBuckets: b.layout.UserBuckets(),
		Alternating: was.Alternating, Regions: regions, Voids: was.Voids, VoidsFrom: was.VoidsFrom,
		SourceID: b.topics.ByName[schema.TopicLikes].ID, StateID: b.topics.ByName[schema.TopicState].ID}
	if !j.empty {
		if w.progress.NextSeq, err = b.checkUpdates(ctx, j, fresh); err != nil {
			return err
		}
	}
	// Kafka aborts the transaction after this time as well, counted from its first record.
	ctx, cancel := context.WithTimeout(ctx, b.opts.TransactionTimeout)
	defer cancel()
	err = eachDifference(old, fresh, func(key, value []byte) error {
		w.state++
		return w.add(ctx, schema.TopicState, key, value)
	})
	switch {
	case err != nil:
		return err
	case j.empty:
		return w.publish(ctx, fresh)
	case w.state == 0 && b.checkSource(old.Progress, j.partition) == nil &&
		b.checkCommitted(ctx, old.Progress, j.partition) == nil && b.isSame(*old.Progress, w.progress):
		return b.say("partition %d: the state table matches %s, and %s belongs to it; left unchanged",
			j.partition, schema.TopicLikes, schema.TopicUpdates)
	}
	return w.finish(ctx)
}

// isSame reports whether the progress records are equal, except for the leader epoch.
func (b *rebuild) isSame(have, want schema.Progress) bool {
	want.UpdatesID, want.LeaderEpoch = b.topics.ByName[schema.TopicUpdates].ID, have.LeaderEpoch
	return have == want
}

// checkUpdates checks a partition of like-updates that has updates already: they stay if they end where the table does,
// with the same counts. It returns the next sequence number.
func (b *rebuild) checkUpdates(ctx context.Context, j job, fresh *audit.Table) (seq uint64, err error) {
	// The last counts of each post, stored like a state table.
	last, err := audit.NewTable(b.opts.Audit.TempDir, j.partition, b.log)
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
		have, there, err := table.ReadCounts(last.Store, post.ID)
		if err == nil && have != post.Counted && (whole || there) {
			different++
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	err = last.EachPost(nil, func(post audit.Post) error {
		there, err := fresh.Find(schema.AppendCountsKey(nil, post.ID), func([]byte) error { return nil })
		if !there && post.Stored != (schema.Counts{}) {
			different++
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	if different > 0 || source != j.until {
		return 0, fmt.Errorf("%s/%d does not match the folded events: it covers %s up to offset %d, "+
			"which was folded up to %d, and the counts of %d posts differ; "+
			"delete %s, run `kudos topics apply`, then run this again",
			schema.TopicUpdates, j.partition, schema.TopicLikes, source, j.until, different, schema.TopicUpdates)
	}
	return seq, nil
}

// readLast copies each post's last counts in like-updates into a table. whole means that the log still has its start.
func (b *rebuild) readLast(ctx context.Context, partition int32, into *audit.Table,
) (seq uint64, source int64, whole bool, err error) {
	next, end, err := kafka.Bounds(ctx, b.cl, schema.TopicUpdates, partition)
	if err != nil {
		return 0, 0, false, err
	}
	whole = next == 0
	phase := b.phase("reading the updates", partition, "offsets", end-next)
	defer phase.End()
	var u schema.Update
	err = kafka.ReadLog(ctx, b.cl, schema.TopicUpdates, partition, next, func(c kafka.LogChunk) (bool, error) {
		if c.Next == next {
			return next < c.End, nil
		}
		counts := c.Records[:0]
		for _, rec := range c.Records {
			post, err := audit.DecodeUpdate(rec, &u)
			if err != nil {
				return false, err
			}
			seq, source = u.Seq+1, u.SourceOffset
			if post != 0 {
				rec.Key, rec.Value = schema.AppendCountsKey(nil, post), schema.AppendCounts(nil, u.Counts)
				counts = append(counts, rec)
			}
		}
		phase.Add(c.Next - next)
		next = c.Next
		return next < c.End, into.Replay(counts, next-1)
	})
	return seq, source, whole, err
}

// eachDifference calls write with the changes from the old table to the fresh one: new and changed keys, and removed
// keys with a nil value. (A pair without a reaction is not removed: it is a state.)
func eachDifference(old, fresh *audit.Table, write func(key, value []byte) error) error {
	var errOld, errFresh error
	next, stop := iter.Pull2(entries(old, &errOld))
	defer stop()
	oldKey, was, more := next()
	for key, value := range entries(fresh, &errFresh) {
		for ; more && bytes.Compare(oldKey, key) < 0; oldKey, was, more = next() {
			if err := write(bytes.Clone(oldKey), nil); err != nil {
				return err
			}
		}
		if more && bytes.Equal(oldKey, key) {
			same := bytes.Equal(was, value)
			oldKey, was, more = next()
			if same {
				continue
			}
		}
		if err := write(bytes.Clone(key), bytes.Clone(value)); err != nil {
			return err
		}
	}
	for ; more; oldKey, _, more = next() {
		if err := write(bytes.Clone(oldKey), nil); err != nil {
			return err
		}
	}
	return errors.Join(errOld, errFresh)
}

// entries yields the voided users, pairs and counts of a table. If it ends early because of an error, *err has it.
func entries(t *audit.Table, err *error) iter.Seq2[[]byte, []byte] {
	return func(yield func(key, value []byte) bool) {
		*err = store.Scan(t.Store, nil, nil, func(key, value []byte) (more bool, err error) {
			_, ours := schema.ParseVoidKey(key)
			ours = ours || len(key) == schema.PairKeySize || len(key) == schema.PostKeySize
			return !ours || yield(key, value), nil
		})
	}
}

// replay folds a partition's events, up to where they were folded before, and returns the last one's leader epoch.
func (b *rebuild) replay(ctx context.Context, j job, into *audit.Table, regions schema.RegionRules,
	was *schema.Progress,
) (epoch int32, err error) {
	phase := b.phase("folding the events", j.partition, "offsets", j.until)
	defer phase.End()
	r := replay{table: into, layout: b.layout}
	r.classified.Voids, r.classified.VoidsFrom = was.Voids, was.VoidsFrom
	if r.classified.Regions, err = regions.Parse(); err != nil {
		return 0, err
	}
	epoch = -1
	if j.until == 0 {
		return epoch, nil
	}
	next := int64(0)
	err = kafka.ReadLog(ctx, b.cl, schema.TopicLikes, j.partition, 0, func(c kafka.LogChunk) (bool, error) {
		n, _ := slices.BinarySearchFunc(c.Records, j.until, func(rec *kgo.Record, offset int64) int {
			return cmp.Compare(rec.Offset, offset)
		})
		records := c.Records[:n]
		through := min(c.Next, j.until)
		if through > next {
			if err := r.fold(records, through-1); err != nil {
				return false, fmt.Errorf("%s/%d: %w", schema.TopicLikes, j.partition, err)
			}
			phase.Add(through - next)
			next = through
		}
		if n > 0 {
			epoch = records[n-1].LeaderEpoch
		}
		return c.Next < j.until, nil
	})
	return epoch, err
}

// replay folds records as latest-like-action did. It writes no forwards or dead letters, which are already in the log.
type replay struct {
	table      *audit.Table
	layout     schema.Layout
	classified classify.Classified
	engine     fold.Engine
}

// fold folds the next records of the log, which cover the offsets up to through.
func (r *replay) fold(records []*kgo.Record, through int64) error {
	r.classified.Reset()
	for _, rec := range records {
		r.classified.Add(rec, r.layout)
	}
	result, err := r.engine.Fold(r.classified.Events, &table.State{Store: r.table.Store})
	if err != nil {
		return fmt.Errorf("folding up to offset %d again: %w", through, err)
	}
	changed := make([]*kgo.Record, 0, len(result.Voids)+len(result.Pairs)+len(result.Counts))
	for _, u := range result.Voids {
		key := schema.AppendVoidKey(nil, u.UserID)
		changed = append(changed, &kgo.Record{Key: key, Value: schema.AppendVoid(nil, u.Void)})
	}
	for i := range result.Pairs {
		p := &result.Pairs[i]
		key := schema.AppendPairKey(nil, p.Key.PostID, p.Key.UserID)
		changed = append(changed, &kgo.Record{Key: key, Value: schema.AppendPair(nil, &p.Pair)})
	}
	for _, c := range result.Counts {
		key := schema.AppendCountsKey(nil, c.PostID)
		changed = append(changed, &kgo.Record{Key: key, Value: schema.AppendCounts(nil, c.Counts)})
	}
	return r.table.Replay(changed, through)
}
