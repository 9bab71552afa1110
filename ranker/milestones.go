package ranker

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/schema"
	"kudos/stream"
	"kudos/stream/kafka"
)

// This file finds posts that reach a number of likes, each once.
//
//	like-updates ─► trending-local: crossed ─► milestones-local ─► milestones: the first time ─► milestones
//
// A count crosses a threshold as often as it falls below it again, and after a reset all updates are read again. So the
// group milestones remembers which ones each post has reached. It is apart from like-updates because posts move to
// other partitions there, and those with user buckets are in several.

// crossing is a record of milestones-local, with the post id as its key: the likes of a post in one partition before
// and after an update.
type crossing struct {
	source        int64 // partition of like-updates
	offset        int64
	timeMs        int64 // of the update
	before, after int64
	// shared: the post is in several partitions, whose likes add up. Then there is one for each update.
	shared bool
	moved  bool // reactions moved between partitions: nobody liked anything
}

func (r *crossing) fields(c *codec) {
	signed(c, &r.source, &r.offset, &r.timeMs, &r.before, &r.after)
	c.flag(&r.shared)
	c.flag(&r.moved)
}

// reached returns the thresholds above before, up to after, in ascending order.
func reached(thresholds []int64, before, after int64) []int64 {
	from, _ := slices.BinarySearch(thresholds, before+1)
	to, _ := slices.BinarySearch(thresholds, after+1)
	return thresholds[from:max(from, to)]
}

// cross reports an update to the group milestones if a post may have reached a milestone. was: the post was in several
// partitions before.
func (w *local) cross(post uint64, u *schema.Update, rec *kgo.Record, was bool) {
	if len(w.opts.Milestones) == 0 {
		return
	}
	r := crossing{source: int64(rec.Partition), offset: rec.Offset, timeMs: rec.Timestamp.UnixMilli(),
		before: u.Counts.Likes, after: u.Counts.Likes, shared: u.Buckets > 1, moved: u.Moved}
	for _, d := range u.Deltas {
		r.before -= d.Likes
	}
	if !r.shared && !was && (r.moved || len(reached(w.opts.Milestones, r.before, r.after)) == 0) {
		return
	}
	key := schema.AppendPostKey(nil, post)
	w.tx.output = append(w.tx.output, &kgo.Record{Topic: schema.TopicMilestonesLocal,
		Partition: schema.KeyPartition(key, w.milestones), Key: key, Value: encode(r.fields)})
}

// milestones is the worker of the group milestones for one partition.
type milestones struct {
	table
	values  map[string]int64 // of rows read or changed by the batch; 0: no row
	changed map[string]bool
}

// Kinds of rows in milestones-table, and the rest of the key:
const (
	rowReached = "r" // post, threshold: it was published
	rowPart    = "p" // post, partition of like-updates: the likes there, if the post is in several
)

// Open catches up the state.
func (w *milestones) Open(ctx context.Context) (kafka.Position, error) {
	return w.open(ctx, func() error { return nil }, func(context.Context) error { return nil })
}

// Process publishes the milestones of a batch, with the state and the position.
func (w *milestones) Process(ctx context.Context, b *stream.Batch) error {
	if len(b.Records) == 0 {
		return nil
	}
	w.values, w.changed = map[string]int64{}, map[string]bool{}
	for _, rec := range b.Records {
		if err := w.take(rec); err != nil {
			return err
		}
	}
	for _, key := range slices.Sorted(maps.Keys(w.changed)) {
		var value []byte // a tombstone
		if n := w.values[key]; n != 0 {
			value = encode(func(c *codec) { signed(c, &n) })
		}
		w.set([]byte(key), value)
	}
	published := len(w.tx.output)
	if err := w.commit(ctx, b.Next); err != nil {
		return fmt.Errorf("%s/%d up to offset %d: %w", w.input, w.partition, b.Next.Offset, err)
	}
	w.metrics.milestones.Add(float64(published))
	return nil
}

func (w *milestones) take(rec *kgo.Record) error {
	post, err := schema.ParsePostKey(rec.Key)
	if err != nil {
		return w.parkAt(rec, "find out who else writes to "+w.input, err)
	}
	var r crossing
	if err := decode(rec.Value, r.fields); err != nil {
		return w.parkAt(rec, actionUpgrade, err)
	}
	before, after, err := w.total(post, &r)
	if err != nil || r.moved {
		return err
	}
	for _, threshold := range reached(w.opts.Milestones, before, after) {
		row := binary.BigEndian.AppendUint64([]byte(rowReached), post)
		row = binary.BigEndian.AppendUint64(row, uint64(threshold))
		published, err := w.get(string(row))
		if err != nil {
			return err
		}
		if published != 0 {
			continue
		}
		w.put(string(row), 1)
		m := schema.Milestone{Version: schema.MilestoneVersion, PostID: post, Threshold: threshold, Likes: after,
			Time: time.UnixMilli(r.timeMs).UTC(), Partition: int32(r.source), Offset: r.offset}
		w.emit(w.partition, rec.Key, schema.EncodeMilestone(&m))
	}
	return nil
}

// total returns the likes of a post in all partitions, before and after an update, and remembers those in its partition
// if the post is in several.
func (w *milestones) total(post uint64, r *crossing) (before, after int64, err error) {
	prefix := binary.BigEndian.AppendUint64([]byte(rowPart), post)
	own := string(binary.BigEndian.AppendUint32(prefix, uint32(r.source)))
	parts := map[string]bool{own: true}
	if err := w.scan(prefix, nil, func(key, _ []byte) error { parts[string(key)] = true; return nil }); err != nil {
		return 0, 0, err
	}
	for key := range w.values {
		parts[key] = parts[key] || len(key) == len(own) && key[:len(prefix)] == string(prefix)
	}
	var others int64
	for key, is := range parts {
		if key == own || !is {
			continue
		}
		n, err := w.get(key)
		if err != nil {
			return 0, 0, err
		}
		others += n
	}
	kept := r.after
	if !r.shared {
		kept = 0
	}
	if had, err := w.get(own); err != nil || had != kept {
		w.put(own, kept)
		return others + r.before, others + r.after, err
	}
	return others + r.before, others + r.after, nil
}

// get returns the value of a row, with the changes of this batch.
func (w *milestones) get(key string) (n int64, err error) {
	if n, ok := w.values[key]; ok {
		return n, nil
	}
	_, err = w.store.Find([]byte(key), func(value []byte) error {
		return w.readable(decode(value, func(c *codec) { signed(c, &n) }))
	})
	w.values[key] = n
	return n, err
}

func (w *milestones) put(key string, n int64) { w.values[key], w.changed[key] = n, true }
