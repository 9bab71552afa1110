package archive

import (
	"errors"
	"fmt"
	"os"
	"path"
	"time"

	"github.com/parquet-go/parquet-go"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/schema"
	"kudos/stream"
)

const (
	HourPrefix = "hour=" // of the directories of files with rows
	hourFormat = "2006-01-02T15"
	writeRows  = 4096 // how many rows are buffered before they are written to the file
)

// writer writes a partition's files. After a failed write it is unusable; a new one resumes from the position on disk.
type writer struct {
	contents  *contents
	opts      Options
	partition int32
	finished  func(file string, rows, bytes int64) // called with each file that is in its place

	archived position  // the position on disk
	begun    bool      // archived exists
	next     int64     // offset to read
	nextSeq  uint64    // of the update at next
	since    time.Time // when next moved past archived
	failed   bool

	out    *output // the open file; nil: no row since the last one
	hour   time.Time
	rows   []Row // of out, not written yet
	update schema.Update
}

// openWriter resumes from the partition's position on disk. If there is none, the caller must call begin.
func openWriter(f *contents, opts Options, partition int32) (*writer, error) {
	at, begun, err := f.load(partition)
	if err != nil {
		return nil, err
	}
	f.table.Add(at.NotInTable)
	return &writer{contents: f, opts: opts, partition: partition, finished: func(string, int64, int64) {},
		archived: at, begun: begun, next: at.NextOffset, nextSeq: at.NextSeq}, nil
}

// begin sets where a partition that was never archived begins. If that is certain, begin writes it at once. Otherwise
// the first commit does: if the log turns out to have a gap before that, the search is repeated.
func (w *writer) begin(at position, certain bool) error {
	w.next, w.nextSeq, w.archived = at.NextOffset, at.NextSeq, at
	if !certain {
		return nil
	}
	if err := w.contents.write(positionName(w.partition), at); err != nil {
		return w.fail(err)
	}
	w.begun = true
	return nil
}

// take adds records that arrived at now; next is the offset after them.
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
	return w.fail(w.flush())
}

func (w *writer) add(rec *kgo.Record, now time.Time) error {
	if err := schema.DecodeUpdate(rec.Value, &w.update); err != nil {
		return notUnderstood(rec, err)
	}
	if w.update.Seq != w.nextSeq {
		return stream.Park(stream.CauseLoss, elsewhere,
			"%s/%d offset %d has seq %d where %d was expected: updates are missing; compaction starts after 7 days",
			schema.TopicUpdates, w.partition, rec.Offset, w.update.Seq, w.nextSeq)
	}
	if string(rec.Key) != schema.ProgressKey {
		post, err := schema.ParsePostKey(rec.Key)
		if err != nil {
			return notUnderstood(rec, err)
		}
		if n := len(w.update.Deltas); n > 0 && !w.update.Moved { // a move between partitions changes no reaction
			if err := w.open(rec.Timestamp.UTC().Truncate(time.Hour), n, now); err != nil {
				return err
			}
			w.rows = appendRows(w.rows, rec, post, &w.update)
		}
	}
	w.next, w.nextSeq = rec.Offset+1, w.update.Seq+1
	if len(w.rows) >= writeRows {
		return w.fail(w.flush())
	}
	return nil
}

// open ensures that a file for this hour is open and has capacity for n more rows.
func (w *writer) open(hour time.Time, n int, now time.Time) (err error) {
	if w.out != nil && (!hour.Equal(w.hour) || int(w.out.rows)+len(w.rows)+n > w.opts.MaxRows) {
		if err := w.commit(); err != nil {
			return err
		}
		w.since = now
	}
	if w.out == nil {
		w.hour = hour
		w.out, err = createOutput(w.contents, unfinishedName(w.partition, w.archived.NextOffset), w.opts)
	}
	return w.fail(err)
}

func notUnderstood(rec *kgo.Record, err error) error {
	return stream.Park(stream.CauseRecord, "run a later version of kudos, or find out who else writes there",
		"%s/%d offset %d: %w", schema.TopicUpdates, rec.Partition, rec.Offset, err)
}

func (w *writer) flush() error {
	if len(w.rows) == 0 {
		return nil
	}
	n, err := w.out.parquet.Write(w.rows)
	if err != nil {
		return fmt.Errorf("archive.dir: writing %s: %w", w.out.name, err)
	}
	w.out.rows += int64(n)
	w.rows = w.rows[:0]
	return nil
}

func (w *writer) due(now time.Time) bool {
	return w.next != w.archived.NextOffset && now.Sub(w.since) >= w.opts.RotateInterval
}

// commit archives everything taken so far: it finishes the open file, if there is one, and advances the position.
func (w *writer) commit() error { return w.fail(w.tryCommit()) }

func (w *writer) tryCommit() error {
	switch {
	case w.failed:
		return errors.New("the open file could not be written")
	case w.next == w.archived.NextOffset:
		return nil
	}
	table := w.contents.table
	to := position{NextOffset: w.next, NextSeq: w.nextSeq, NotInTable: table.Left(w.archived.NotInTable)}
	if w.out != nil {
		if err := w.flush(); err != nil {
			return err
		}
		if err := w.out.finish(); err != nil {
			return err
		}
		to.Unfinished = w.out.name
		to.File = path.Join(HourPrefix+w.hour.Format(hourFormat),
			fmt.Sprintf("p%d-%020d-%020d.parquet", w.partition, w.archived.NextOffset, w.next))
		to.NotInTable = append(to.NotInTable, table.Left([]string{to.File})...)
	}
	if err := w.contents.write(positionName(w.partition), to); err != nil {
		return err
	}
	if err := w.contents.settle(to); err != nil {
		return err
	}
	if w.out != nil {
		w.finished(to.File, w.out.rows, w.out.bytes)
		table.Add([]string{to.File})
	}
	w.archived, w.begun, w.out = to, true, nil
	return nil
}

func (w *writer) fail(err error) error {
	w.failed = w.failed || err != nil
	return err
}

// discard drops what is not archived, and closes the open file.
func (w *writer) discard() error {
	out := w.out
	w.failed, w.rows, w.out = true, nil, nil
	if out == nil {
		return nil
	}
	// The file may already be finished: whether it counts is decided by the position on disk.
	if err := out.file.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return fmt.Errorf("archive.dir: closing %s: %w", out.name, err)
	}
	return nil
}

// output is an open file. It keeps at most one row group in memory.
type output struct {
	name    string
	file    File
	parquet RowWriter

	rows, bytes int64 // bytes is set by finish
}

func createOutput(f *contents, name string, opts Options) (*output, error) {
	file, name, err := f.Create(name)
	if err != nil {
		return nil, err
	}
	return &output{name: name, file: file, parquet: f.table.NewWriter(file,
		parquet.Compression(codecs[opts.Compression]), parquet.MaxRowsPerRowGroup(int64(opts.RowGroupRows)))}, nil
}

func (o *output) finish() (err error) {
	if err = o.parquet.Close(); err == nil {
		o.bytes, err = o.file.Finish()
	}
	if err != nil {
		return fmt.Errorf("archive.dir: finishing %s: %w", o.name, err)
	}
	return nil
}

// Row is one row of the files: what one update changed in its post, in one region and minute.
type Row struct {
	// Partition, Seq and Index identify the row permanently. Index numbers the rows of one update.
	Partition int32  `parquet:"partition"`
	Seq       uint64 `parquet:"seq,delta"`
	Index     int32  `parquet:"index"`
	// Offset is that of the update in like-updates, and Written the record's timestamp.
	Offset  int64     `parquet:"offset,delta"`
	Written time.Time `parquet:"written,timestamp(millisecond)"`

	PostID uint64 `parquet:"post_id"`
	// Region is an ISO 3166 code, or ZZ if unknown. Minute is event time.
	Region string    `parquet:"region,dict"`
	Minute time.Time `parquet:"minute,timestamp(millisecond)"`
	// Likes and Dislikes are the net change; PostLikes and PostDislikes the post's counts after the update.
	Likes        int64 `parquet:"likes"`
	Dislikes     int64 `parquet:"dislikes"`
	PostLikes    int64 `parquet:"post_likes"`
	PostDislikes int64 `parquet:"post_dislikes"`
}

func appendRows(rows []Row, rec *kgo.Record, post uint64, u *schema.Update) []Row {
	for i, d := range u.Deltas {
		rows = append(rows, Row{Partition: rec.Partition, Seq: u.Seq, Index: int32(i), Offset: rec.Offset, PostID: post,
			Written: rec.Timestamp.UTC(), Region: d.Region.String(), Minute: time.Unix(60*d.Minute, 0).UTC(),
			Likes: d.Likes, Dislikes: d.Dislikes, PostLikes: u.Counts.Likes, PostDislikes: u.Counts.Dislikes})
	}
	return rows
}
