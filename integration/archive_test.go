package integration

import (
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"
	"github.com/stretchr/testify/require"

	"kudos/integration/stack"
	"kudos/processor/archive"
)

// TestArchiveHasEachChangeOnce: an archive that is killed again and again has every row once, and
// its rows come to what MySQL counts.
func TestArchiveHasEachChangeOnce(t *testing.T) {
	s := newRealSystem(t)
	processor := s.processor("processor", "--set", "processor.max_batch=200")
	require.NoError(t, processor.Start(t.Context()))
	dir := filepath.Join(t.TempDir(), "archive")
	a := s.archive("archive", dir)
	random := rand.New(rand.NewPCG(1, 2))
	require.NoError(t, a.Start(t.Context()))
	for kill := range 6 {
		s.toggles(uint64(kill), 5_000)
		pause(t, time.Duration(random.IntN(400))*time.Millisecond)
		require.NoError(t, a.Kill())
		require.NoError(t, a.Start(t.Context()))
	}
	s.drain(time.Minute)
	s.requireExact()
	want := nonZero(s.mysqlCounts())
	waitFor(t, time.Minute, "the archive to have all", func() bool {
		return maps.Equal(nonZero(countsOf(readArchive(t, dir))), want)
	})
	require.NoError(t, a.Stop())

	rows := readArchive(t, dir)
	type name struct {
		partition, index int32
		seq              uint64
	}
	seen := map[name]bool{}
	last := map[uint64]archive.Row{}
	for _, r := range rows {
		n := name{r.Partition, r.Index, r.Seq}
		require.False(t, seen[n], "%+v is there twice", n)
		seen[n] = true
		if r.Seq >= last[r.PostID].Seq {
			last[r.PostID] = r
		}
	}
	for post, c := range want {
		require.Equal(t, c, count{last[post].PostLikes, last[post].PostDislikes}, "post %d", post)
	}
	unfinished, err := filepath.Glob(filepath.Join(dir, "*", ".*"))
	require.NoError(t, err)
	require.Empty(t, unfinished)

	// A second one is refused, and so is a folder of another log.
	require.NoError(t, a.Start(t.Context()))
	other := s.run("archive", "--brokers", s.brokerList(), "--set", "archive.dir="+dir, "--set", "admin.addr=127.0.0.1:0")
	require.Equal(t, 1, other.code)
	require.Contains(t, other.stderr, "another process writes to")
	require.NoError(t, a.Stop())
	require.NoError(t, os.WriteFile(filepath.Join(dir, "archive.json"), []byte(`{"cluster_id": "another", "partitions": 4}`), 0o600))
	other = s.run("archive", "--brokers", s.brokerList(), "--set", "archive.dir="+dir, "--set", "admin.addr=127.0.0.1:0")
	require.Equal(t, 1, other.code)
	require.Contains(t, other.stderr, "another like-updates")
}

// archive makes a process that writes Parquet files, small ones.
func (s *system) archive(name, dir string) *stack.Server {
	admin := s.address()
	p := stack.NewProgram(stack.ProgramOptions{
		Name: name, Path: s.program, Dir: s.t.TempDir(), Log: s.log,
		Args: []string{"archive", "--brokers", s.brokerList(), "--set", "archive.dir=" + dir, "--set", "admin.addr=" + admin,
			"--set", "archive.flush_interval=50ms", "--set", "archive.max_rows=300"},
	})
	s.t.Cleanup(func() {
		if p.Running() {
			require.NoError(s.t, p.Stop())
		}
		s.showLog(p)
	})
	return p
}

// readArchive returns all rows, of whatever files there are.
func readArchive(t *testing.T, dir string) []archive.Row {
	paths, err := filepath.Glob(filepath.Join(dir, "hour=*", "*.parquet"))
	require.NoError(t, err)
	var rows []archive.Row
	for _, path := range paths {
		some, err := parquet.ReadFile[archive.Row](path)
		require.NoError(t, err, path)
		rows = append(rows, some...)
	}
	return rows
}

func nonZero(counts map[uint64]count) map[uint64]count {
	maps.DeleteFunc(counts, func(_ uint64, c count) bool { return c == count{} })
	return counts
}

// countsOf adds rows up.
func countsOf(rows []archive.Row) map[uint64]count {
	counts := map[uint64]count{}
	for _, r := range rows {
		c := counts[r.PostID]
		c.likes += r.Likes
		c.dislikes += r.Dislikes
		counts[r.PostID] = c
	}
	return counts
}
