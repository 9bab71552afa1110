package rebuild

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"kudos/ops/audit"
	"kudos/processor/fold/table"
	"kudos/schema"
	"kudos/stream/kafka"
)

// do does a partition's job.
func (b *Rebuild) do(ctx context.Context, j job) (err error) {
	// Before anything is read: nobody else writes from here on.
	t, err := begin(ctx, b.kafka, j.partition, b.opts.TransactionTimeout, b.log)
	if err != nil {
		return err
	}
	defer t.close()
	dir, err := os.MkdirTemp(b.opts.Audit.TempDir, "kudos-rebuild-")
	if err != nil {
		return fmt.Errorf("folder for temporary files: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	table, err := b.readTable(ctx, dir, j.partition)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, table.Close()) }()
	w := &writer{b: b, t: t, partition: j.partition, progress: table.Progress}
	if j.events {
		return b.fromEvents(ctx, j, w, table, dir)
	}
	if err := b.checkProgress(table, j.partition); err != nil {
		return err
	}
	if !j.empty {
		if err := b.checkCommitted(ctx, &table.Progress, j.partition); err != nil {
			return err
		}
		return b.leave(ctx, table, j.partition)
	}
	// Kafka gives the transaction up at that time, too; it begins with the first record.
	ctx, cancel := context.WithTimeout(ctx, b.opts.TransactionTimeout)
	defer cancel()
	return w.publish(ctx, table, true)
}

// readTable copies a partition of the state table as it stands.
func (b *Rebuild) readTable(ctx context.Context, dir string, partition int32) (*audit.Table, error) {
	start, end, err := kafka.Bounds(ctx, b.cl, schema.TopicState, partition)
	if err != nil {
		return nil, err
	}
	table, err := b.newTable(dir, partition)
	if err != nil {
		return nil, err
	}
	phase := b.opts.Audit.Progress.Begin(fmt.Sprintf("reading the state table of partition %d", partition), "offsets", end-start)
	defer phase.End()
	if err := table.Read(ctx, b.cl, 0, phase.Add); err != nil {
		return nil, errors.Join(err, table.Close())
	}
	return table, nil
}

func (b *Rebuild) newTable(dir string, partition int32) (*audit.Table, error) {
	id := kafka.LogID{ClusterID: b.topics.ClusterID, TopicID: b.topics.ByName[schema.TopicState].ID}
	return audit.NewTable(dir, partition, id, b.log)
}

// errMoving: what is on its way must arrive before anything is made of the state table.
var errMoving = errors.New("a repartition has not ended; finish it first: " + table.ActionRepartition)

// checkProgress refuses a state table that is not of this cluster and these topics,
// but for like-updates, and one that was lost in part.
func (b *Rebuild) checkProgress(table *audit.Table, partition int32) error {
	p := table.Progress
	switch {
	case !table.HasProgress:
		return fmt.Errorf("partition %d of the state table has no progress record: it was lost; `kudos rebuild --from-events` makes it anew if likes still has its start", partition)
	case p.ClusterID != b.topics.ClusterID:
		return fmt.Errorf("the state table of partition %d is of cluster %s, this is cluster %s", partition, p.ClusterID, b.topics.ClusterID)
	case p.Moving:
		return errMoving
	case p.Partitions != b.partitions():
		return fmt.Errorf("the state table of partition %d was made for %d partitions, there are %d", partition, p.Partitions, b.partitions())
	case p.StateID != b.topics.ByName[schema.TopicState].ID, p.SourceID != b.topics.ByName[schema.TopicLikes].ID:
		return fmt.Errorf("likes or the state table was deleted and created again since partition %d was folded; restore them, or start over in empty topics (`kudos topics apply`)", partition)
	}
	return nil
}

// checkCommitted refuses a state table that the group's offset is not beside.
func (b *Rebuild) checkCommitted(ctx context.Context, p *schema.Progress, partition int32) error {
	other, err := table.FindDisagreement(ctx, b.cl, b.topics, partition, p)
	if err == nil && other != nil {
		err = disagree(other)
	}
	return err
}

func disagree(d *table.Disagreement) error {
	return fmt.Errorf("%s; what helps: %s", d.Why, d.Remedy)
}

// leave is for a partition of like-updates that has updates: they must be those of the
// state table, as after an earlier run.
func (b *Rebuild) leave(ctx context.Context, table *audit.Table, partition int32) error {
	if table.Progress.UpdatesID != b.topics.ByName[schema.TopicUpdates].ID {
		return fmt.Errorf("%s/%d has updates that are not of this state table; delete the topic, run `kudos topics apply`, and then this again", schema.TopicUpdates, partition)
	}
	if _, err := audit.Locate(ctx, b.cl, partition, table.Progress.NextSeq); err != nil {
		return fmt.Errorf("%w (first delete the topic and run `kudos topics apply`)", err)
	}
	return b.say("partition %d: %s is that of the state table; left as it is", partition, schema.TopicUpdates)
}

// writer writes a partition of like-updates from its state table.
type writer struct {
	b         *Rebuild
	t         *transaction
	partition int32
	progress  schema.Progress

	updates, state int64
	cells          map[deltaKey]schema.Counts
}

type deltaKey struct {
	minute int64
	region schema.Region
}

// publish makes the updates that lead to the table, from seq 0 on, and the progress
// record that belongs to them, and commits. mend: a post's record of its counts that
// is not what its pairs come to is set right with them.
func (w *writer) publish(ctx context.Context, table *audit.Table, mend bool) error {
	phase := w.b.opts.Audit.Progress.Begin(fmt.Sprintf("writing the updates of partition %d", w.partition), "updates", 0)
	defer phase.End()
	w.progress.NextSeq = 0
	w.cells = map[deltaKey]schema.Counts{}
	mended := 0
	err := table.EachPost(
		func(_ uint64, p *schema.Pair) error {
			key := deltaKey{schema.MinuteOf(p.SinceMs), p.Region}
			one, sum := audit.One(p.Reaction), w.cells[key]
			w.cells[key] = schema.Counts{Likes: sum.Likes + one.Likes, Dislikes: sum.Dislikes + one.Dislikes}
			return nil
		},
		func(post audit.Post) error {
			before := w.updates
			defer func() { phase.Add(w.updates - before) }()
			if mend && post.Stored != post.Counted {
				mended++
				w.state++
				if err := w.t.add(ctx, schema.TopicState, schema.AppendCountsKey(nil, post.ID), schema.AppendCounts(nil, post.Counted)); err != nil {
					return err
				}
			}
			return w.post(ctx, post)
		})
	if err != nil {
		return err
	}
	if err := w.update(ctx, []byte(schema.ProgressKey), schema.ProgressUpdate(w.progress.Layouts, false)); err != nil {
		return err
	}
	if err := w.finish(ctx); err != nil {
		return err
	}
	if mended > 0 {
		if err := w.b.say("partition %d: the state table's counts of %d posts were not those of their pairs; set right", w.partition, mended); err != nil {
			return err
		}
	}
	return nil
}

// post writes the updates of one post: each carries the counts, and together they
// carry where these come from.
func (w *writer) post(ctx context.Context, post audit.Post) error {
	deltas := make([]schema.Delta, 0, len(w.cells))
	for key, n := range w.cells {
		deltas = append(deltas, schema.Delta{Region: key.region, Minute: key.minute, Likes: n.Likes, Dislikes: n.Dislikes})
	}
	clear(w.cells)
	slices.SortFunc(deltas, func(a, b schema.Delta) int { // as the fold does
		return cmp.Or(cmp.Compare(a.Minute, b.Minute), slices.Compare(a.Region[:], b.Region[:]))
	})
	key := schema.AppendPostKey(nil, post.ID)
	for part := range slices.Chunk(deltas, schema.MaxDeltas) {
		if err := w.update(ctx, key, schema.Update{Counts: post.Counted, Deltas: part, Buckets: w.b.layout.Buckets(post.ID)}); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) update(ctx context.Context, key []byte, u schema.Update) error {
	u.Seq, u.SourceOffset = w.progress.NextSeq, w.progress.NextOffset
	w.progress.NextSeq++
	w.updates++
	return w.t.add(ctx, schema.TopicUpdates, key, schema.AppendUpdate(nil, &u))
}

// finish ends the transaction as each of the fold ends: with the progress record, and
// the group's offset beside it.
func (w *writer) finish(ctx context.Context) error {
	w.progress.UpdatesID = w.b.topics.ByName[schema.TopicUpdates].ID
	return w.end(ctx)
}

// end is finish for a table that stays with the like-updates it belongs to.
func (w *writer) end(ctx context.Context) error {
	w.state++
	if err := w.t.add(ctx, schema.TopicState, []byte(schema.StateProgressKey), schema.AppendProgress(nil, &w.progress)); err != nil {
		return err
	}
	if err := w.t.flush(ctx); err != nil {
		return err
	}
	next := kafka.Position{Offset: w.progress.NextOffset, Epoch: w.progress.LeaderEpoch}
	if err := w.t.addOffset(ctx, w.b.topics.ByName[schema.TopicLikes], next); err != nil {
		return err
	}
	if err := w.t.commit(ctx); err != nil {
		return err
	}
	if err := w.t.visible(ctx); err != nil {
		return err
	}
	w.b.result.Updates += w.updates
	w.b.result.State += w.state
	return w.b.say("partition %d: %d updates and %d state records written", w.partition, w.updates, w.state)
}
