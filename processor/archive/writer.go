package archive

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/schema"
)

// Row is a row of the files.
type Row struct {
	// Partition, Seq and Index name the row for good: Index counts the rows of one update.
	Partition int32  `parquet:"partition"`
	Seq       uint64 `parquet:"seq"`
	Index     int32  `parquet:"index"`
	// Offset in like-updates, and when it was written there.
	Offset  int64     `parquet:"offset"`
	Written time.Time `parquet:"written,timestamp(millisecond)"`

	PostID uint64 `parquet:"post_id"`
	// Region is an ISO 3166 code, ZZ if it is not known; Minute is of the likes' own time.
	Region string    `parquet:"region,dict"`
	Minute time.Time `parquet:"minute,timestamp(millisecond)"`
	// Likes and Dislikes are the net change; PostLikes and PostDislikes what the post had in
	// all after the update.
	Likes        int64 `parquet:"likes"`
	Dislikes     int64 `parquet:"dislikes"`
	PostLikes    int64 `parquet:"post_likes"`
	PostDislikes int64 `parquet:"post_dislikes"`
}

var codecs = map[string]compress.Codec{"zstd": &parquet.Zstd, "snappy": &parquet.Snappy, "none": &parquet.Uncompressed}

// nextSeqKey is the metadata in which a file keeps the seq of the update after it.
const nextSeqKey = "kudos.next_seq"

// writer writes one partition's files, one after the other.
type writer struct {
	opts      Options
	partition int32

	next    int64  // offset to read; -1: not known yet
	nextSeq uint64 // of the next update; 0: not known, any will do

	// Of the file in hand, whose rows are in memory.
	from  int64 // its first offset
	hour  time.Time
	rows  []Row
	since time.Time // when the first row came

	update schema.Update
}

// openWriter finds out from the files where to go on.
func openWriter(opts Options, partition int32) (*writer, error) {
	w := &writer{opts: opts, partition: partition, next: -1}
	files, err := list(opts.Dir, partition)
	if err != nil {
		return nil, err
	}
	for i, f := range files {
		if i > 0 && f.from != files[i-1].to {
			return nil, fmt.Errorf("%s: %s ends at offset %d, and %s begins at %d: one in between is missing, or was made anew", opts.Dir, files[i-1].path, files[i-1].to, f.path, f.from)
		}
	}
	if len(files) == 0 {
		return w, nil
	}
	last := files[len(files)-1]
	w.hour = last.hour
	w.begin(last.to)
	w.nextSeq, err = readNextSeq(last.path)
	return w, err
}

func (w *writer) begin(offset int64) { w.next, w.from = offset, offset }

// mustFlushBefore tells that a record belongs into another file than those before it. An hour
// never goes back, whatever the brokers' clocks do.
func (w *writer) mustFlushBefore(rec *kgo.Record) bool {
	return len(w.rows) >= w.opts.MaxRows || len(w.rows) > 0 && hourOf(rec).After(w.hour)
}

func hourOf(rec *kgo.Record) time.Time { return rec.Timestamp.UTC().Truncate(time.Hour) }

// add takes a record in.
func (w *writer) add(rec *kgo.Record) error {
	u := &w.update
	if err := schema.DecodeUpdate(rec.Value, u); err != nil {
		return &lostError{fmt.Errorf("like-updates/%d offset %d: %w (run a later version of kudos)", w.partition, rec.Offset, err)}
	}
	if w.nextSeq != 0 && u.Seq != w.nextSeq {
		return &lostError{fmt.Errorf("like-updates/%d offset %d has seq %d where %d was expected: updates are missing, which compaction takes away after 7 days; begin a new folder (archive.dir)", w.partition, rec.Offset, u.Seq, w.nextSeq)}
	}
	w.nextSeq, w.next = u.Seq+1, rec.Offset+1
	if string(rec.Key) == schema.ProgressKey {
		return nil
	}
	post, err := schema.ParsePostKey(rec.Key)
	if err != nil {
		return &lostError{fmt.Errorf("like-updates/%d offset %d: %w (somebody else writes there)", w.partition, rec.Offset, err)}
	}
	if len(w.rows) == 0 {
		w.since = time.Now()
		if hour := hourOf(rec); hour.After(w.hour) {
			w.hour = hour
		}
	}
	for i, d := range u.Deltas {
		w.rows = append(w.rows, Row{
			Partition: w.partition, Seq: u.Seq, Index: int32(i), Offset: rec.Offset, Written: rec.Timestamp.UTC(),
			PostID: post, Region: d.Region.String(), Minute: time.Unix(60*d.Minute, 0).UTC(),
			Likes: d.Likes, Dislikes: d.Dislikes, PostLikes: u.Counts.Likes, PostDislikes: u.Counts.Dislikes,
		})
	}
	return nil
}

// due tells that rows have waited for long enough.
func (w *writer) due(now time.Time) bool {
	return len(w.rows) > 0 && now.Sub(w.since) >= w.opts.FlushInterval
}

// flush makes a file of what is in hand, and returns how many rows it has.
func (w *writer) flush() (int, error) {
	if len(w.rows) == 0 {
		return 0, nil
	}
	dir := filepath.Join(w.opts.Dir, hourPrefix+w.hour.Format(hourFormat))
	if err := makeDir(dir); err != nil {
		return 0, err
	}
	name := fmt.Sprintf("p%d-%020d-%020d.parquet", w.partition, w.from, w.next)
	if err := w.writeFile(filepath.Join(dir, tmpPrefix+name), filepath.Join(dir, name)); err != nil {
		return 0, fmt.Errorf("writing %s: %w", filepath.Join(dir, name), err)
	}
	rows := len(w.rows)
	w.rows, w.from = w.rows[:0], w.next
	return rows, nil
}

// writeFile has the file under its name only when it is whole and on disk.
func (w *writer) writeFile(tmp, path string) (err error) {
	f, err := os.Create(tmp)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(tmp))
		}
	}()
	p := parquet.NewGenericWriter[Row](f, parquet.Compression(codecs[w.opts.Compression]),
		parquet.KeyValueMetadata(nextSeqKey, strconv.FormatUint(w.nextSeq, 10)))
	_, err = p.Write(w.rows)
	if err = errors.Join(err, p.Close()); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(tmp, path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// file is one that is there.
type file struct {
	path     string
	hour     time.Time
	from, to int64
}

const (
	hourPrefix = "hour="
	hourFormat = "2006-01-02T15"
	tmpPrefix  = ".unfinished-"
)

var fileName = regexp.MustCompile(`^p(\d+)-(\d{20})-(\d{20})\.parquet$`)

// list returns a partition's files in order, and takes away what a crash left unfinished.
func list(dir string, partition int32) ([]file, error) {
	paths, err := filepath.Glob(filepath.Join(dir, hourPrefix+"*", "*"))
	if err != nil {
		return nil, err
	}
	unfinished, err := filepath.Glob(filepath.Join(dir, hourPrefix+"*", tmpPrefix+fmt.Sprintf("p%d-*", partition)))
	if err != nil {
		return nil, err
	}
	for _, path := range unfinished {
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	var files []file
	for _, path := range paths {
		m := fileName.FindStringSubmatch(filepath.Base(path))
		if m == nil || m[1] != strconv.Itoa(int(partition)) {
			continue
		}
		hour, err := time.Parse(hourFormat, filepath.Base(filepath.Dir(path))[len(hourPrefix):])
		if err != nil {
			return nil, fmt.Errorf("%s is in a folder of no hour: %w", path, err)
		}
		f := file{path: path, hour: hour}
		f.from, _ = strconv.ParseInt(m[2], 10, 64) // digits: at most too many, which the next line finds
		f.to, _ = strconv.ParseInt(m[3], 10, 64)
		if f.to <= f.from {
			return nil, fmt.Errorf("%s: its name says offsets %d to %d", path, f.from, f.to)
		}
		files = append(files, f)
	}
	slices.SortFunc(files, func(a, b file) int { return int(a.from - b.from) })
	return files, nil
}

func readNextSeq(path string) (uint64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	p, err := parquet.OpenFile(f, info.Size())
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	text, _ := p.Lookup(nextSeqKey)
	seq, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s was not written by kudos archive: its %s is %q", path, nextSeqKey, text)
	}
	return seq, nil
}
