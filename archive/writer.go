package archive

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/schema"
	"kudos/stream"
)

const (
	hourPrefix = "hour="
	hourFormat = "2006-01-02T15"
	// writeRows is how many rows are brought to the file at a time.
	writeRows = 4096
)

// writer writes one partition's files, one after the other. After an error of its own it is good
// for nothing: what is on disk then tells a new one where to go on.
type writer struct {
	folder    *folder
	opts      Options
	partition int32
	// finished is told of each file that is in its place.
	finished func(file string, rows, bytes int64)

	archived position  // as it is on disk
	begun    bool      // there is one
	next     int64     // the offset to read
	nextSeq  uint64    // of the update there
	since    time.Time // when next left what is archived behind
	failed   bool

	out    *output // the file in hand; nil: no row came since the last one
	hour   time.Time
	rows   []Row // of out, not brought to it yet
	update schema.Update
}

// openWriter goes on where the partition was left. If nothing is there, begin it.
func openWriter(f *folder, opts Options, partition int32) (*writer, error) {
	w := &writer{folder: f, opts: opts, partition: partition, finished: func(string, int64, int64) {}}
	var err error
	if w.archived, w.begun, err = f.load(partition); err != nil {
		return nil, err
	}
	w.next, w.nextSeq = w.archived.NextOffset, w.archived.NextSeq
	return w, nil
}

// begin has a partition that was never archived begin here. It counts with the first commit: it is
// looked for again where the log turns out to go on otherwise. But not if it is certain.
func (w *writer) begin(at position, certain bool) error {
	w.next, w.nextSeq, w.archived = at.NextOffset, at.NextSeq, at
	if !certain {
		return nil
	}
	if err := w.folder.write(positionName(w.partition), at); err != nil {
		return w.fail(err)
	}
	w.begun = true
	return nil
}

// take takes records in, which end before next. now is when they came.
func (w *writer) take(records []*kgo.Record, next int64, now time.Time) error {
	if w.next == w.archived.NextOffset {
		w.since = now
	}
	for _, rec := range records {
		if err := w.add(rec, now); err != nil {
			return err
		}
	}
	w.next = max(w.next, next)
	return w.fail(w.bring())
}

// add takes one record in.
func (w *writer) add(rec *kgo.Record, now time.Time) error {
	post, progress, err := w.decode(rec)
	if err != nil {
		return err
	}
	if !progress && !w.update.Moved && len(w.update.Deltas) > 0 { // nobody's reaction has changed if it has moved
		hour := rec.Timestamp.UTC().Truncate(time.Hour)
		if w.out != nil && (!hour.Equal(w.hour) || int(w.out.rows)+len(w.rows)+len(w.update.Deltas) > w.opts.MaxRows) {
			if err := w.commit(); err != nil {
				return err
			}
			w.since = now
		}
		if w.out == nil {
			if w.out, err = createOutput(w.folder, unfinishedName(w.partition, w.archived.NextOffset), w.opts); err != nil {
				return w.fail(err)
			}
			w.hour = hour
		}
		w.rows = appendRows(w.rows, rec, post, &w.update)
	}
	w.next, w.nextSeq = rec.Offset+1, w.update.Seq+1
	if len(w.rows) >= writeRows {
		return w.fail(w.bring())
	}
	return nil
}

// decode reads a record into w.update, if it is the one that is to come.
func (w *writer) decode(rec *kgo.Record) (post uint64, progress bool, err error) {
	if err := schema.DecodeUpdate(rec.Value, &w.update); err != nil {
		return 0, false, notUnderstood(rec, err)
	}
	if w.update.Seq != w.nextSeq {
		return 0, false, stream.Park(stream.CauseLoss, elsewhere, "%s/%d offset %d has seq %d where %d was to come: updates are missing; compaction takes them after 7 days",
			schema.TopicUpdates, w.partition, rec.Offset, w.update.Seq, w.nextSeq)
	}
	if string(rec.Key) == schema.ProgressKey {
		return 0, true, nil
	}
	if post, err = schema.ParsePostKey(rec.Key); err != nil {
		return 0, false, notUnderstood(rec, err)
	}
	return post, false, nil
}

func notUnderstood(rec *kgo.Record, err error) error {
	return stream.Park(stream.CauseRecord, "run a later version of kudos, or see who else writes there", "%s/%d offset %d: %w", schema.TopicUpdates, rec.Partition, rec.Offset, err)
}

// bring brings rows to the file in hand.
func (w *writer) bring() error {
	if len(w.rows) == 0 {
		return nil
	}
	err := w.out.write(w.rows)
	w.rows = w.rows[:0]
	return err
}

// due tells that what was read has waited for long enough.
func (w *writer) due(now time.Time) bool {
	return w.next != w.archived.NextOffset && now.Sub(w.since) >= w.opts.RotateInterval
}

// commit has all that was taken in be archived: with a file, if there are rows.
func (w *writer) commit() error { return w.fail(w.tryCommit()) }

func (w *writer) tryCommit() error {
	switch {
	case w.failed:
		return errors.New("the file in hand could not be written")
	case w.next == w.archived.NextOffset:
		return nil
	}
	to := position{NextOffset: w.next, NextSeq: w.nextSeq}
	if w.out == nil {
		if err := w.folder.write(positionName(w.partition), to); err != nil {
			return err
		}
		w.archived, w.begun = to, true
		return nil
	}
	if err := w.bring(); err != nil {
		return err
	}
	bytes, err := w.out.finish()
	if err != nil {
		return err
	}
	to.Unfinished = unfinishedName(w.partition, w.archived.NextOffset)
	to.File = filepath.Join(hourPrefix+w.hour.Format(hourFormat),
		fmt.Sprintf("p%d-%020d-%020d.parquet", w.partition, w.archived.NextOffset, w.next))
	// Its name is on disk before the position that needs it.
	if err := w.folder.sync(w.folder.dir); err != nil {
		return err
	}
	if err := w.folder.write(positionName(w.partition), to); err != nil {
		return err
	}
	if err := w.folder.settle(to); err != nil {
		return err
	}
	w.finished(to.File, w.out.rows, bytes)
	w.archived, w.begun, w.out = to, true, nil
	return nil
}

// fail notes that an error is the writer's own.
func (w *writer) fail(err error) error {
	w.failed = w.failed || err != nil
	return err
}

// discard lets go of what is not archived.
func (w *writer) discard() error {
	w.failed, w.rows = true, nil
	if w.out == nil {
		return nil
	}
	out := w.out
	w.out = nil
	return out.discard()
}
