package archive

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/stream"
)

// steps are the durable steps of writing files. One fails before or after it took effect, like a crash or broken disk.
type steps struct {
	done    []string
	failing int // 0: none
	after   bool
}

func (s *steps) of(f *directory) {
	syncFile, rename, syncDir := f.syncFile, f.rename, f.syncDir
	step := func(what string, do func() error) error {
		s.done = append(s.done, strings.ReplaceAll(what, f.root, "."))
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
	f.syncDir = func(dir string) error { return step("sync "+dir, func() error { return syncDir(dir) }) }
}

// TestWriteOrderOnDisk checks the order of syncs: a machine crash keeps what was synced, and any part of the rest.
func TestWriteOrderOnDisk(t *testing.T) {
	s, w := &steps{}, newWriter(t, position{})
	s.of(diskOf(w.contents))
	w.mustTake(t, update(0, 0, noon, 1))
	require.NoError(t, w.commit())
	file := "./hour=2026-11-21T12/p3-00000000000000000000-00000000000000000001.parquet"
	position := []string{"sync ./_p3.json.next", "rename ./_p3.json.next to ./_p3.json", "sync ."}
	require.Equal(t, slices.Concat(
		[]string{"sync ./_p3-0.unfinished", "sync ."},
		position,
		[]string{"sync .", "rename ./_p3-0.unfinished to " + file, "sync ./hour=2026-11-21T12", "sync ."},
	), s.done)

	s.done = nil
	w = testWriter(t, w.contents, w.opts)
	require.Equal(t, []string{"sync ."}, s.done, "the position it resumes from is kept")
	s.done = nil
	w.mustTake(t, progress(1, 1, noon))
	require.NoError(t, w.commit())
	require.Equal(t, position, s.done)
}

// TestEachRowIsArchivedOnceWhateverFails fails each step, before or after it took effect. Then either the process
// restarts or it continues with a new writer.
func TestEachRowIsArchivedOnceWhateverFails(t *testing.T) {
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
			failures := 0
			for err := archiveOn(t, o, s, log); err != nil; err = archiveOn(t, o, s, log) {
				require.ErrorIs(t, err, syscall.EIO)
				failures++
				require.Less(t, failures, 3, "a transient error keeps recurring")
			}
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

// archiveOn archives a log in a new process, with four records per commit.
func archiveOn(t *testing.T, o Options, s *steps, log []*kgo.Record) (err error) {
	d, err := openDirectory(o.Dir)
	require.NoError(t, err)
	defer func() { require.NoError(t, d.Close()) }()
	s.of(d)
	w, err := openWriter(&contents{Store: d, table: noTable{}}, o, 3)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.discard()) }()
	if !w.begun {
		require.NoError(t, w.begin(position{}, false))
	}
	for some := range slices.Chunk(log[w.next:], 4) {
		if err := errors.Join(w.take(some, some[len(some)-1].Offset+1, noon), w.commit()); err != nil {
			return err
		}
	}
	return nil
}

// TestFailedWriterRejectsFurtherUse checks that what a failed writer holds does not count as archived.
func TestFailedWriterRejectsFurtherUse(t *testing.T) {
	w := newWriter(t, position{}, func(o *Options) { o.RowGroupRows = 1 })
	w.mustTake(t, update(0, 0, noon, 1))
	require.NoError(t, w.out.file.Close()) // simulates a full disk
	var err error
	for i := uint64(1); err == nil; i++ {
		require.Less(t, i, uint64(100_000), "nothing is written")
		err = w.take([]*kgo.Record{update(int64(i), i, noon, 1)}, int64(i)+1, noon)
	}
	require.ErrorIs(t, err, os.ErrClosed)
	require.ErrorContains(t, w.commit(), "could not be written")
	require.NoError(t, w.discard())
	w = testWriter(t, w.contents, w.opts)
	require.False(t, w.begun)
	require.Empty(t, files(t, w.opts))
	left, err := os.ReadDir(w.opts.Dir)
	require.NoError(t, err)
	require.Len(t, left, 1, "unfinished files are removed: %v", left)
}

func archived(t *testing.T) (Options, *contents) {
	w := newWriter(t, position{})
	w.mustTake(t, update(0, 0, noon, 1))
	require.NoError(t, w.commit())
	return w.opts, w.contents
}

func says(t *testing.T, err error, cause stream.Cause, what string) {
	failure := stream.FailureOf(err)
	require.Equal(t, cause, failure.Cause)
	require.Contains(t, failure.Reason, what)
	require.NotEmpty(t, failure.Action)
}

// TestDirectoryIsLocked checks that nothing is archived if rows would be there twice, or not at all.
func TestDirectoryIsLocked(t *testing.T) {
	t.Run("files without a position", func(t *testing.T) {
		o, f := archived(t)
		require.NoError(t, os.Remove(diskOf(f).path("_p3.json")))
		_, err := openWriter(f, o, 3)
		says(t, err, stream.CauseState, "_p3.json is missing")
		_, err = openWriter(f, o, 4)
		require.NoError(t, err, "the others are not affected")
	})
	t.Run("files that were moved away are not recreated", func(t *testing.T) {
		o, f := archived(t)
		require.NoError(t, os.RemoveAll(diskOf(f).path("hour=2026-11-21T12")))
		require.EqualValues(t, 1, testWriter(t, f, o).next)
	})
	t.Run("a damaged position", func(t *testing.T) {
		o, f := archived(t)
		require.NoError(t, os.WriteFile(diskOf(f).path("_p3.json"), nil, 0o600))
		_, err := openWriter(f, o, 3)
		says(t, err, stream.CauseState, "_p3.json: unexpected end of JSON")
	})
	t.Run("another log", func(t *testing.T) {
		_, f := archived(t)
		id := identity{"cluster", "topic", 4, ""}
		require.NoError(t, f.belongTo(id))
		require.NoError(t, f.belongTo(id))
		for _, other := range []identity{
			{"x", "topic", 4, ""}, {"cluster", "x", 4, ""}, {"cluster", "topic", 3, ""}, {"cluster", "x", 5, ""},
			{"x", "topic", 5, ""},
		} {
			says(t, f.belongTo(other), stream.CauseTopics, "another like-updates")
		}
		require.NoError(t, f.belongTo(identity{"cluster", "topic", 5, ""}), "partitions were added")
		says(t, f.belongTo(id), stream.CauseTopics, "another like-updates")
	})
}

// TestDirectoryIsReplaced replaces the directory while it is written to: another process may write to the new one.
func TestDirectoryIsReplaced(t *testing.T) {
	t.Run("by another directory", func(t *testing.T) {
		o, f := archived(t)
		w := testWriter(t, f, o)
		w.mustTake(t, update(1, 1, noon, 1))
		require.NoError(t, os.Rename(o.Dir, o.Dir+"-old"))
		other := testDirectory(t, o)
		require.NoError(t, other.belongTo(identity{}))
		inFlight := diskOf(other).path(unfinishedName(3, 1)) // another process's
		require.NoError(t, os.WriteFile(inFlight, nil, 0o600))
		says(t, w.commit(), stream.CauseState, "was deleted or replaced")
		_, err := openWriter(f, o, 3)
		says(t, err, stream.CauseState, "was deleted or replaced")
		require.FileExists(t, inFlight)
		require.Empty(t, files(t, o))
	})
	t.Run("deleted", func(t *testing.T) {
		o, f := archived(t)
		w := testWriter(t, f, o)
		w.mustTake(t, update(1, 1, noon, 1))
		require.NoError(t, os.RemoveAll(o.Dir))
		require.Error(t, w.commit())
		require.NoDirExists(t, o.Dir, "it is not silently recreated")
		_, err := openWriter(f, o, 3)
		require.Error(t, err)
	})
}
