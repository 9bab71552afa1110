package archive

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/schema"
	"kudos/stream"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// update returns a record of partition 3 with one delta for each of likes.
func update(offset int64, seq uint64, at time.Time, likes ...int64) *kgo.Record {
	u := schema.Update{Seq: seq}
	for i, n := range likes {
		u.Deltas = append(u.Deltas, schema.Delta{Region: schema.Region{'D', 'E'}, Minute: int64(i), Likes: n})
		u.Counts.Likes += n
	}
	key, value := schema.AppendPostKey(nil, 7), schema.AppendUpdate(nil, &u)
	return &kgo.Record{Partition: 3, Key: key, Value: value, Offset: offset, Timestamp: at}
}

// progress returns the record that ends a transaction.
func progress(offset int64, seq uint64, at time.Time) *kgo.Record {
	rec := update(offset, seq, at)
	rec.Key = []byte(schema.ProgressKey)
	return rec
}

func testOptions(t *testing.T) Options {
	o := DefaultOptions()
	o.Dir = filepath.Join(t.TempDir(), "with [brackets]")
	return o
}

func testDirectory(t *testing.T, o Options) *contents {
	d, err := openDirectory(o.Dir)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return &contents{Store: d, table: noTable{}}
}

func diskOf(f *contents) *directory { return f.Store.(*directory) }

func testWriter(t *testing.T, f *contents, o Options) *writer {
	w, err := openWriter(f, o, 3)
	require.NoError(t, err)
	return w
}

func newWriter(t *testing.T, begin position, change ...func(*Options)) *writer {
	o := testOptions(t)
	for _, f := range change {
		f(&o)
	}
	w := testWriter(t, testDirectory(t, o), o)
	require.False(t, w.begun)
	require.NoError(t, w.begin(begin, false))
	return w
}

func (w *writer) mustTake(t *testing.T, records ...*kgo.Record) {
	require.NoError(t, w.take(records, records[len(records)-1].Offset+1, noon))
}

// files returns the paths of all visible files, relative to the directory.
func files(t *testing.T, o Options) []string {
	var found []string
	require.NoError(t, filepath.WalkDir(o.Dir, func(path string, d os.DirEntry, err error) error {
		if errors.Is(err, os.ErrNotExist) {
			return nil // the directory does not exist yet, or a file was just moved
		}
		if err == nil && !d.IsDir() && !strings.HasPrefix(d.Name(), "_") {
			path, err = filepath.Rel(o.Dir, path)
			found = append(found, path)
		}
		return err
	}))
	return found
}

// rowsOf returns the rows of all visible files, by seq and index.
func rowsOf(t *testing.T, o Options) []Row {
	var rows []Row
	for _, path := range files(t, o) {
		some, err := parquet.ReadFile[Row](filepath.Join(o.Dir, path))
		require.NoError(t, err, path)
		for _, r := range some {
			hour := HourPrefix + r.Written.UTC().Format(hourFormat)
			require.Equal(t, hour, filepath.Dir(path), "a row is in the directory of its hour")
		}
		rows = append(rows, some...)
	}
	slices.SortFunc(rows, func(a, b Row) int { return int(a.Seq-b.Seq)*2000 + int(a.Index-b.Index) })
	return rows
}

// TestFileAndItsSuccessor checks a file's content and name, and that the next one begins after it.
func TestFileAndItsSuccessor(t *testing.T) {
	w := newWriter(t, position{NextOffset: 10, NextSeq: 5})
	require.NoError(t, w.take([]*kgo.Record{update(11, 5, noon, 1, -1), progress(12, 6, noon)}, 14, noon))
	require.Empty(t, files(t, w.opts), "an unfinished file is not visible")
	require.NoError(t, w.commit())
	require.NoError(t, w.discard())
	file := "hour=2026-11-21T12/p3-00000000000000000010-00000000000000000014.parquet"
	require.Equal(t, []string{file}, files(t, w.opts))
	row := Row{Partition: 3, Seq: 5, Offset: 11, Written: noon, PostID: 7, Region: "DE", Likes: 1}
	row.Minute = time.Unix(0, 0).UTC()
	want := []Row{row, row}
	want[1].Index, want[1].Minute, want[1].Likes = 1, row.Minute.Add(time.Minute), -1
	require.Equal(t, want, rowsOf(t, w.opts))

	w = testWriter(t, w.contents, w.opts)
	require.True(t, w.begun)
	require.Equal(t, []uint64{14, 7}, []uint64{uint64(w.next), w.nextSeq})
	w.mustTake(t, progress(14, 7, noon))
	require.NoError(t, w.commit(), "without rows there is no file, but the position advances")
	w = testWriter(t, w.contents, w.opts)
	require.Equal(t, []uint64{15, 8}, []uint64{uint64(w.next), w.nextSeq})
	require.Equal(t, want, rowsOf(t, w.opts))
}

// TestColumnsStayWhatTheyAre fixes the names and types of the columns, which users' queries depend on.
func TestColumnsStayWhatTheyAre(t *testing.T) {
	require.Equal(t, strings.TrimSpace(`
message Row {
	required int32 partition (INT(32,true));
	required int64 seq (INT(64,false));
	required int32 index (INT(32,true));
	required int64 offset (INT(64,true));
	required int64 written (TIMESTAMP(isAdjustedToUTC=true,unit=MILLIS));
	required int64 post_id (INT(64,false));
	required binary region (STRING);
	required int64 minute (TIMESTAMP(isAdjustedToUTC=true,unit=MILLIS));
	required int64 likes (INT(64,true));
	required int64 dislikes (INT(64,true));
	required int64 post_likes (INT(64,true));
	required int64 post_dislikes (INT(64,true));
}`), parquet.SchemaOf(Row{}).String())
}

// TestEachHourHasItsOwnFiles also covers a broker's clock that goes backward.
func TestEachHourHasItsOwnFiles(t *testing.T) {
	w := newWriter(t, position{NextSeq: 1})
	w.mustTake(t, update(0, 1, noon.Add(time.Hour-1), 1), update(1, 2, noon, 1), update(2, 3, noon.Add(time.Hour), 1),
		progress(3, 4, noon.Add(2*time.Hour)), update(4, 5, noon.Add(time.Hour-1), 1))
	require.NoError(t, w.commit())
	require.Equal(t, []string{
		"hour=2026-11-21T12/p3-00000000000000000000-00000000000000000002.parquet",
		"hour=2026-11-21T12/p3-00000000000000000004-00000000000000000005.parquet",
		"hour=2026-11-21T13/p3-00000000000000000002-00000000000000000004.parquet",
	}, files(t, w.opts))
	require.Len(t, rowsOf(t, w.opts), 4)
}

func TestRowsWaitForTheInterval(t *testing.T) {
	w := newWriter(t, position{NextSeq: 1})
	require.NoError(t, w.take(nil, 0, noon))
	require.False(t, w.due(noon.Add(24*time.Hour)), "there are no rows")
	for i, rec := range []*kgo.Record{update(0, 1, noon, 1), progress(1, 2, noon)} {
		came := noon.Add(time.Duration(i) * time.Hour)
		require.NoError(t, w.take([]*kgo.Record{rec}, rec.Offset+1, came))
		require.NoError(t, w.take(nil, rec.Offset+1, came.Add(time.Minute)))
		require.False(t, w.due(came.Add(w.opts.RotateInterval-1)))
		require.True(t, w.due(came.Add(w.opts.RotateInterval)))
		require.NoError(t, w.commit())
		require.False(t, w.due(came.Add(24*time.Hour)))
	}
}

// TestMemoryIsOfARowGroup also checks that a file has at most max_rows, and that an update's rows are in one file.
func TestMemoryIsOfARowGroup(t *testing.T) {
	w := newWriter(t, position{}, func(o *Options) { o.MaxRows, o.RowGroupRows, o.Compression = 1000, 300, "none" })
	one := make([]int64, 70)
	for i := range uint64(14) {
		w.mustTake(t, update(int64(i), i, noon, one...))
	}
	onDisk, err := os.Stat(diskOf(w.contents).path(unfinishedName(3, 0)))
	require.NoError(t, err)
	require.Greater(t, onDisk.Size(), int64(900*8), "980 rows are three row groups and the start of a fourth")
	w.mustTake(t, update(14, 14, noon, one...))
	require.NoError(t, w.commit())
	var sizes [][]int64
	for _, path := range files(t, w.opts) {
		text, err := os.ReadFile(filepath.Join(w.opts.Dir, path))
		require.NoError(t, err)
		p, err := parquet.OpenFile(bytes.NewReader(text), int64(len(text)))
		require.NoError(t, err)
		var groups []int64
		for _, g := range p.RowGroups() {
			groups = append(groups, g.NumRows())
		}
		sizes = append(sizes, groups)
	}
	require.Equal(t, [][]int64{{300, 300, 300, 80}, {70}}, sizes)
	require.Len(t, rowsOf(t, w.opts), 15*70)
}

// TestGapIsRejected checks that records which would leave a gap, or rows that are there twice, park.
func TestGapIsRejected(t *testing.T) {
	for _, c := range []struct {
		rec   *kgo.Record
		cause stream.Cause
		says  string
	}{
		// A gap, and a repetition.
		{update(1, 7, noon, 1), stream.CauseLoss, "like-updates/3 offset 1 has seq 7 where 6 was expected"},
		{update(1, 5, noon, 1), stream.CauseLoss, "has seq 5 where 6 was expected"},
		// Of a later version, and written by something else.
		{&kgo.Record{Partition: 3, Offset: 1, Value: []byte{0x80}}, stream.CauseRecord,
			"like-updates/3 offset 1: decoding a like update"},
		{&kgo.Record{Offset: 1, Key: []byte("x"), Value: update(1, 6, noon, 1).Value}, stream.CauseRecord,
			`key "x" is not a decimal post id`},
	} {
		w := newWriter(t, position{NextSeq: 5})
		w.mustTake(t, update(0, 5, noon, 1))
		says(t, w.take([]*kgo.Record{c.rec}, 2, noon), c.cause, c.says)
		require.NoError(t, w.commit(), "earlier records are not affected")
		require.Len(t, rowsOf(t, w.opts), 1)
		require.EqualValues(t, 1, w.archived.NextOffset)
	}
}
