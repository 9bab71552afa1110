package integration

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kudos/dev/testkit"
	"kudos/integration/oracle"
	"kudos/integration/stack"
	"kudos/integration/tier"
	"kudos/processor/fold/table"
	"kudos/schema"
)

// fleet is two processes of each role, the clients, and the watchers.
type fleet struct {
	*system
	members        []fleetMember // in order of restarts
	readers        []*reader
	likers         *likers
	rate           int // likes per second
	load           *task[[]schema.Event]
	mysql, reading *stillness      // progress of MySQL's counts by partition, and of all readers' views together
	away           map[string]span // by producer: from its stop until it was ready again
}

type fleetMember struct {
	*process
	takes string // base URL for likes, if it is a producer: http://host:port
}

func (m fleetMember) role() string { return strings.Split(m.String(), "-")[0] }

// newFleet starts everything and returns when likes flow end to end. Consumers come before producers, as in an upgrade.
func newFleet(t *testing.T, change ...func(*system)) *fleet {
	f := &fleet{system: newRealSystem(t, change...), mysql: newStillness(), reading: newStillness(),
		away: map[string]span{}, rate: fromEnv(t, "KUDOS_TEST_RATE", 500)}
	f.emitInterval = "500ms"
	f.readers = []*reader{f.reader("reader-0"), f.reader("reader-1")}
	for _, p := range []*process{f.readers[0].process, f.readers[1].process, f.ranker("ranker-0", busy...),
		f.ranker("ranker-1", busy...), f.processor("processor-0"), f.processor("processor-1")} {
		f.members = append(f.members, fleetMember{process: p})
	}
	var producers []string
	for _, name := range []string{"producer-0", "producer-1"} {
		at := stack.ReserveForTest(t)
		producers = append(producers, "http://"+at)
		f.members = append(f.members, fleetMember{f.role(name, "producer", "--set", "producer.http_addr="+at),
			"http://" + at})
	}
	f.likers = newLikers(producers)
	for _, m := range f.members {
		m.start()
	}
	for _, m := range f.members {
		m.waitReady()
	}
	next := opinions(uint64(fromEnv(t, "KUDOS_TEST_SEED", 1)), time.Now().Add(-24*time.Hour))
	f.load = background(t, func(ctx context.Context) ([]schema.Event, error) { return f.likers.run(ctx, next, f.rate) })
	f.watchMySQL(f.mysql)
	f.watchReaders()
	f.flowing()
	return f
}

// looking calls look every few milliseconds until it fails or the test ends.
func (s *system) looking(look func(context.Context) error) {
	background(s.t, func(ctx context.Context) (none struct{}, err error) {
		for ctx.Err() == nil && err == nil {
			err = look(ctx)
			pause(s.t, 5*time.Millisecond)
		}
		return none, err
	})
}

// watchMySQL observes the progress of MySQL's counts by partition, until the test ends.
func (s *system) watchMySQL(counts *stillness) {
	s.looking(func(ctx context.Context) error {
		positions, err := oracle.Positions(ctx, s.db.DB)
		for p, at := range positions {
			counts.saw(p, at.Offset)
		}
		return err
	})
}

// watchReaders observes the progress of the readers, until the test ends.
func (f *fleet) watchReaders() {
	for _, r := range f.readers {
		f.looking(func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
			defer cancel()
			stats, err := ask[struct {
				Partitions []struct {
					AsOf  place `json:"as_of"`
					Ready bool  `json:"ready"`
				} `json:"partitions"`
			}](ctx, http.MethodGet, r.base+"/v1/stats", nil, http.StatusOK)
			if err != nil {
				return nil // one that is restarting does not respond
			}
			for _, p := range stats.Partitions {
				if p.Ready {
					f.reading.saw(p.AsOf.Partition, p.AsOf.Offset)
				}
			}
			return nil
		})
	}
}

// flowing waits until likes flow end to end again: accepted, in MySQL and at the readers, in all partitions.
func (f *fleet) flowing() {
	since := time.Now()
	waitFor(f.t, time.Minute, "likes to flow end to end", func() bool {
		select {
		case <-f.load.done:
			require.NoError(f.t, f.load.err)
		default:
		}
		return f.likers.accepted.movedSince(since, 1) && f.mysql.movedSince(since, f.partitions) &&
			f.reading.movedSince(since, f.partitions)
	})
}

// restart restarts one process like a rollout, and returns when likes flow end to end again.
func (f *fleet) restart(m fleetMember) {
	began := time.Now()
	m.stop()
	require.NoError(f.t, m.Exit(), "%s after SIGTERM\n%s", m, m.LogTail())
	ended := time.Now()
	m.start().waitReady()
	ready := time.Now()
	f.away[m.takes] = span{began, ready}
	f.flowing()
	f.tell(fmt.Sprintf("%s (stopped after %d ms, ready %d ms later)", m, ended.Sub(began).Milliseconds(),
		ready.Sub(ended).Milliseconds()))
}

// tell logs the longest waits since its last call.
func (f *fleet) tell(what string) {
	f.t.Logf("%s: slowest like %d ms, none accepted for %d ms, no progress in MySQL for %d ms, at readers for %d ms",
		what, f.likers.take(), f.likers.accepted.take(), f.mysql.take(), f.reading.take())
}

const quietFor = 5 * time.Second // observed before the first restart: what is slow then is the machine

// Two processes of each role are restarted one after another while likes arrive over HTTP: each ends gracefully, at any
// time a producer accepts likes, and in the end all counts match the sent likes. The log shows the longest waits, which
// depend on the machine.
func TestRollingRestartLosesNothing(t *testing.T) {
	parallel(t, tier.Verify)
	f := newFleet(t)
	f.tell("before")
	pause(t, quietFor)
	f.tell("without restarts")
	for _, m := range f.members {
		f.restart(m)
	}
	sent := f.load.stop()
	t.Logf("%d likes, %d per second, %d retries", len(sent), f.rate, f.likers.mu.retries)
	require.Positive(t, f.likers.mu.retries, "no like was sent while a producer was unavailable")
	for _, tried := range f.likers.mu.nowhere {
		require.True(t, tried.excused(f.away), "no producer accepted a like: %+v; unavailable: %+v", tried, f.away)
	}
	f.requireNothingLost(sent)
}

// requireNothingLost: accepted likes are in the log; MySQL, readers and rankings match it; it matches what was sent.
func (f *fleet) requireNothingLost(sent []schema.Event) {
	// Bring all partitions to the same time, so that every ranking covers all of them.
	last := closed(nil, sent[len(sent)-1].TimeMs+time.Hour.Milliseconds())
	f.produce(last...)
	f.drain(2 * time.Minute)
	f.requireExact(f.likers.mu.acks...)
	want := newReactions(slices.Concat(sent, last)...).counts()
	requireSame(f.t, "MySQL after all likes", want, f.mysqlCounts())
	e, posts := f.exactness(), slices.Collect(maps.Keys(want))
	for _, r := range f.readers {
		e.require(r, oracle.Sample)
		requireSame(f.t, r.String()+" after all likes", want, r.counted(posts))
	}
	f.waitRanked(rankingSettings, rankedWithin(len(sent)))
}

// TestExcused: a producer that rejects a like while it is not restarting has no excuse, whatever the other one does.
func TestExcused(t *testing.T) {
	at := func(from, to int) span { return span{time.UnixMilli(int64(from)), time.UnixMilli(int64(to))} }
	away := map[string]span{"a": at(10, 20), "b": at(21, 30)}
	for name, tt := range map[string]struct {
		tried round
		want  bool
	}{
		"each was unavailable when asked": {round{{span: at(18, 19), producer: "a"}, {span: at(22, 23), producer: "b"}},
			true},
		"asked before it stopped": {round{{span: at(9, 10), producer: "a"}, {span: at(20, 25), producer: "b"}}, true},
		"one has not stopped yet": {round{{span: at(18, 19), producer: "a"}, {span: at(19, 20), producer: "b"}}, false},
		"one is ready again":      {round{{span: at(21, 22), producer: "a"}, {span: at(22, 23), producer: "b"}}, false},
		"one never stopped":       {round{{span: at(18, 19), producer: "a"}, {span: at(18, 19), producer: "c"}}, false},
	} {
		require.Equal(t, tt.want, tt.tried.excused(away), name)
	}
}

// buildEarlier builds the last release, without its embedded servers: this version must be able to take over its
// topics, state directories and tables. Until there is one, a commit from before packages and names changed stands in.
func buildEarlier(t *testing.T) (program string) {
	earlier := "3fb8240"
	if tag, err := exec.CommandContext(t.Context(), "git", "-C", root, "describe", "--tags", "--abbrev=0",
		"--match=v[0-9]*", "--exclude=*-*", "HEAD~").Output(); err == nil {
		earlier = strings.TrimSpace(string(tag))
	}
	if err := exec.CommandContext(t.Context(), "git", "-C", root, "cat-file", "-e", earlier).Run(); err != nil {
		tier.Lacks(t, "the Git history lacks commit "+earlier+"; fix: git fetch --unshallow")
	}
	ctx := testkit.Within(t, 10*time.Minute)
	dir := t.TempDir()
	program = filepath.Join(dir, "kudos")
	for _, command := range []*exec.Cmd{
		exec.CommandContext(ctx, "sh", "-c", `git -C "$0" archive `+earlier+` | tar -x -C "$1"`, root, dir),
		exec.CommandContext(ctx, "go", "build", "-C", dir, "-tags", "nodev", "-pgo=off", "-ldflags=-w", "-o", program,
			"."),
	} {
		out, err := command.CombinedOutput()
		require.NoError(t, err, "%s\n%s", command, out)
	}
	return program
}

// alternate restarts the processors in turn with a setting for how many transactional ids a partition uses.
func (f *fleet) alternate(settings string, ids int) {
	require.NoError(f.t, os.WriteFile(settings, fmt.Appendf(nil, "processor: {transactional_ids: %d}\n", ids), 0o600))
	for _, m := range f.members {
		if m.role() == "processor" {
			f.restart(m)
		}
	}
	for p := range int32(f.partitions) {
		progress, err := table.LastProgress(f.t.Context(), f.client(), p)
		require.NoError(f.t, err)
		require.Equal(f.t, ids == 2, progress.Alternating, "partition %d", p)
	}
}

// refusedBy starts an earlier version in place of a processor: it parks the partitions that it is assigned.
func (f *fleet) refusedBy(settings string, install func(version string), before, now string) {
	m := f.members[slices.IndexFunc(f.members, func(m fleetMember) bool { return m.role() == "processor" })]
	m.stop()
	install(before)
	require.NoError(f.t, os.WriteFile(settings, nil, 0o600))
	m.start()
	waitFor(f.t, time.Minute, "the earlier version to park", func() bool {
		return strings.Contains(m.LogTail(), "progress record has version 3")
	})
	m.stop()
	install(now)
	m.start().waitReady()
	f.flowing()
}

// TestRollingUpgradeAndDowngrade: topics, tables and local state come from an earlier version. Under load its
// processes are replaced one by one by those of this commit, back, and again; those then use two transactional ids,
// and one again, after which earlier processors take over. (Earlier readers cannot read what two ids have written.)
// Nothing is lost or counted twice.
func TestRollingUpgradeAndDowngrade(t *testing.T) {
	parallel(t, tier.Turn(0))
	before := buildEarlier(t)
	program := filepath.Join(t.TempDir(), "kudos")
	install := func(version string) {
		next := program + ".next"
		require.NoError(t, os.Symlink(version, next))
		require.NoError(t, os.Rename(next, program))
	}
	install(before)
	var now string
	settings := filepath.Join(t.TempDir(), "settings.yaml")
	require.NoError(t, os.WriteFile(settings, nil, 0o600))
	f := newFleet(t, func(s *system) {
		now, s.program, s.processorArgs = s.program, program, []string{"--config", settings}
	})
	f.members = slices.Concat(f.members[2:6], f.members[:2], f.members[6:]) // readers need what processors write
	for _, version := range []string{now, before, now} {
		install(version)
		if version == now {
			f.topicsApply()
		}
		for _, m := range f.members {
			f.restart(m)
			require.NotRegexp(t, "built again|rebuilding it", m.LogTail(), "%s rebuilt its local state", m)
		}
		slices.Reverse(f.members)
	}
	f.alternate(settings, 2)
	f.refusedBy(settings, install, before, now)
	f.alternate(settings, 1)
	sent := f.load.stop()
	t.Logf("%d likes, %d per second", len(sent), f.rate)
	f.requireNothingLost(sent)

	require.NoError(t, os.WriteFile(settings, nil, 0o600)) // earlier versions do not know the setting
	install(before)
	for _, m := range f.members {
		if m.role() == "processor" {
			m.stop()
			m.start().waitReady()
		}
	}
	f.produce(closed(nil, sent[len(sent)-1].TimeMs+2*time.Hour.Milliseconds())...)
	f.drainExact(2 * time.Minute)
	install(now)
	f.audit(0, "--deep")
}
