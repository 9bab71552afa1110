package archive

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/schema"
	"kudos/stream"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// update is a record of partition 3 with one delta for each like.
func update(offset int64, seq uint64, at time.Time, likes ...int64) *kgo.Record {
	u := schema.Update{Seq: seq}
	for i, n := range likes {
		u.Deltas = append(u.Deltas, schema.Delta{Region: schema.Region{'D', 'E'}, Minute: int64(i), Likes: n})
		u.Counts.Likes += n
	}
	return &kgo.Record{Partition: 3, Key: schema.AppendPostKey(nil, 7), Value: schema.AppendUpdate(nil, &u), Offset: offset, Timestamp: at}
}

// progress is the record that ends a transaction.
func progress(offset int64, seq uint64, at time.Time) *kgo.Record {
	return &kgo.Record{Partition: 3, Key: []byte(schema.ProgressKey), Value: schema.AppendUpdate(nil, &schema.Update{Seq: seq}), Offset: offset, Timestamp: at}
}

func testOptions(t *testing.T) Options {
	o := DefaultOptions()
	o.Dir = filepath.Join(t.TempDir(), "with [brackets]")
	return o
}

func testFolder(t *testing.T, o Options) *folder {
	f, err := openFolder(o.Dir)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	return f
}

func testWriter(t *testing.T, f *folder, o Options) *writer {
	w, err := openWriter(f, o, 3)
	require.NoError(t, err)
	return w
}

// files are the paths of all that others see, within the folder.
func files(t *testing.T, o Options) []string {
	t.Helper()
	var found []string
	require.NoError(t, filepath.WalkDir(o.Dir, func(path string, d os.DirEntry, err error) error {
		if errors.Is(err, os.ErrNotExist) {
			return nil // the folder has not been made yet, or a file has just come to its place
		}
		if err == nil && !d.IsDir() && !strings.HasPrefix(d.Name(), "_") {
			path, err = filepath.Rel(o.Dir, path)
			found = append(found, path)
		}
		return err
	}))
	return found
}

// rowsOf are the rows of all that others see, by seq and index.
func rowsOf(t *testing.T, o Options) []Row {
	t.Helper()
	var rows []Row
	for _, path := range files(t, o) {
		some, err := parquet.ReadFile[Row](filepath.Join(o.Dir, path))
		require.NoError(t, err, path)
		for _, r := range some {
			require.Equal(t, hourPrefix+r.Written.UTC().Format(hourFormat), filepath.Dir(path), "a row is in the folder of its hour")
		}
		rows = append(rows, some...)
	}
	slices.SortFunc(rows, func(a, b Row) int { return int(a.Seq-b.Seq)*2000 + int(a.Index-b.Index) })
	return rows
}

// TestAFileAndWhatFollowsIt: what is in it, where it is, and that the next one begins behind it.
func TestAFileAndWhatFollowsIt(t *testing.T) {
	o := testOptions(t)
	f := testFolder(t, o)
	w := testWriter(t, f, o)
	require.False(t, w.begun)
	require.NoError(t, w.begin(position{NextOffset: 10, NextSeq: 5}, false))
	require.NoError(t, w.take([]*kgo.Record{update(11, 5, noon, 1, -1), progress(12, 6, noon)}, 14, noon))
	require.Empty(t, files(t, o), "nothing is to be seen of a file in hand")
	require.NoError(t, w.commit())
	require.NoError(t, w.discard())
	require.Equal(t, []string{"hour=2026-11-21T12/p3-00000000000000000010-00000000000000000014.parquet"}, files(t, o))
	want := []Row{
		{Partition: 3, Seq: 5, Index: 0, Offset: 11, Written: noon, PostID: 7, Region: "DE", Minute: time.Unix(0, 0).UTC(), Likes: 1},
		{Partition: 3, Seq: 5, Index: 1, Offset: 11, Written: noon, PostID: 7, Region: "DE", Minute: time.Unix(60, 0).UTC(), Likes: -1},
	}
	require.Equal(t, want, rowsOf(t, o))

	w = testWriter(t, f, o)
	require.True(t, w.begun)
	require.EqualValues(t, 14, w.next)
	require.EqualValues(t, 7, w.nextSeq)
	require.NoError(t, w.take([]*kgo.Record{progress(14, 7, noon)}, 15, noon))
	require.NoError(t, w.commit(), "without rows there is no file, and it counts all the same")
	w = testWriter(t, f, o)
	require.EqualValues(t, 15, w.next)
	require.EqualValues(t, 8, w.nextSeq)
	require.Equal(t, want, rowsOf(t, o))
}

// TestColumnsStayWhatTheyAre: others' queries go by their names and types.
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

// TestAnHourHasItsOwnFiles, also where a broker's clock goes back.
func TestAnHourHasItsOwnFiles(t *testing.T) {
	o := testOptions(t)
	w := testWriter(t, testFolder(t, o), o)
	require.NoError(t, w.begin(position{NextOffset: 0, NextSeq: 1}, false))
	require.NoError(t, w.take([]*kgo.Record{
		update(0, 1, noon.Add(time.Hour-1), 1), update(1, 2, noon, 1),
		update(2, 3, noon.Add(time.Hour), 1), progress(3, 4, noon.Add(2*time.Hour)),
		update(4, 5, noon.Add(time.Hour-1), 1),
	}, 5, noon))
	require.NoError(t, w.commit())
	require.Equal(t, []string{
		"hour=2026-11-21T12/p3-00000000000000000000-00000000000000000002.parquet",
		"hour=2026-11-21T12/p3-00000000000000000004-00000000000000000005.parquet",
		"hour=2026-11-21T13/p3-00000000000000000002-00000000000000000004.parquet",
	}, files(t, o))
	require.Len(t, rowsOf(t, o), 4)
}

// TestRowsWaitForTheInterval and no longer; nor does a position without rows.
func TestRowsWaitForTheInterval(t *testing.T) {
	o := testOptions(t)
	w := testWriter(t, testFolder(t, o), o)
	require.NoError(t, w.begin(position{NextOffset: 0, NextSeq: 1}, false))
	require.NoError(t, w.take(nil, 0, noon))
	require.False(t, w.due(noon.Add(24*time.Hour)), "there is nothing")
	for i, rec := range []*kgo.Record{update(0, 1, noon, 1), progress(1, 2, noon)} {
		came := noon.Add(time.Duration(i) * time.Hour)
		require.NoError(t, w.take([]*kgo.Record{rec}, rec.Offset+1, came))
		require.NoError(t, w.take(nil, rec.Offset+1, came.Add(time.Minute)))
		require.False(t, w.due(came.Add(o.RotateInterval-1)))
		require.True(t, w.due(came.Add(o.RotateInterval)))
		require.NoError(t, w.commit())
		require.False(t, w.due(came.Add(24*time.Hour)))
	}
}

// TestMemoryIsOfARowGroup: what is taken in is on disk once a row group is whole. A file has
// max_rows at most, and an update's rows are in one.
func TestMemoryIsOfARowGroup(t *testing.T) {
	o := testOptions(t)
	o.MaxRows, o.RowGroupRows, o.Compression = 1000, 300, "none"
	f := testFolder(t, o)
	w := testWriter(t, f, o)
	require.NoError(t, w.begin(position{NextOffset: 0, NextSeq: 0}, false))
	one := make([]int64, 70)
	for i := range uint64(14) {
		require.NoError(t, w.take([]*kgo.Record{update(int64(i), i, noon, one...)}, int64(i)+1, noon))
	}
	onDisk, err := os.Stat(f.path(unfinishedName(3, 0)))
	require.NoError(t, err)
	require.Greater(t, onDisk.Size(), int64(900*8), "980 rows are three row groups and the beginning of a fourth")
	require.NoError(t, w.take([]*kgo.Record{update(14, 14, noon, one...)}, 15, noon))
	require.NoError(t, w.commit())
	require.Len(t, files(t, o), 2)
	var sizes [][]int64
	for _, path := range files(t, o) {
		file, err := os.Open(filepath.Join(o.Dir, path))
		require.NoError(t, err)
		info, err := file.Stat()
		require.NoError(t, err)
		p, err := parquet.OpenFile(file, info.Size())
		require.NoError(t, err)
		var groups []int64
		for _, g := range p.RowGroups() {
			groups = append(groups, g.NumRows())
		}
		sizes = append(sizes, groups)
		require.NoError(t, file.Close())
	}
	require.Equal(t, [][]int64{{300, 300, 300, 80}, {70}}, sizes)
	require.Len(t, rowsOf(t, o), 15*70)
}

// TestWhatDoesNotFollowIsRefused: it would be a hole, or would be there twice.
func TestWhatDoesNotFollowIsRefused(t *testing.T) {
	for what, c := range map[string]struct {
		rec   *kgo.Record
		cause stream.Cause
		says  string
	}{
		"a gap":            {update(1, 7, noon, 1), stream.CauseLoss, "like-updates/3 offset 1 has seq 7 where 6 was to come"},
		"a repetition":     {update(1, 5, noon, 1), stream.CauseLoss, "has seq 5 where 6 was to come"},
		"a later version":  {&kgo.Record{Partition: 3, Offset: 1, Value: []byte{0x80}}, stream.CauseRecord, "like-updates/3 offset 1: decoding a like update"},
		"somebody's other": {&kgo.Record{Offset: 1, Key: []byte("x"), Value: update(1, 6, noon, 1).Value}, stream.CauseRecord, `key "x" is not a decimal post id`},
	} {
		t.Run(what, func(t *testing.T) {
			o := testOptions(t)
			w := testWriter(t, testFolder(t, o), o)
			require.NoError(t, w.begin(position{NextOffset: 0, NextSeq: 5}, false))
			require.NoError(t, w.take([]*kgo.Record{update(0, 5, noon, 1)}, 1, noon))
			says(t, w.take([]*kgo.Record{c.rec}, 2, noon), c.cause, c.says)
			require.NoError(t, w.commit(), "what was before is well")
			require.Len(t, rowsOf(t, o), 1)
			require.EqualValues(t, 1, w.archived.NextOffset)
		})
	}
}

// steps are the steps by which files come to be there. One of them fails, before or after it was
// done: as a crash would, or a disk.
type steps struct {
	done    []string
	failing int // 0: none
	after   bool
}

func (s *steps) of(f *folder) {
	syncFile, rename, sync := f.syncFile, f.rename, f.sync
	step := func(what string, do func() error) error {
		s.done = append(s.done, strings.ReplaceAll(what, f.dir, "."))
		switch {
		case len(s.done) != s.failing:
			return do()
		case s.after:
			return errors.Join(do(), syscall.EIO)
		}
		return syscall.EIO
	}
	f.syncFile = func(file *os.File) error { return step("sync "+file.Name(), func() error { return syncFile(file) }) }
	f.rename = func(from, to string) error {
		return step("rename "+from+" to "+to, func() error { return rename(from, to) })
	}
	f.sync = func(dir string) error { return step("sync "+dir, func() error { return sync(dir) }) }
}

// TestWhatIsOnDiskBeforeWhat: a crash of the machine keeps what was synced, and of the rest what it
// likes.
func TestWhatIsOnDiskBeforeWhat(t *testing.T) {
	o := testOptions(t)
	s := &steps{}
	f := testFolder(t, o)
	s.of(f)
	w := testWriter(t, f, o)
	require.NoError(t, w.begin(position{}, false))
	require.NoError(t, w.take([]*kgo.Record{update(0, 0, noon, 1)}, 1, noon))
	require.NoError(t, w.commit())
	file := "./hour=2026-11-21T12/p3-00000000000000000000-00000000000000000001.parquet"
	position := []string{"sync ./_p3.json.next", "rename ./_p3.json.next to ./_p3.json", "sync ."}
	require.Equal(t, slices.Concat(
		[]string{"sync ./_p3-0.unfinished", "sync ."},
		position,
		[]string{"sync .", "rename ./_p3-0.unfinished to " + file, "sync ./hour=2026-11-21T12", "sync ."},
	), s.done)

	s.done = nil
	w = testWriter(t, f, o)
	require.Equal(t, []string{"sync ."}, s.done, "what is gone on from stays")
	s.done = nil
	require.NoError(t, w.take([]*kgo.Record{progress(1, 1, noon)}, 2, noon))
	require.NoError(t, w.commit())
	require.Equal(t, position, s.done)
}

// TestEachRowIsThereOnceWhateverFails: at each of the steps, before or after it was done, the
// process ends or goes on with a new writer.
func TestEachRowIsThereOnceWhateverFails(t *testing.T) {
	var log []*kgo.Record
	for i := range int64(8) {
		log = append(log, update(i, uint64(i), noon.Add(time.Duration(i/6)*time.Hour), 1, 1))
	}
	log = append(log, progress(8, 8, noon))
	total := 0
	for _, after := range []bool{false, true} {
		for failing := 1; ; failing++ {
			o := testOptions(t)
			o.Compression = "none"
			s := &steps{failing: failing, after: after}
			failures := archiveAll(t, o, s, log)
			total += failures
			rows := rowsOf(t, o)
			require.Len(t, rows, 16, "step %d failed, after it was done: %v", failing, after)
			for i, r := range rows {
				require.EqualValues(t, i/2, r.Seq)
				require.EqualValues(t, i%2, r.Index)
			}
			left, err := filepath.Glob(filepath.Join(strings.NewReplacer("[", `\[`).Replace(o.Dir), "_*unfinished"))
			require.NoError(t, err)
			require.Empty(t, left)
			if failures == 0 {
				require.Greater(t, len(s.done), 20)
				break
			}
		}
	}
	require.Greater(t, total, 40)
}

// archiveAll brings a log into a folder, four records to a commit, and after each error by a new
// process. It returns how many there were.
func archiveAll(t *testing.T, o Options, s *steps, log []*kgo.Record) (failures int) {
	for range 3 {
		done, err := archiveOn(t, o, s, log)
		if err == nil && done {
			return failures
		}
		require.ErrorIs(t, err, syscall.EIO)
		failures++
	}
	t.Fatal("an error that passed is met again and again")
	return failures
}

func archiveOn(t *testing.T, o Options, s *steps, log []*kgo.Record) (done bool, err error) {
	f, err := openFolder(o.Dir)
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	s.of(f)
	w, err := openWriter(f, o, 3)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, w.discard()) }()
	if !w.begun {
		require.NoError(t, w.begin(position{NextOffset: 0, NextSeq: 0}, false))
	}
	for some := range slices.Chunk(log[w.next:], 4) {
		if err := errors.Join(w.take(some, some[len(some)-1].Offset+1, noon), w.commit()); err != nil {
			return false, err
		}
	}
	return true, nil
}

// TestAFailedWriterIsGoodForNothing: what it has in hand is not taken for whole.
func TestAFailedWriterIsGoodForNothing(t *testing.T) {
	o := testOptions(t)
	o.RowGroupRows = 1
	f := testFolder(t, o)
	w := testWriter(t, f, o)
	require.NoError(t, w.begin(position{NextOffset: 0, NextSeq: 0}, false))
	require.NoError(t, w.take([]*kgo.Record{update(0, 0, noon, 1)}, 1, noon))
	require.NoError(t, w.out.file.Close()) // as if the disk were full
	var err error
	for i := uint64(1); err == nil; i++ {
		require.Less(t, i, uint64(100_000), "nothing is written")
		err = w.take([]*kgo.Record{update(int64(i), i, noon, 1)}, int64(i)+1, noon)
	}
	require.ErrorIs(t, err, os.ErrClosed)
	require.ErrorContains(t, w.commit(), "could not be written")
	require.NoError(t, w.discard())
	w = testWriter(t, f, o)
	require.False(t, w.begun)
	require.Empty(t, files(t, o))
	left, err := os.ReadDir(o.Dir)
	require.NoError(t, err)
	require.Len(t, left, 1, "what was not finished is taken away: %v", left)
}

// archived is a folder in which a row was archived.
func archived(t *testing.T) (Options, *folder) {
	o := testOptions(t)
	f := testFolder(t, o)
	w := testWriter(t, f, o)
	require.NoError(t, w.begin(position{}, false))
	require.NoError(t, w.take([]*kgo.Record{update(0, 0, noon, 1)}, 1, noon))
	require.NoError(t, w.commit())
	return o, f
}

// says holds that an error is of a kind, and says what is the matter and what helps.
func says(t *testing.T, err error, cause stream.Cause, what string) {
	t.Helper()
	trouble := stream.TroubleOf(err)
	require.Equal(t, cause, trouble.Cause)
	require.Contains(t, trouble.Reason, what)
	require.NotEmpty(t, trouble.Remedy)
}

// TestTheFolderIsGuarded: what would have rows there twice, or nowhere, is refused.
func TestTheFolderIsGuarded(t *testing.T) {
	t.Run("a position is missing beside files", func(t *testing.T) {
		o, f := archived(t)
		require.NoError(t, os.Remove(f.path("_p3.json")))
		_, err := openWriter(f, o, 3)
		says(t, err, stream.CauseState, "_p3.json is missing")
		_, err = openWriter(f, o, 4)
		require.NoError(t, err, "the others are well")
	})
	t.Run("files that were moved away are not made again", func(t *testing.T) {
		o, f := archived(t)
		require.NoError(t, os.RemoveAll(f.path("hour=2026-11-21T12")))
		w := testWriter(t, f, o)
		require.EqualValues(t, 1, w.next)
	})
	t.Run("a position that is damaged", func(t *testing.T) {
		o, f := archived(t)
		require.NoError(t, os.WriteFile(f.path("_p3.json"), nil, 0o600))
		_, err := openWriter(f, o, 3)
		says(t, err, stream.CauseState, "_p3.json: unexpected end of JSON")
	})
	t.Run("another log", func(t *testing.T) {
		_, f := archived(t)
		id := identity{"cluster", "topic", 4}
		require.NoError(t, f.belongTo(id))
		require.NoError(t, f.belongTo(id))
		for _, other := range []identity{{"x", "topic", 4}, {"cluster", "x", 4}, {"cluster", "topic", 3}, {"cluster", "x", 5}, {"x", "topic", 5}} {
			says(t, f.belongTo(other), stream.CauseTopics, "another like-updates")
		}
		require.NoError(t, f.belongTo(identity{"cluster", "topic", 5}), "partitions were added")
		says(t, f.belongTo(id), stream.CauseTopics, "another like-updates")
	})
	t.Run("two processes", func(t *testing.T) {
		o, f := archived(t)
		_, err := openFolder(o.Dir)
		require.ErrorContains(t, err, fmt.Sprintf("another process writes to %s", o.Dir))
		require.NoError(t, f.Close())
		f, err = openFolder(o.Dir)
		require.NoError(t, err)
		require.NoError(t, f.Close())
	})
}

// TestTheFolderIsReplaced while it is written to: somebody else may write to the new one.
func TestTheFolderIsReplaced(t *testing.T) {
	t.Run("by another", func(t *testing.T) {
		o, f := archived(t)
		w := testWriter(t, f, o)
		require.NoError(t, w.take([]*kgo.Record{update(1, 1, noon, 1)}, 2, noon))
		require.NoError(t, os.Rename(o.Dir, o.Dir+"-old"))
		other := testFolder(t, o)
		require.NoError(t, other.belongTo(identity{}))
		inHand := other.path(unfinishedName(3, 1)) // of somebody else
		require.NoError(t, os.WriteFile(inHand, nil, 0o600))
		says(t, w.commit(), stream.CauseState, "was deleted or replaced")
		_, err := openWriter(f, o, 3)
		says(t, err, stream.CauseState, "was deleted or replaced")
		require.FileExists(t, inHand)
		require.Empty(t, files(t, o))
	})
	t.Run("by nothing", func(t *testing.T) {
		o, f := archived(t)
		w := testWriter(t, f, o)
		require.NoError(t, w.take([]*kgo.Record{update(1, 1, noon, 1)}, 2, noon))
		require.NoError(t, os.RemoveAll(o.Dir))
		require.Error(t, w.commit())
		require.NoDirExists(t, o.Dir, "it is not made anew in silence")
		_, err := openWriter(f, o, 3)
		require.Error(t, err)
	})
}
