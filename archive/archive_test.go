package archive

import (
	"errors"
	"log/slog"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/dev/testkit"
	"kudos/schema"
	"kudos/stream"
	"kudos/stream/kafka"
)

func TestArchivesOnlyCommittedUpdates(t *testing.T) {
	w := newWorld(t)
	w.commit(0, 3)
	w.transact(0, 2, kgo.TryAbort)
	w.commit(1, 1)
	w.transact(1, 5, kgo.TryAbort)
	p := w.start()
	w.waitArchived()
	p.waitReady()
	w.at = w.at.Add(time.Hour)
	w.commit(0, 2)
	w.commit(3, 0) // only duplicates: no rows
	w.waitArchived()
	testkit.WaitFor(t, "no lag (markers are not lag) and all rows to be counted", func() bool {
		return p.metric("kafka_consumergroup_lag", "archive") == 0 &&
			p.metric("kudos_archive_rows_total") == float64(len(w.want))
	})
	require.EqualValues(t, len(files(t, w.opts)), p.metric("kudos_archive_files_total"))
	require.Positive(t, p.metric("kudos_archive_bytes_total"))
	require.Equal(t, float64(partitions), p.metric("kudos_partition_state", "running"))
	groups := p.Detail().([]stream.GroupStatus)
	require.Equal(t, "archive", groups[0].Group)
	require.Len(t, groups[0].Partitions, partitions)
	p.stop()

	w.opts.RotateInterval = time.Hour
	p = w.start()
	p.waitReady()
	w.commit(0, 4)
	w.commit(2, 1)
	testkit.WaitFor(t, "all records to be read", func() bool {
		statuses, _ := p.follower.Status()
		return statuses[0].Position.Offset > 16 && statuses[2].Position.Offset > 2
	})
	p.stop()
	w.waitArchived() // the open files were finished
}

// TestArchiveStartsWhereUpdatesAreComplete checks that an archive skips updates that compaction has thinned out.
func TestArchiveStartsWhereUpdatesAreComplete(t *testing.T) {
	w := newWorld(t)
	for _, seq := range []uint64{3, 4, 900, 907} {
		w.next[2] = seq
		w.commit(2, 2)
	}
	w.want = w.want[len(w.want)-4:]
	p := w.start()
	w.waitArchived()
	w.commit(2, 1)
	w.waitArchived()
	p.waitReady()
	p.stop()

	// A partition that was empty has begun, too: its next update is not taken for the begin.
	w.next[1] = 7
	w.commitLost(1, 1)
	p = w.start()
	p.waitParked("1", "loss", "has seq 7 where 0 was expected")
}

// TestFailureLeavesAConsistentState checks that the open file is finished with the rows it has, whatever failed. But an
// archive must not begin with a gap: then the search for the begin is repeated.
func TestFailureLeavesAConsistentState(t *testing.T) {
	gap := stream.Park(stream.CauseLoss, elsewhere, "a gap")
	for what, c := range map[string]struct {
		begun bool
		err   error
		rows  int
		cause stream.Cause
	}{
		"Kafka is unavailable": {false, errors.New("away"), 1, stream.CauseUnavailable},
		"a gap":                {true, gap, 1, stream.CauseLoss},
		"a gap at its start":   {false, gap, 0, stream.CauseUnavailable},
	} {
		t.Run(what, func(t *testing.T) {
			o := testOptions(t)
			w := testWriter(t, testDirectory(t, o), o)
			require.NoError(t, w.begin(position{}, c.begun))
			w.mustTake(t, update(0, 0, noon, 1))
			err := (&partition{}).leave(w, c.err)
			require.Equal(t, c.cause, stream.FailureOf(err).Cause)
			require.Len(t, rowsOf(t, o), c.rows)
			w = testWriter(t, w.contents, o)
			require.Equal(t, c.rows > 0, w.begun)
		})
	}
}

// TestGapParksItsPartition checks that other partitions continue, and that what precedes the gap is archived.
func TestGapParksItsPartition(t *testing.T) {
	w := newWorld(t)
	w.commit(2, 1)
	p := w.start()
	w.waitArchived()
	w.next[2] += 3
	w.commitLost(2, 1)
	p.waitParked("2", "loss", "has seq 5 where 2 was expected")
	w.commit(1, 1)
	w.waitArchived()
	p.stop()
	p = w.start()
	p.waitParked("2", "loss", "has seq 5 where 2 was expected")
}

// TestLogWithoutTheNextOffsetParks covers a log that begins after the next offset, and one that ends before it.
func TestLogWithoutTheNextOffsetParks(t *testing.T) {
	w := newWorld(t)
	for p := range int32(partitions) {
		w.commit(p, 3)
	}
	p := w.start()
	w.waitArchived()
	p.stop()
	move := func(by int64) {
		d := testDirectory(t, w.opts)
		var was position
		found, err := d.read("_p1.json", &was)
		require.NoError(t, err)
		require.True(t, found)
		was.NextOffset += by
		require.NoError(t, d.write("_p1.json", was))
		require.NoError(t, d.Close())
	}
	move(100)
	p = w.start()
	p.waitParked("1", "loss", "like-updates/1 ends at offset 5, but is archived to 105")
	p.stop()
	move(-100)
	w.commit(1, 3)
	require.NoError(t, w.broker.DeleteRecords(schema.TopicUpdates, 1, 7))
	w.start().waitParked("1", "loss", "like-updates/1 starts at offset 7, but is archived only to 5")
}

func TestRecreatedTopicIsAnotherLog(t *testing.T) {
	w := newWorld(t)
	w.commit(0, 2)
	p := w.start()
	w.waitArchived()
	require.NoError(t, w.broker.DeleteTopic(schema.TopicUpdates))
	w.makeTopic()
	p.waitAllParked()
	require.ErrorContains(t, p.Ready(), "is the archive of another like-updates")
	p.stop()
	w.waitArchived()
	require.ErrorContains(t, w.archive().Run(t.Context()), "is the archive of another like-updates")
	w.opts.Dir = testOptions(t).Dir
	w.start().waitReady()
}

// TestFailingDiskLosesNothing checks that a disk failure parks the partition, which resumes when the disk works again.
func TestFailingDiskLosesNothing(t *testing.T) {
	w := newWorld(t)
	p := w.start()
	p.waitReady()
	inTheWay := p.opts.Dir + "/hour=2026-11-21T12"
	require.NoError(t, os.WriteFile(inTheWay, nil, 0o600))
	w.commit(1, 3)
	testkit.WaitFor(t, "the partition to park", func() bool {
		err := p.Ready()
		return err != nil && strings.Contains(err.Error(), "like-updates/1 parked: archive.dir: ")
	})
	w.commit(1, 2)
	require.NoError(t, os.Remove(inTheWay))
	w.waitArchived()
	p.waitReady()
	w.commit(1, 1)
	w.waitArchived()
}

// TestTwoAtOnce checks that a second process is rejected while the first continues.
func TestTwoAtOnce(t *testing.T) {
	w := newWorld(t)
	w.commit(0, 5)
	w.start()
	w.waitArchived()
	require.ErrorContains(t, w.archive().Run(t.Context()), "another process writes to "+w.opts.Dir)
	w.commit(0, 5)
	w.waitArchived()
}

// TestWaitsForTheTopic checks that the archive waits, and can be stopped while it does.
func TestWaitsForTheTopic(t *testing.T) {
	w := newEmptyWorld(t)
	p := w.start()
	testkit.WaitFor(t, "the missing topic to be reported", func() bool {
		return strings.Contains(p.Ready().Error(), "there is no topic like-updates")
	})
	p.stop()
	p = w.start()
	w.makeTopic()
	p.waitReady()
}

func TestOptions(t *testing.T) {
	require.NoError(t, DefaultOptions().Validate())
	err := Options{MaxRows: 999, RowGroupRows: -1, Compression: "lzo"}.Validate()
	for _, key := range strings.Fields("dir rotate_interval max_rows row_group_rows compression park_interval") {
		require.ErrorContains(t, err, "archive."+key+": ")
	}
	_, err = New(Options{}, kafka.DefaultOptions(), slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	require.Error(t, err)
}

// TestResumesWithAddedPartitions: the archive has no rows for moved reactions, since nobody's reaction has changed.
func TestResumesWithAddedPartitions(t *testing.T) {
	w := newWorld(t)
	w.commit(1, 3)
	p := w.start()
	w.waitArchived()
	_, err := kadm.NewClient(w.broker.Client()).CreatePartitions(t.Context(), 2, schema.TopicUpdates)
	require.NoError(t, err)
	w.connect()
	moved := schema.Update{Counts: schema.Counts{Likes: 1}, Moved: true, Other: 1}
	moved.Deltas = []schema.Delta{{Region: schema.Region{'D', 'E'}, Likes: 1}}
	rec := update(0, 0, w.at)
	rec.Value = schema.AppendUpdate(nil, &moved)
	w.write(5, kgo.TryCommit, rec, progress(0, 1, w.at))
	w.next[5] = 2
	w.commit(5, 2)
	w.commit(1, 1)
	w.waitArchived()
	testkit.WaitFor(t, "all partitions to be ready", func() bool {
		statuses, err := p.follower.Status()
		return err == nil && len(statuses) == partitions+2 && p.Ready() == nil
	})
	p.stop()
	w.commit(4, 1)
	p = w.start()
	w.waitArchived()
	p.stop()
}

// TestRunReportsOnlyTheLastFile: Run does not return the error of a file that an earlier Close could not finish.
func TestRunReportsOnlyTheLastFile(t *testing.T) {
	p := &partition{archive: &Archive{}, log: testkit.Log(), writer: newWriter(t, position{})}
	p.writer.mustTake(t, update(0, 0, noon, 1))
	require.NoError(t, p.writer.out.file.Close()) // simulates a full disk
	p.Close()
	left, _ := p.archive.left.Load(p.number)
	require.ErrorIs(t, left.(error), os.ErrClosed)
	p.Close()
	require.Empty(t, maps.Collect(p.archive.left.Range))
}
