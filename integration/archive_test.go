package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"google.golang.org/protobuf/proto"

	"kudos/integration/stack"
	"kudos/integration/tier"
	"kudos/schema"
	"kudos/schema/kudosv1"
)

// archived is a row as this test reads it: by the names of the columns, and no code but this.
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

// archiver is one of those that want to write to the same folder.
type archiver struct {
	*stack.Server
	s     *system
	dir   string
	admin string
}

// archiver makes an archiver of small files.
func (s *system) archiver(name, dir, rotateInterval string) *archiver {
	a := &archiver{s: s, dir: dir, admin: s.address()}
	a.Server = s.role(name, "archive", s.t.TempDir(), "--set", "archive.dir="+dir, "--set", "admin.addr="+a.admin,
		"--set", "archive.rotate_interval="+rotateInterval, "--set", "archive.max_rows=1000", "--set", "archive.row_group_rows=100",
		"--set", "archive.park_interval=500ms")
	return a
}

// said is what readiness says of the archive.
func (a *archiver) said() string {
	resp, err := http.Get("http://" + a.admin + "/readyz")
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	var answer struct{ Checks []struct{ Error string } }
	require.NoError(a.s.t, json.NewDecoder(resp.Body).Decode(&answer))
	return answer.Checks[0].Error
}

// waitParked waits until readiness and log say that partition 2 alone is parked, why, and what
// helps.
func (a *archiver) waitParked(why string) {
	a.s.t.Helper()
	var said string
	defer func() {
		if a.s.t.Failed() {
			a.s.t.Log("archive: ", said)
		}
	}()
	waitFor(a.s.t, time.Minute, "like-updates/2 to park", func() bool {
		said = a.said()
		return strings.HasPrefix(said, "group archive: like-updates/2 parked: "+why) &&
			strings.Contains(said, "set archive.dir to a new folder") && !strings.Contains(said, "; like-updates/")
	})
	text, err := os.ReadFile(a.LogPath())
	require.NoError(a.s.t, err)
	require.Contains(a.s.t, string(text), `"msg":"partition is parked"`)
	require.Contains(a.s.t, string(text), why)
}

// position is how far the archive has come, all partitions together: by its own word.
func (a *archiver) position() (sum int64) {
	for p := range a.s.partitions {
		text, err := os.ReadFile(filepath.Join(a.dir, fmt.Sprintf("_p%d.json", p)))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		require.NoError(a.s.t, err)
		var at struct {
			NextOffset int64 `json:"next_offset"`
		}
		require.NoError(a.s.t, json.Unmarshal(text, &at))
		sum += at.NextOffset
	}
	return sum
}

func (a *archiver) unfinished() int {
	left, err := filepath.Glob(filepath.Join(a.dir, "_*.unfinished"))
	require.NoError(a.s.t, err)
	return len(left)
}

// readArchive reads all files that others see.
func readArchive(t *testing.T, dir string) map[archivedName]archived {
	paths, err := filepath.Glob(filepath.Join(dir, "hour=*", "*.parquet"))
	require.NoError(t, err)
	rows := map[archivedName]archived{}
	for _, path := range paths {
		some, err := parquet.ReadFile[archived](path)
		require.NoError(t, err, path)
		for _, r := range some {
			name := archivedName{r.Partition, r.Seq, r.Index}
			if _, twice := rows[name]; twice {
				t.Fatalf("row %+v is there twice, one of them in %s", name, path)
			}
			if hour := r.Written.UTC().Format("hour=2006-01-02T15"); hour != filepath.Base(filepath.Dir(path)) {
				t.Fatalf("row %+v of %s is in %s", name, hour, path)
			}
			r.Written, r.Minute = r.Written.UTC(), r.Minute.UTC()
			rows[name] = r
		}
	}
	return rows
}

// changes are the rows that must come out: like-updates, read by a plain consumer.
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

// requireArchived waits for all changes to be in the archive, and compares every row.
func (s *system) requireArchived(t *testing.T, dir string) {
	t.Helper()
	want := s.changes()
	have := map[archivedName]archived{}
	defer func() {
		if t.Failed() {
			t.Logf("%d rows of %d", len(have), len(want))
		}
	}()
	waitFor(t, 2*time.Minute, "the archive to have all", func() bool {
		have = readArchive(t, dir)
		return len(have) >= len(want)
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
	t.Helper()
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
		require.FailNow(t, "both archivers run")
		return nil
	}
}

// abort writes a transaction to every partition of like-updates that looks like the next updates,
// and takes it back.
func (s *system) abort() {
	s.t.Helper()
	cl := s.client(kgo.TransactionalID("aborted"), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DefaultProduceTopic(schema.TopicUpdates))
	require.NoError(s.t, cl.BeginTransaction())
	for p, last := range s.lastRecords(schema.TopicUpdates) {
		var u schema.Update
		require.NoError(s.t, schema.DecodeUpdate(last.Value, &u))
		next := schema.Update{Seq: u.Seq + 1, Deltas: []schema.Delta{{Region: schema.UnknownRegion, Minute: 1, Likes: 1000}}}
		require.NoError(s.t, cl.ProduceSync(s.t.Context(), &kgo.Record{Partition: p, Key: []byte("7"), Value: schema.AppendUpdate(nil, &next)}).FirstErr())
	}
	require.NoError(s.t, cl.EndTransaction(s.t.Context(), kgo.TryAbort))
}

// TestArchiveHasEachChangeOnce: the archiver is killed in the middle again and again, and each
// time two are started at once; the processor is killed, too, so that transactions are left open
// and aborted. The files have each row of like-updates once.
func TestArchiveHasEachChangeOnce(t *testing.T) {
	tier.Verify(t)
	t.Parallel()
	s := newRealSystem(t)
	events, wanted := fromEnv(t, "KUDOS_TEST_EVENTS", 150_000), fromEnv(t, "KUDOS_TEST_KILLS", 15)
	s.toggles(1, events)
	adm := kadm.NewClient(s.client())
	processor := s.processor("processor", "--set", "processor.max_batch=25")
	require.NoError(t, processor.Start(t.Context()))
	dir := filepath.Join(t.TempDir(), "archive")
	a, b := s.archiver("archive-a", dir, "50ms"), s.archiver("archive-b", dir, "50ms")
	random := rand.New(rand.NewPCG(1, 2))
	kills, halfWritten, open := 0, 0, 0
	for kills < wanted {
		now := startBoth(t, a, b)
		before := now.position()
		waitFor(t, time.Minute, "the archive to go on", func() bool { return now.position() > before })
		pause(t, time.Duration(random.IntN(150))*time.Millisecond)
		require.NoError(t, now.Kill())
		kills++
		if now.unfinished() > 0 {
			halfWritten++
		}
		committed, end := s.standing(adm)
		require.Less(t, committed, end, "the log was used up after %d kills of %d", kills, wanted)
		if kills%5 == 0 {
			require.NoError(t, processor.Kill())
			open += s.openTransactions(adm)
			require.NoError(t, processor.Start(t.Context()))
		}
	}
	t.Logf("kills %d, of which with a half-written file %d; transactions left open by the processor %d", kills, halfWritten, open)
	require.Positive(t, halfWritten)
	now := startBoth(t, a, b)
	require.NoError(t, processor.Stop())
	processor = s.processor("processor-2")
	require.NoError(t, processor.Start(t.Context()))
	s.drain(3 * time.Minute)
	s.abort()
	s.toggles(2, 5_000)
	s.drain(time.Minute)
	s.requireArchived(t, dir)
	s.requireExact()
	require.NoError(t, now.Stop())
	require.Zero(t, now.unfinished(), "after a clean end")
}

// TestArchiveStopsWithFilesInHand: what was read by then is there when it has ended. And the lag
// is none at the end of the log, whose last record is a marker.
func TestArchiveStopsWithFilesInHand(t *testing.T) {
	tier.Verify(t)
	t.Parallel()
	s := newRealSystem(t)
	processor := s.processor("processor")
	require.NoError(t, processor.Start(t.Context()))
	dir := filepath.Join(t.TempDir(), "archive")
	a := s.archiver("archive", dir, "1h")
	require.NoError(t, a.Start(t.Context()))
	var likes []schema.Event
	for user := range uint64(500) {
		likes = append(likes, schema.Event{PostID: user % 50, UserID: user, Action: schema.Like, TimeMs: time.Now().UnixMilli(), Region: schema.UnknownRegion})
	}
	s.produce(records(likes))
	s.drain(time.Minute)
	last := s.lastRecords(schema.TopicUpdates)
	require.Len(t, last, partitions)
	waitFor(t, time.Minute, "all to be read", func() bool {
		if a.said() != "" {
			return false
		}
		read := 0
		for _, m := range scrape(t, a.admin)["kudos_position"].GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() != "partition" {
					continue
				}
				p, err := strconv.Atoi(l.GetValue())
				require.NoError(t, err)
				if m.GetGauge().GetValue() > float64(last[int32(p)].Offset) {
					read++
				}
			}
		}
		return read == partitions
	})
	for _, row := range readArchive(t, dir) { // a file is due when the hour is over
		hour := last[row.Partition].Timestamp.UTC().Truncate(time.Hour)
		require.True(t, row.Written.Before(hour), "nothing of the present hour is due: %+v", row)
	}
	require.NoError(t, a.Stop())
	s.requireArchived(t, dir)
	text, err := os.ReadFile(a.LogPath())
	require.NoError(t, err)
	require.Contains(t, string(text), `"msg":"file finished"`)
}

// TestArchiveParksWhereUpdatesAreGone: the partition says so, and the others go on. A new folder
// has what there is.
func TestArchiveParksWhereUpdatesAreGone(t *testing.T) {
	tier.Verify(t)
	t.Parallel()
	p := newRealParks(t)
	dir := filepath.Join(t.TempDir(), "archive")
	a := p.archiver("archive", dir, "50ms")
	require.NoError(t, a.Start(t.Context()))
	p.requireArchived(t, dir)
	require.NoError(t, a.Stop())
	before := readArchive(t, dir)
	p.like(20)
	p.waitCounted()
	end := p.lastRecords(schema.TopicUpdates)[2].Offset
	p.deleteBefore(schema.TopicUpdates, 2, end)
	require.NoError(t, a.Start(t.Context()))
	a.waitParked(fmt.Sprintf("like-updates/2 begins at offset %d", end))
	want := p.changes()
	for name := range want {
		if name.partition == 2 {
			delete(want, name)
		}
	}
	for name, row := range before {
		want[name] = row
	}
	waitFor(t, time.Minute, "the others to go on", func() bool { return len(readArchive(t, dir)) == len(want) })
	require.Equal(t, want, readArchive(t, dir))
	require.NoError(t, a.Stop())

	anew := filepath.Join(t.TempDir(), "anew")
	require.NoError(t, p.archiver("archive-anew", anew, "50ms").Start(t.Context()))
	p.requireArchived(t, anew)
}

// TestArchiveOfUpdatesMadeAnew: an archive is of one log. The new one's begins with what stands.
func TestArchiveOfUpdatesMadeAnew(t *testing.T) {
	tier.Verify(t)
	t.Parallel()
	p := newRealParks(t)
	dir := filepath.Join(t.TempDir(), "archive")
	a := p.archiver("archive", dir, "50ms")
	require.NoError(t, a.Start(t.Context()))
	p.requireArchived(t, dir)
	require.NoError(t, a.Stop())
	p.stop()
	p.deleteTopic(schema.TopicUpdates)
	require.Zero(t, p.topicsApply().code)
	p.rebuild("--updates")
	p.start()
	p.like(5)
	p.waitCounted()
	refused := p.run("archive", "--brokers", p.brokerList(), "--set", "archive.dir="+dir, "--set", "admin.addr=127.0.0.1:0")
	require.Equal(t, 1, refused.code)
	require.Contains(t, refused.stderr, dir+" is the archive of another like-updates")
	require.Contains(t, refused.stderr, "set archive.dir to a new folder")

	anew := filepath.Join(t.TempDir(), "anew")
	require.NoError(t, p.archiver("archive-anew", anew, "50ms").Start(t.Context()))
	p.requireArchived(t, anew)
	sums := map[int32]int64{}
	for name, row := range readArchive(t, anew) {
		sums[name.partition] += row.Likes
	}
	require.Equal(t, p.want, sums)
}

// TestArchiveNoticesAnUncleanElection: what was archived is gone from the log, and later others
// have its offsets. (Who writes here is this test, in the place of the processors.)
func TestArchiveNoticesAnUncleanElection(t *testing.T) {
	tier.Verify(t)
	t.Parallel()
	r := newTwoReplicas(t, schema.TopicUpdates, 2)
	cl := r.client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DefaultProduceTopic(schema.TopicUpdates))
	seq := map[int32]uint64{}
	write := func(n int, to ...int32) {
		var records []*kgo.Record
		for _, p := range to {
			for range n {
				u := schema.Update{Seq: seq[p], Deltas: []schema.Delta{{Region: schema.UnknownRegion, Minute: 1, Likes: 1}}}
				records = append(records, &kgo.Record{Partition: p, Key: []byte("7"), Value: schema.AppendUpdate(nil, &u)})
				seq[p]++
			}
		}
		require.NoError(t, cl.ProduceSync(t.Context(), records...).FirstErr())
	}
	dir := filepath.Join(t.TempDir(), "archive")
	a := r.archiver("archive", dir, "50ms")
	require.NoError(t, a.Start(t.Context()))
	write(20, 1, 2)
	r.requireArchived(t, dir)
	require.NoError(t, r.second.Kill())
	r.waitReplicas(0, 1)
	write(20, 2)
	r.requireArchived(t, dir)
	r.electUncleanly()
	a.waitParked("like-updates/2 ends at offset 20, and was archived to 40")
	require.NoError(t, r.first.Start(t.Context()))
	write(30, 2) // the next numbers: who writes knows of no loss
	a.waitParked("like-updates/2 offset 40 has seq 60 where 40 was to come")
	write(5, 1)
	waitFor(t, time.Minute, "the others to go on", func() bool { return len(readArchive(t, dir)) == 65 })
}
