package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"google.golang.org/protobuf/proto"

	"kudos/schema"
	"kudos/schema/kudosv1"
)

// archived is a row of the archive as this test reads it, independently of the program, by column names.
type archived struct {
	Partition    int32     `parquet:"partition"`
	Seq          uint64    `parquet:"seq"`
	Index        int32     `parquet:"index"`
	Offset       int64     `parquet:"offset"`
	Written      time.Time `parquet:"written,timestamp(millisecond)"`
	PostID       uint64    `parquet:"post_id"`
	Region       string    `parquet:"region"`
	Minute       time.Time `parquet:"minute,timestamp(millisecond)"`
	Likes        int64     `parquet:"likes"`
	Dislikes     int64     `parquet:"dislikes"`
	PostLikes    int64     `parquet:"post_likes"`
	PostDislikes int64     `parquet:"post_dislikes"`
}

type archivedName struct {
	partition int32
	seq       uint64
	index     int32
}

// archiver is one of several archivers for the same directory.
type archiver struct {
	*process
	dir string
}

// archiver returns an archiver that writes small files.
func (s *system) archiver(name, dir, rotateInterval string) *archiver {
	return &archiver{s.role(name, "archive", "--set", "archive.dir="+dir, "--set", "archive.max_rows=1000",
		"--set", "archive.rotate_interval="+rotateInterval, "--set", "archive.row_group_rows=100",
		"--set", "archive.park_interval=500ms"), dir}
}

// problem returns the readiness error of the archive.
func (a *archiver) problem() string {
	_, text := a.said("readyz")
	var answer struct{ Checks []struct{ Error string } }
	if json.Unmarshal([]byte(text), &answer) != nil {
		return text // no response
	}
	return answer.Checks[0].Error
}

// waitParked waits until readiness and log say that only partition 2 is parked, why, and what to do.
func (a *archiver) waitParked(why string) {
	waitSaid(a.t, time.Minute, "like-updates/2 to park", func() (bool, any) {
		said := a.problem()
		return strings.HasPrefix(said, "group archive: like-updates/2 parked: "+why) &&
			strings.Contains(said, "set archive.dir to a new directory") &&
			!strings.Contains(said, "; like-updates/"), said
	})
	require.Contains(a.t, a.logged(), `"msg":"partition is parked"`)
	require.Contains(a.t, a.logged(), why)
}

// position is the archive's own position, summed over all partitions.
func (a *archiver) position() (sum int64) {
	for _, path := range glob(a.t, a.dir, "_p*.json") {
		var at struct {
			NextOffset int64 `json:"next_offset"`
		}
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the object store replaces it
		}
		require.NoError(a.t, err)
		require.NoError(a.t, json.Unmarshal(text, &at))
		sum += at.NextOffset
	}
	return sum
}

func (a *archiver) unfinished() int { return len(glob(a.t, a.dir, "_*.unfinished")) }

func readArchive(t *testing.T, dir string) map[archivedName]archived {
	rows := map[archivedName]archived{}
	for _, path := range glob(t, dir, "hour=*", "*.parquet") {
		some, err := parquet.ReadFile[archived](path)
		require.NoError(t, err, path)
		for _, r := range some {
			name := archivedName{r.Partition, r.Seq, r.Index}
			if _, twice := rows[name]; twice {
				require.FailNow(t, "duplicate row", "%+v, one of them in %s", name, path)
			}
			if hour := r.Written.UTC().Format("hour=2006-01-02T15"); hour != filepath.Base(filepath.Dir(path)) {
				require.FailNow(t, "a row is in the wrong directory", "%+v of %s in %s", name, hour, path)
			}
			r.Written, r.Minute = r.Written.UTC(), r.Minute.UTC()
			rows[name] = r
		}
	}
	return rows
}

// changes returns the expected rows: like-updates, read by a plain consumer.
func (s *system) changes() map[archivedName]archived {
	rows := map[archivedName]archived{}
	s.readAll(schema.TopicUpdates, func(rec *kgo.Record) {
		var u kudosv1.LikeUpdate
		require.NoError(s.t, proto.Unmarshal(rec.Value, &u))
		for i, d := range u.Deltas {
			post, err := strconv.ParseUint(string(rec.Key), 10, 64)
			require.NoError(s.t, err)
			rows[archivedName{rec.Partition, u.Seq, int32(i)}] = archived{
				Partition: rec.Partition, Seq: u.Seq, Index: int32(i), Offset: rec.Offset, Written: rec.Timestamp.UTC(),
				PostID: post, Region: string(d.Region), Minute: time.Unix(60*d.Minute, 0).UTC(),
				Likes: d.Likes, Dislikes: d.Dislikes, PostLikes: u.LikeCount, PostDislikes: u.DislikeCount,
			}
		}
	})
	return rows
}

// requireArchived waits until all changes are in the archive, and compares every row.
func (s *system) requireArchived(t *testing.T, dir string) {
	s.requireRows(t, func() map[archivedName]archived { return readArchive(t, dir) })
}

func (s *system) requireRows(t *testing.T, read func() map[archivedName]archived) {
	want := s.changes()
	have := map[archivedName]archived{}
	waitSaid(t, 2*time.Minute, fmt.Sprintf("the archive to have %d rows", len(want)), func() (bool, any) {
		have = read()
		return len(have) >= len(want), len(have)
	})
	require.Equal(t, len(want), len(have), "rows")
	for name, row := range want {
		if have[name] != row {
			require.Equal(t, row, have[name])
		}
	}
}

// startBoth starts two archivers at once and returns the one that may write.
func startBoth(t *testing.T, a, b *archiver) *archiver {
	refused := make(chan *archiver, 2)
	for _, x := range []*archiver{a, b} {
		if err := x.Start(t.Context()); err != nil { // it has ended already
			require.ErrorContains(t, err, "another process writes to")
		}
		go func() { <-x.Done(); refused <- x }()
	}
	select {
	case x := <-refused:
		require.Contains(t, x.LogTail(), "another process writes to "+x.dir)
		if x == a {
			return b
		}
		return a
	case <-time.After(time.Minute):
		require.FailNow(t, "both archivers are running")
		return nil
	}
}

// abort writes a transaction with what looks like the next updates to every partition of like-updates, and aborts it.
func (s *system) abort() {
	cl := s.client(kgo.TransactionalID("aborted"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(s.t, cl.BeginTransaction())
	for p, last := range s.lastRecords(schema.TopicUpdates) {
		var u schema.Update
		require.NoError(s.t, schema.DecodeUpdate(last.Value, &u))
		require.NoError(s.t, cl.ProduceSync(s.t.Context(), foreignUpdate(p, 7, u.Seq+1, 1000)).FirstErr())
	}
	require.NoError(s.t, cl.EndTransaction(s.t.Context(), kgo.TryAbort))
}

// TestArchiveHasEachChangeOnce kills the archiver repeatedly, and restarts two at once each time. It also kills the
// processor, so that transactions are left open and then aborted.
func TestArchiveHasEachChangeOnce(t *testing.T) {
	s := verified(t)
	events, wanted := fromEnv(t, "KUDOS_TEST_EVENTS", 150_000), fromEnv(t, "KUDOS_TEST_KILLS", 15)
	s.toggles(1, events)
	processor := s.processor("processor", "--set", "processor.max_batch=25").start()
	dir := filepath.Join(t.TempDir(), "archive")
	a, b := s.archiver("archive-a", dir, "50ms"), s.archiver("archive-b", dir, "50ms")
	random := rand.New(rand.NewPCG(1, 2))
	halfWritten := 0
	for kill := range wanted {
		now := startBoth(t, a, b)
		before := now.position()
		waitFor(t, time.Minute, "the archive to advance", func() bool { return now.position() > before })
		pause(t, time.Duration(random.IntN(150))*time.Millisecond)
		now.kill()
		if now.unfinished() > 0 {
			halfWritten++
		}
		committed, end := s.standing()
		require.Less(t, committed, end, "the log was fully consumed after kill %d of %d", kill, wanted)
		if kill%5 == 4 {
			processor.kill()
			processor.start()
		}
	}
	require.Positive(t, halfWritten)
	now := startBoth(t, a, b)
	processor.stop()
	s.processor("processor-2").start()
	s.drain(3 * time.Minute)
	s.abort()
	s.toggles(2, 5_000)
	s.drain(time.Minute)
	s.requireArchived(t, dir)
	s.requireExact()
	now.stop()
	require.Zero(t, now.unfinished(), "after a clean shutdown")
}

// TestArchiveStopsWithUnfinishedFiles: when the archiver has stopped, everything that it had read is in files. The lag
// is 0 at the end of the log, although the last record is a marker.
func TestArchiveStopsWithUnfinishedFiles(t *testing.T) {
	s := verified(t)
	s.processor("processor").start()
	dir := filepath.Join(t.TempDir(), "archive")
	a := s.archiver("archive", dir, "1h")
	a.start()
	var likes []schema.Event
	for user := range uint64(500) {
		likes = append(likes, likeNow(user%50, user))
	}
	s.produce(likes...)
	s.drain(time.Minute)
	last := s.lastRecords(schema.TopicUpdates)
	require.Len(t, last, partitions)
	waitFor(t, time.Minute, "all updates to be read", func() bool {
		if a.problem() != "" {
			return false
		}
		read := 0
		for _, at := range a.samples("kudos_position", nil) {
			p, err := strconv.Atoi(at.labels["partition"])
			require.NoError(t, err)
			if at.value > float64(last[int32(p)].Offset) {
				read++
			}
		}
		return read == partitions
	})
	for _, row := range readArchive(t, dir) { // a file is written when its hour is over
		hour := last[row.Partition].Timestamp.UTC().Truncate(time.Hour)
		require.True(t, row.Written.Before(hour), "a row of the current hour was written too early: %+v", row)
	}
	a.stop()
	s.requireArchived(t, dir)
	require.Contains(t, a.logged(), `"msg":"file finished"`)
}

// newArchived returns a system with all changes in an archive, and the stopped archiver.
func newArchived(t *testing.T) (*parks, *archiver) {
	p := newRealParks(t)
	a := p.archiver("archive", filepath.Join(t.TempDir(), "archive"), "50ms")
	a.start()
	p.requireArchived(t, a.dir)
	a.stop()
	return p, a
}

func (p *parks) archiveAgain(t *testing.T) (dir string) {
	dir = filepath.Join(t.TempDir(), "again")
	p.archiver("archive-again", dir, "50ms").start()
	p.requireArchived(t, dir)
	return dir
}

// TestArchiveParksWhereUpdatesAreGone: the partition parks, the others continue. A new directory starts with the rest.
func TestArchiveParksWhereUpdatesAreGone(t *testing.T) {
	p, a := newArchived(t)
	before := readArchive(t, a.dir)
	p.like(20)
	p.waitCounted()
	end := p.lastRecords(schema.TopicUpdates)[2].Offset
	p.deleteBefore(schema.TopicUpdates, map[int32]int64{2: end})
	a.start()
	a.waitParked(fmt.Sprintf("like-updates/2 starts at offset %d", end))
	want := p.changes()
	maps.DeleteFunc(want, func(name archivedName, _ archived) bool { return name.partition == 2 })
	maps.Copy(want, before)
	waitFor(t, time.Minute, "the others to continue", func() bool { return len(readArchive(t, a.dir)) == len(want) })
	require.Equal(t, want, readArchive(t, a.dir))
	a.stop()

	p.archiveAgain(t)
}

// TestArchiveOfRecreatedUpdates: an archive belongs to one log. The recreated log's starts with current counts.
func TestArchiveOfRecreatedUpdates(t *testing.T) {
	p, a := newArchived(t)
	p.stop()
	p.deleteTopic(schema.TopicUpdates)
	p.topicsApply()
	p.rebuild("--updates")
	p.start()
	p.like(5)
	p.waitCounted()
	p.fails([]string{"archive", "--brokers", p.brokerList(), "--set", "archive.dir=" + a.dir,
		"--set", "admin.addr=127.0.0.1:0"},
		a.dir+" is the archive of another like-updates", "set archive.dir to a new directory")

	again := p.archiveAgain(t)
	sums := map[int32]int64{}
	for name, row := range readArchive(t, again) {
		sums[name.partition] += row.Likes
	}
	require.Equal(t, p.want, sums)
}

// TestArchiveNoticesAnUncleanElection: archived records are lost from the log, and later records get their offsets.
// (The test writes them itself, instead of processors.)
func TestArchiveNoticesAnUncleanElection(t *testing.T) {
	r := newTwoReplicas(t, schema.TopicUpdates, 2)
	seq := map[int32]uint64{}
	write := func(n int, to ...int32) {
		var records []*kgo.Record
		for _, p := range to {
			for range n {
				records = append(records, foreignUpdate(p, 7, seq[p], 1))
				seq[p]++
			}
		}
		r.write(records...)
	}
	dir := filepath.Join(t.TempDir(), "archive")
	a := r.archiver("archive", dir, "50ms")
	a.start()
	write(20, 1, 2)
	r.requireArchived(t, dir)
	require.NoError(t, r.second.Kill())
	r.waitReplicas(0, 1)
	write(20, 2)
	r.requireArchived(t, dir)
	r.electUncleanly()
	a.waitParked("like-updates/2 ends at offset 20, but is archived to 40")
	require.NoError(t, r.first.Start(t.Context()))
	write(30, 2) // the next seqs: the writer does not know of the loss
	a.waitParked("like-updates/2 offset 40 has seq 60 where 40 was expected")
	write(5, 1)
	waitFor(t, time.Minute, "the others to continue", func() bool { return len(readArchive(t, dir)) == 65 })
}
