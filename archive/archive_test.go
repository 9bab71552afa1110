package archive

import (
	"errors"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/schema"
	"kudos/stream"
	"kudos/stream/kafka"
)

// TestArchivesWhatIsCommitted and nothing else, and goes on after an end.
func TestArchivesWhatIsCommitted(t *testing.T) {
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
	w.commit(3, 0) // duplicates only: no rows
	w.waitArchived()
	waitFor(t, "the lag to be none: markers are no lag", func() bool { return p.metric("kafka_consumergroup_lag", "consumergroup", "archive") == 0 })
	waitFor(t, "the rows to be counted", func() bool { return p.metric("kudos_archive_rows_total", "", "") == float64(len(w.want)) })
	require.EqualValues(t, len(files(t, w.opts)), p.metric("kudos_archive_files_total", "", ""))
	require.Positive(t, p.metric("kudos_archive_bytes_total", "", ""))
	require.Equal(t, float64(partitions), p.metric("kudos_partition_state", "state", "running"))
	groups := p.Detail().([]stream.GroupStatus)
	require.Equal(t, "archive", groups[0].Group)
	require.Len(t, groups[0].Partitions, partitions)
	p.stop()

	w.opts.RotateInterval = time.Hour
	p = w.start()
	p.waitReady()
	w.commit(0, 4)
	w.commit(2, 1)
	waitFor(t, "all to be read", func() bool {
		statuses, _ := p.follower.Status()
		return statuses[0].Position.Offset > 16 && statuses[2].Position.Offset > 2
	})
	p.stop()
	w.waitArchived() // the files in hand were finished
}

// TestBeginsWhereTheUpdatesAreWhole: what compaction has left of the old ones is no history.
func TestBeginsWhereTheUpdatesAreWhole(t *testing.T) {
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

	// Where nothing was yet the archive has begun, too: what comes is not taken for the begin.
	want := w.want
	w.next[1] = 7
	w.commit(1, 1)
	w.want = want
	p = w.start()
	p.waitParked("1", "loss", "has seq 7 where 0 was to come")
}

// TestWhatAFailureLeaves: the file in hand is whole as far as it goes, whatever failed. But an
// archive does not begin with a gap: then the begin is looked for again.
func TestWhatAFailureLeaves(t *testing.T) {
	gap := stream.Park(stream.CauseLoss, elsewhere, "a gap")
	for what, c := range map[string]struct {
		begun bool
		err   error
		rows  int
		cause stream.Cause
	}{
		"Kafka is away":         {false, errors.New("away"), 1, stream.CauseUnavailable},
		"a gap":                 {true, gap, 1, stream.CauseLoss},
		"a gap where it begins": {false, gap, 0, stream.CauseUnavailable},
	} {
		t.Run(what, func(t *testing.T) {
			o := testOptions(t)
			w := testWriter(t, testFolder(t, o), o)
			require.NoError(t, w.begin(position{}, c.begun))
			require.NoError(t, w.take([]*kgo.Record{update(0, 0, noon, 1)}, 1, noon))
			err := (&partition{}).leave(w, c.err)
			require.Equal(t, c.cause, stream.TroubleOf(err).Cause)
			require.Len(t, rowsOf(t, o), c.rows)
			w = testWriter(t, w.folder, o)
			require.Equal(t, c.rows > 0, w.begun)
		})
	}
}

// TestAGapParksItsPartition and no other; what was before it is archived.
func TestAGapParksItsPartition(t *testing.T) {
	w := newWorld(t)
	w.commit(2, 1)
	p := w.start()
	w.waitArchived()
	w.next[2] += 3
	want := w.want
	w.commit(2, 1)
	w.want = want
	p.waitParked("2", "loss", "has seq 5 where 2 was to come")
	w.commit(1, 1)
	w.waitArchived()
	p.stop()
	p = w.start()
	p.waitParked("2", "loss", "has seq 5 where 2 was to come")
}

// TestALogThatDoesNotHaveWhatIsNextParks: it begins behind it, or ends before it.
func TestALogThatDoesNotHaveWhatIsNextParks(t *testing.T) {
	w := newWorld(t)
	for p := range int32(partitions) {
		w.commit(p, 3)
	}
	p := w.start()
	w.waitArchived()
	p.stop()
	t.Run("its end was cut off", func(t *testing.T) {
		f := testFolder(t, w.opts)
		var was position
		found, err := f.read("_p1.json", &was)
		require.NoError(t, err)
		require.True(t, found)
		ahead := was
		ahead.NextOffset += 100
		require.NoError(t, f.write("_p1.json", ahead))
		require.NoError(t, f.Close())
		p := w.start()
		p.waitParked("1", "loss", "like-updates/1 ends at offset 5, and was archived to 105")
		p.stop()
		f = testFolder(t, w.opts)
		require.NoError(t, f.write("_p1.json", was))
	})
	t.Run("its beginning was deleted", func(t *testing.T) {
		w.commit(1, 3)
		var upTo kadm.Offsets
		upTo.Add(kadm.Offset{Topic: schema.TopicUpdates, Partition: 1, At: 7})
		_, err := kadm.NewClient(w.client()).DeleteRecords(t.Context(), upTo)
		require.NoError(t, err)
		p := w.start()
		p.waitParked("1", "loss", "like-updates/1 begins at offset 7, and was archived to 5 only")
	})
}

// TestATopicMadeAnewIsAnotherLog, and that is what is said of it.
func TestATopicMadeAnewIsAnotherLog(t *testing.T) {
	w := newWorld(t)
	w.commit(0, 2)
	p := w.start()
	w.waitArchived()
	require.NoError(t, w.broker.DeleteTopic(schema.TopicUpdates))
	w.makeTopic()
	waitFor(t, "all to park", func() bool { return p.metric("kudos_parked_partitions", "cause", "topics") == partitions })
	require.ErrorContains(t, p.Ready(), "is the archive of another like-updates")
	p.stop()
	w.waitArchived()
	p = w.start()
	require.ErrorContains(t, p.ended(), "is the archive of another like-updates")
	w.opts = testOptions(t)
	w.opts.RotateInterval = 20 * time.Millisecond
	p = w.start()
	p.waitReady()
}

// TestATopicMadeAnewUnderOnesHands: when it had just been looked at. It is as long as the old one,
// and its numbers go on like those.
func TestATopicMadeAnewUnderOnesHands(t *testing.T) {
	w := newWorld(t)
	w.commit(0, 2)
	p := w.start()
	w.waitArchived()
	p.stop()
	want := w.want
	reached, released := make(chan struct{}, partitions), make(chan struct{})
	release := sync.OnceFunc(func() { close(released) })
	t.Cleanup(release)
	w.broker.ControlKey(int16(kmsg.ListOffsets), func(kmsg.Request) (kmsg.Response, error, bool) {
		w.broker.KeepControl()
		w.broker.SleepControl(func() { // other requests go on meanwhile
			select {
			case reached <- struct{}{}:
			default:
			}
			<-released
		})
		return nil, nil, false
	})
	p = w.start()
	select {
	case <-reached:
	case <-time.After(patience):
		require.FailNow(t, "nobody asks where the log ends")
	}
	require.NoError(t, w.broker.DeleteTopic(schema.TopicUpdates))
	w.makeTopic()
	w.connect()
	w.next[0] = 0
	w.commit(0, 2)
	w.commit(0, 2)
	release()
	waitFor(t, "all to park", func() bool { return p.metric("kudos_parked_partitions", "cause", "topics") == partitions })
	p.stop()
	w.want = want
	w.waitArchived()
}

// TestADiskInTroubleLosesNothing: the partition is parked, and goes on when there is room again.
func TestADiskInTroubleLosesNothing(t *testing.T) {
	w := newWorld(t)
	p := w.start()
	p.waitReady()
	inTheWay := p.opts.Dir + "/hour=2026-11-21T12"
	require.NoError(t, os.WriteFile(inTheWay, nil, 0o600))
	w.commit(1, 3)
	waitFor(t, "the partition to park", func() bool {
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

// TestTwoAtOnce: one is told that the other is there, whoever comes first.
func TestTwoAtOnce(t *testing.T) {
	w := newWorld(t)
	w.commit(0, 5)
	a, b := w.start(), w.start()
	refused := a
	select {
	case <-a.done:
	case <-b.done:
		refused = b
	case <-time.After(patience):
		require.FailNow(t, "both run")
	}
	require.ErrorContains(t, refused.err, "another process writes to "+w.opts.Dir)
	w.waitArchived()
}

// TestWaitsForTheTopic, and can be stopped meanwhile.
func TestWaitsForTheTopic(t *testing.T) {
	w := newEmptyWorld(t)
	p := w.start()
	waitFor(t, "it to say so", func() bool { return strings.Contains(p.Ready().Error(), "there is no topic like-updates") })
	p.stop()
	p = w.start()
	w.makeTopic()
	p.waitReady()
}

func TestOptions(t *testing.T) {
	require.NoError(t, DefaultOptions().Validate())
	err := Options{MaxRows: 999, RowGroupRows: -1, Compression: "lzo"}.Validate()
	for _, what := range []string{"dir", "rotate_interval", "max_rows", "row_group_rows", "compression", "park_interval"} {
		require.ErrorContains(t, err, "archive."+what+": ")
	}
	_, err = New(Options{}, kafka.DefaultOptions(), slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	require.Error(t, err)
}

// TestGoesOnWithPartitionsThatWereAdded, in the same folder; what has moved there is no row: nobody's reaction has changed.
func TestGoesOnWithPartitionsThatWereAdded(t *testing.T) {
	w := newWorld(t)
	w.commit(1, 3)
	p := w.start()
	w.waitArchived()
	_, err := kadm.NewClient(w.client()).CreatePartitions(t.Context(), 2, schema.TopicUpdates)
	require.NoError(t, err)
	w.connect()
	require.NoError(t, w.writer.BeginTransaction())
	moved := schema.Update{Counts: schema.Counts{Likes: 1}, Deltas: []schema.Delta{{Region: schema.Region{'D', 'E'}, Likes: 1}}, Moved: true, Other: 1}
	rec := &kgo.Record{Partition: 5, Key: schema.AppendPostKey(nil, 7), Value: schema.AppendUpdate(nil, &moved), Timestamp: w.at}
	last := progress(0, 1, w.at)
	last.Partition = 5
	require.NoError(t, w.writer.ProduceSync(t.Context(), rec, last).FirstErr())
	require.NoError(t, w.writer.EndTransaction(t.Context(), kgo.TryCommit))
	w.next[5] = 2
	w.commit(5, 2)
	w.commit(1, 1)
	w.waitArchived()
	waitFor(t, "all partitions to be ready", func() bool {
		statuses, err := p.follower.Status()
		return err == nil && len(statuses) == partitions+2 && p.Ready() == nil
	})
	p.stop()
	w.commit(4, 1)
	p = w.start()
	w.waitArchived()
	p.stop()
}

// TestRunReportsOnlyTheLastFile: the error of a file that an earlier Close could not finish is not that of Run.
func TestRunReportsOnlyTheLastFile(t *testing.T) {
	a := &Archive{}
	p := &partition{archive: a, left: errors.New("the disk was full for a while")}
	p.Close()
	p.Leave()
	require.Empty(t, a.left.errs)
}
