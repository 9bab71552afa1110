package chaos

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/integration/oracle"
	"kudos/integration/stack"
	"kudos/integration/tier"
)

// shortKinds are one kind of each sort, and those that no other test covers. `make chaos` runs all kinds.
var shortKinds = []string{"processor-kill", "state-deleted", "reader-disk-lost", "broker-kill-coordinator",
	"mysql-failover", "mysql-reply-lost", "kafka-reset", "events-poison", "events-misrouted"}

// TestCountsAreExactUnderFaults is the short form of make chaos. At the end it runs the action for torn transactions,
// and then changes the database, to verify that the oracle detects a difference.
func TestCountsAreExactUnderFaults(t *testing.T) {
	tier.Turn(2)(t)
	stack.Require(t, stack.NeedKafka, stack.NeedMariaDB)
	o := DefaultOptions()
	o.Kinds, o.Faults, o.FaultsPerEpisode, o.Rate = shortKinds, len(shortKinds), len(shortKinds), 4000
	o.For = 45 * time.Second // missed faults are retried only until then
	o.Dir = t.TempDir()
	openUp(t, o.Dir)
	o.Out, o.Log = t.Output(), slog.New(slog.NewTextHandler(t.Output(), nil))
	var err error
	o.Program, err = stack.BuildKudos(t.Context(), o.Dir, stack.ForTests())
	require.NoError(t, err)

	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	sys, err := startSystem(ctx, o)
	require.NoError(t, err)
	defer func() { require.NoError(t, sys.close()) }()
	r := &run{opts: o, begin: time.Now(), sys: sys, watch: newWatch(sys)}
	report, err := r.all(ctx)
	require.NoError(t, err)
	require.Zero(t, report.Differences, "%s", strings.Join(report.Details, "\n"))
	require.GreaterOrEqual(t, report.Faults, len(shortKinds)/2, "too few faults were injected")
	require.Positive(t, report.Events)
	t.Log(report.Line())

	r.oracle, err = oracle.New(sys.kafka.Brokers())
	require.NoError(t, err)
	defer r.oracle.Close()
	require.NoError(t, r.action(ctx))
	left, err := r.drain(ctx, time.Minute)
	require.NoError(t, err)
	require.Empty(t, left)
	requireSeen(ctx, t, r)
}

func openUp(t *testing.T, dir string) {
	for ; strings.HasPrefix(dir, os.TempDir()) && dir != os.TempDir(); dir = filepath.Dir(dir) {
		require.NoError(t, os.Chmod(dir, 0o755))
	}
}

// requireSeen checks that the counts are right, and then that the oracle detects wrong ones.
func requireSeen(ctx context.Context, t *testing.T, r *run) {
	db, o := r.sys.database.Load().direct, r.oracle
	check := func() oracle.Differences {
		v, err := o.Check(ctx, db)
		require.NoError(t, err)
		return v.Differences
	}
	d := check()
	require.Zero(t, d.Total, "%s", d.String())

	exec := func(query string) {
		result, err := db.ExecContext(ctx, query)
		require.NoError(t, err)
		n, err := result.RowsAffected()
		require.NoError(t, err)
		require.EqualValues(t, 1, n, query)
	}
	exec("UPDATE like_count SET count = count + 1 ORDER BY post_id LIMIT 1")
	exec("UPDATE like_hourly SET likes = likes + 1 ORDER BY hour, region, partition_id LIMIT 1")
	o.Acknowledged([]oracle.Ack{{Partition: 0, Offset: 1 << 40}})
	d = check()
	require.Equal(t, 3, d.Total, "%s", d.String())
	for _, want := range []string{"I1 like_count", "I1 like_hourly", fmt.Sprintf("I4 likes 0@%d", int64(1)<<40)} {
		require.Contains(t, d.String(), want)
	}
	exec("UPDATE like_count SET count = count - 1 ORDER BY post_id LIMIT 1")
	exec("UPDATE like_hourly SET likes = likes - 1 ORDER BY hour, region, partition_id LIMIT 1")
	exec("UPDATE applied_offset SET next_seq = next_seq + 1 WHERE partition_id = 0")
	d = check()
	require.Equal(t, 1, d.Total, "%s", d.String())
	require.Contains(t, d.String(), "I3 MySQL was seen at")
}

func TestDeck(t *testing.T) {
	names := func(seed uint64, n int) (names []string) {
		for _, f := range newDeck(seed, allKinds).deal(n) {
			names = append(names, f.kind.name)
		}
		return names
	}
	require.Equal(t, names(1, 200), names(1, 200), "a seed determines all faults")
	require.NotEqual(t, names(1, 200), names(2, 200))

	d := newDeck(3, allKinds)
	dealt := map[string]int{}
	for _, f := range d.deal(5 * len(allKinds)) {
		dealt[f.kind.name]++
	}
	for _, name := range Kinds() {
		require.Equal(t, 5, dealt[name], name)
	}
	d.giveBack(allKinds[7])
	require.Equal(t, allKinds[7].name, d.deal(1)[0].kind.name, "a missed fault is dealt again")
}

// A report adds up with the one of earlier runs of the same build. Stalls are ranked without what was away.
func TestReportsAddUp(t *testing.T) {
	var w *watch
	e := &episode{events: 10, faults: []*fault{{kind: allKinds[0]}}, said: map[string]int{"x": 2}}
	synctest.Test(t, func(t *testing.T) {
		w = newWatch(&system{log: slog.New(slog.DiscardHandler)})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go w.mark(ctx)
		w.begin(1)
		burst, back := w.struck("events-poison", 0), w.struck("mysql-pause", 1)
		time.Sleep(3 * time.Second)
		back()
		time.Sleep(6 * time.Second)
		burst()
		w.note(map[int32]oracle.Seen{0: {Position: oracle.Position{Offset: 1}}}, 0)
		w.end(e)
	})
	o := DefaultOptions()
	o.Build, o.Earlier = "a", &Report{Build: "a", Seeds: []uint64{7}, Faults: 5, Events: 100,
		Evidence: map[string]int64{"x": 1}, Stalls: []Stall{{Seconds: 9, AwaySeconds: 4}}}
	r := newReport(o, allKinds[:1])
	r.add(e)
	require.Equal(t, []uint64{7, 1}, r.Seeds)
	require.Equal(t, []int64{6, 1, 110, 3}, []int64{int64(r.Faults), int64(r.faults()), r.Events, r.Evidence["x"]})
	require.EqualValues(t, 1, r.Evidence["stalls of more than 5s for each strike, nothing away"])
	require.Equal(t, 1, r.Stalls[0].Strikes)
	require.InDelta(t, 6, r.Stalls[0].Beyond(), 0.2)
	require.Equal(t, []string{"events-poison", "mysql-pause"}, r.Stalls[0].Faults)
	o.Build = "b"
	require.Zero(t, newReport(o, nil).Faults)
}

// TestPauseLeavesNothingPaused: if one server cannot be paused, the others resume at once, and that one is left alone.
func TestPauseLeavesNothingPaused(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux shows the state of a process")
	}
	program := func(name string) *stack.Server {
		return stack.ProgramForTest(t, stack.ProgramOptions{Name: name, Path: "/bin/sleep", Args: []string{"60"}})
	}
	running, down := program("running"), program("down")
	require.NoError(t, running.Start(t.Context()))
	defer func() { require.NoError(t, running.Kill()) }()
	err := pause(t.Context(), time.Hour, running, down)
	require.ErrorContains(t, err, "pause down: it was never started")
	require.NotContains(t, err.Error(), "resume")
	require.Eventually(t, func() bool {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", running.PID()))
		return err == nil && !strings.Contains(string(status), "State:\tT")
	}, time.Minute, time.Millisecond, "the process is still paused")
}

// TestMarkers has the markers of a real transaction that Kafka 4.2.1 tore in a chaos run.
func TestMarkers(t *testing.T) {
	abort, commit := []byte{0, 0, 0, 0}, []byte{0, 0, 0, 1}
	m := markers{}
	for _, rec := range []*kgo.Record{
		{Partition: 4, Offset: 129342, ProducerID: 2001, ProducerEpoch: 635, Key: commit},
		{Partition: 4, Offset: 129863, ProducerID: 2001, ProducerEpoch: 636, Key: commit},
		{Partition: 3, Offset: 129864, ProducerID: 2001, ProducerEpoch: 636, Key: abort}, // another partition
		{Partition: 4, Offset: 129864, ProducerID: 2002, ProducerEpoch: 636, Key: abort}, // another producer
		{Partition: 4, Offset: 129865, ProducerID: 2001, ProducerEpoch: 637, Key: abort}, // another transaction
		{Partition: 4, Offset: 129866, Key: []byte{0, 0}},                                // not the end of one
	} {
		_, twice := m.add(rec)
		require.False(t, twice, "offset %d", rec.Offset)
	}
	at, twice := m.add(&kgo.Record{Partition: 4, Offset: 129867, ProducerID: 2001, ProducerEpoch: 636, Key: abort})
	require.True(t, twice)
	require.EqualValues(t, 129863, at)
}

// TestHangs has what Kafka 4.2.1 logged in a chaos run.
func TestHangs(t *testing.T) {
	const noticed = "12:54:04.099 ERROR [group-coordinator-event-processor-1] CoordinatorRuntime: " +
		"[GroupCoordinator id=0] The state machine of the coordinator __consumer_offsets-1 is out of sync with the " +
		"underlying log. The last written offset returned is 429 while the coordinator expected 1. The " +
		"coordinator will be reloaded in order to re-synchronize the state machine.\n"
	const other = "12:54:04.021 INFO [group-coordinator-event-processor-1] GroupMetadataManager: " +
		"[GroupCoordinator id=0 topic=__consumer_offsets partition=1] Static member joins group in Empty state.\n"
	require.Equal(t, 2, hangs([]byte(other+noticed+other+noticed)))
	require.Zero(t, hangs([]byte(other)))
}
