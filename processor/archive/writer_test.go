package archive

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/schema"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// update is a record with one delta for each like.
func update(offset int64, seq uint64, at time.Time, likes ...int64) *kgo.Record {
	u := schema.Update{Seq: seq}
	for i, n := range likes {
		u.Deltas = append(u.Deltas, schema.Delta{Region: schema.Region{'D', 'E'}, Minute: int64(i), Likes: n})
		u.Counts.Likes += n
	}
	return &kgo.Record{Key: schema.AppendPostKey(nil, 7), Value: schema.AppendUpdate(nil, &u), Offset: offset, Timestamp: at}
}

func testOptions(t *testing.T) Options {
	o := DefaultOptions()
	o.Dir = t.TempDir()
	return o
}

func testWriter(t *testing.T, o Options) *writer {
	w, err := openWriter(o, 3)
	require.NoError(t, err)
	return w
}

// TestFilesGoOnFromEachOther: the next writer begins where the last file ends, and expects the
// next update.
func TestFilesGoOnFromEachOther(t *testing.T) {
	o := testOptions(t)
	w := testWriter(t, o)
	require.EqualValues(t, -1, w.next)
	w.begin(10)
	require.NoError(t, w.add(update(11, 5, noon, 1, -1)))
	w.next = 20 // markers
	rows, err := w.flush()
	require.NoError(t, err)
	require.Equal(t, 2, rows)
	path := filepath.Join(o.Dir, "hour=2026-11-21T12", "p3-00000000000000000010-00000000000000000020.parquet")
	got, err := parquet.ReadFile[Row](path)
	require.NoError(t, err)
	require.Equal(t, []Row{
		{Partition: 3, Seq: 5, Index: 0, Offset: 11, Written: noon, PostID: 7, Region: "DE", Minute: time.Unix(0, 0).UTC(), Likes: 1},
		{Partition: 3, Seq: 5, Index: 1, Offset: 11, Written: noon, PostID: 7, Region: "DE", Minute: time.Unix(60, 0).UTC(), Likes: -1},
	}, got)

	require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(path), tmpPrefix+"p3-x"), nil, 0o600))
	w = testWriter(t, o)
	require.EqualValues(t, 20, w.next)
	require.NoFileExists(t, filepath.Join(filepath.Dir(path), tmpPrefix+"p3-x"), "of a crash")
	var lost *lostError
	require.ErrorAs(t, w.add(update(20, 7, noon, 1)), &lost, "an update is missing")
	require.NoError(t, w.add(update(20, 6, noon, 1)))
}

// TestAnHourHasItsOwnFiles: and time does not go back.
func TestAnHourHasItsOwnFiles(t *testing.T) {
	w := testWriter(t, testOptions(t))
	w.begin(0)
	require.NoError(t, w.add(update(0, 1, noon, 1)))
	require.False(t, w.mustFlushBefore(update(1, 2, noon.Add(time.Hour-1), 1)))
	require.False(t, w.mustFlushBefore(update(1, 2, noon.Add(-time.Hour), 1)))
	require.True(t, w.mustFlushBefore(update(1, 2, noon.Add(time.Hour), 1)))
	w.opts.MaxRows = 1
	require.True(t, w.mustFlushBefore(update(1, 2, noon, 1)))
}

// TestRowsWaitForTheInterval and no longer.
func TestRowsWaitForTheInterval(t *testing.T) {
	w := testWriter(t, testOptions(t))
	w.begin(0)
	require.False(t, w.due(time.Now().Add(time.Hour)), "there is none")
	require.NoError(t, w.add(update(0, 1, noon, 1)))
	require.False(t, w.due(time.Now()))
	require.True(t, w.due(time.Now().Add(w.opts.FlushInterval)))
}

// TestAMissingFileIsNoticed: what is between two files would be missing.
func TestAMissingFileIsNoticed(t *testing.T) {
	o := testOptions(t)
	w := testWriter(t, o)
	w.begin(0)
	for i := range int64(3) {
		require.NoError(t, w.add(update(i, uint64(i)+1, noon, 1)))
		_, err := w.flush()
		require.NoError(t, err)
	}
	files, err := list(o.Dir, 3)
	require.NoError(t, err)
	require.Len(t, files, 3)
	require.NoError(t, os.Remove(files[1].path))
	_, err = openWriter(o, 3)
	require.ErrorContains(t, err, "one in between is missing")
	_, err = openWriter(o, 4)
	require.NoError(t, err, "others are well")
}
