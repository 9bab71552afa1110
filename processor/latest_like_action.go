package processor

import (
	"context"

	"kudos/processor/fold"
	"kudos/processor/fold/classify"
	"kudos/processor/fold/table"
	"kudos/schema"
	"kudos/stream"
	"kudos/stream/kafka"
	"kudos/stream/store"
)

// foldWorker is the worker of latest-like-action for one partition.
type foldWorker struct {
	*Workers
	*kafka.Txn
	partition int32
	store     *store.Store

	progress   schema.Progress
	layout     schema.Layout          // of progress
	regions    schema.Regions         // of progress
	classified [2]classify.Classified // of the chunk that is folded and of the next one
	fold       fold.Engine

	uncounted []logPart // has the posts that like-counts may lack; none: it is complete
}

// Open catches up the state table, which only this worker can extend now, and takes the position from its progress.
func (w *foldWorker) Open(ctx context.Context) (kafka.Position, error) {
	if _, err := w.store.CatchUp(ctx, w.Client(), store.Hooks{}); err != nil {
		return kafka.Position{}, err
	}
	progress, ok, err := table.ReadProgress(w.store)
	if err != nil {
		return kafka.Position{}, err
	}
	if !ok {
		return kafka.Position{}, stream.Park(stream.CauseState, table.ActionApply, table.NoProgress, w.partition)
	}
	if err := w.verify(ctx, &progress); err != nil {
		return kafka.Position{}, w.ifStillOwned(ctx, err)
	}
	if err := w.openCounts(ctx, &progress); err != nil {
		return kafka.Position{}, err
	}
	voided, err := table.ReadVoided(w.store)
	if err != nil {
		return kafka.Position{}, err
	}
	w.fold.SetVoided(voided)
	if n := w.opts.TransactionalIDs; n > 0 {
		progress.Alternating = n > 1 // written by the first transaction
	}
	w.Alternate(progress.Alternating)
	w.progress, w.layout, w.regions = progress, progress.Layout(), progress.ParsedRegions()
	return kafka.Position{Offset: progress.NextOffset, Epoch: progress.LeaderEpoch}, nil
}

// ifStillOwned returns err if this process still owns the partition. If another took it since Fence (ErrFenced), or
// that is unknown, it returns that instead: the new owner may have changed what was read, so err may be wrong.
func (w *foldWorker) ifStillOwned(ctx context.Context, err error) error {
	if taken := w.CheckMember(ctx); taken != nil {
		return taken
	}
	return err
}

// verify compares the progress record with the cluster. A retry cannot fix a mismatch.
func (w *foldWorker) verify(ctx context.Context, p *schema.Progress) error {
	cl := w.Client()
	topics, err := kafka.LookUpTopics(ctx, cl, schema.TopicLikes, schema.TopicState, schema.TopicUpdates,
		schema.TopicCounts, schema.TopicDLT)
	if err != nil {
		return err
	}
	if p.ClusterID != topics.ClusterID {
		return stream.Park(stream.CauseTopics, table.ActionRestore,
			"the state table belongs to cluster %s, but this is cluster %s", p.ClusterID, topics.ClusterID)
	}
	if p.Migrating {
		return table.ParkMigrating(p)
	}
	for _, t := range []struct {
		name   string
		id     schema.TopicID
		action string
	}{
		{schema.TopicLikes, p.SourceID, table.ActionAcceptLoss},
		{schema.TopicState, p.StateID, table.ActionRestore},
		{schema.TopicUpdates, p.UpdatesID, table.ActionUpdatesLost},
		{schema.TopicCounts, topics.ByName[schema.TopicCounts].ID, ""}, // a new one is completed
	} {
		have := topics.ByName[t.name]
		if t.id != have.ID {
			return stream.Park(stream.CauseTopics, t.action,
				"topic %s was deleted and recreated since partition %d was folded", t.name, w.partition)
		}
		if p.Partitions != have.Partitions {
			return table.ParkPartitions(t.name, have.Partitions, p.Partitions)
		}
	}
	w.Outputs(topics)
	start, end, err := kafka.Bounds(ctx, cl, schema.TopicLikes, w.partition)
	if err != nil {
		return err
	}
	other, err := table.FindDisagreement(ctx, cl, topics, w.partition, p)
	switch {
	case err != nil:
		return err
	case other != nil && !other.OffsetOnly:
		return stream.Park(stream.CauseState, other.Action, "%s", other.Why)
	case p.NextOffset < start || p.NextOffset > end: // this action sets the offset, too
		return stream.Park(stream.CauseLoss, table.ActionAcceptLoss,
			"offset %d is next, but likes/%d holds %d to %d", p.NextOffset, w.partition, start, end)
	case other != nil:
		return stream.Park(stream.CauseState, other.Action, "%s", other.Why)
	}
	return nil
}

// Leave closes the local state store.
func (w *foldWorker) Leave() { store.Leave(w.store) }
