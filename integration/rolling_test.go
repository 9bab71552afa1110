package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kudos/integration/oracle"
	"kudos/integration/stack"
	"kudos/integration/tier"
)

// interruptions are the longest that anybody had to wait in some stretch of time.
type interruptions struct {
	// like is from when a like was due until a producer had accepted it; accepting is between two that were accepted.
	like, accepting time.Duration
	// mysql is how long the counts of a partition stood still in MySQL, readers in the copies of all readers together.
	mysql, readers time.Duration
}

// fleet is two processes of each role, those who like, and what looks on.
type fleet struct {
	*system
	members        []fleetMember // in the order in which they are restarted
	readers        []*reader
	likers         *likers
	load           *task[[]oracle.Event]
	mysql, reading *stillness
	away           map[string]span // by producer: from when it was told to end until it was ready again
}

type fleetMember struct {
	*stack.Server
	admin string // http://host:port
	takes string // likes, if it is a producer: http://host:port
}

// newFleet starts all of it. Those that read come before those that write: the order of an upgrade.
func newFleet(t *testing.T) *fleet {
	f := &fleet{system: newRealSystem(t), mysql: newStillness(), reading: newStillness(), away: map[string]span{}}
	f.emitInterval = "500ms"
	for _, name := range []string{"reader-0", "reader-1"} {
		r := f.reader(name)
		f.readers = append(f.readers, r)
		f.members = append(f.members, fleetMember{Server: r.Server, admin: r.admin})
	}
	join := func(p *stack.Server, takes string) {
		f.members = append(f.members, fleetMember{p, "http://" + f.admin, takes})
	}
	for _, name := range []string{"ranker-0", "ranker-1"} {
		f.admin = f.address()
		join(f.ranker(name, busy...), "")
	}
	for _, name := range []string{"processor-0", "processor-1"} {
		f.admin = f.address()
		join(f.processor(name), "")
	}
	var producers []string
	for _, name := range []string{"producer-0", "producer-1"} {
		f.admin = f.address()
		at := f.address()
		producers = append(producers, "http://"+at)
		join(f.role(name, "producer", t.TempDir(), "--set", "producer.http_addr="+at, "--set", "admin.addr="+f.admin), "http://"+at)
	}
	f.likers = newLikers(producers)
	for _, m := range f.members {
		require.NoError(t, m.Start(t.Context()))
	}
	for _, m := range f.members {
		f.ready(m)
	}
	return f
}

func (f *fleet) ready(m fleetMember) {
	f.t.Helper()
	waitFor(f.t, time.Minute, m.String()+" to be ready", func() bool { return answers(f.t, m.admin+"/readyz") })
}

// watch looks how far MySQL's counts and the readers' are, until the test ends.
func (f *fleet) watch() {
	looking := func(look func(context.Context) error) {
		background(f.t, func(ctx context.Context) (none struct{}, err error) {
			tick := time.NewTicker(10 * time.Millisecond)
			defer tick.Stop()
			for ctx.Err() == nil && err == nil {
				select {
				case <-tick.C:
					err = look(ctx)
				case <-ctx.Done():
				}
			}
			return none, err
		})
	}
	looking(func(ctx context.Context) error {
		positions, err := oracle.Positions(ctx, f.db.DB)
		for p, at := range positions {
			f.mysql.saw(p, at.Offset)
		}
		return err
	})
	client := &http.Client{Timeout: 2 * time.Second}
	for _, r := range f.readers {
		looking(func(ctx context.Context) error {
			f.seeReader(ctx, client, r)
			return nil // one that is being restarted does not answer
		})
	}
}

// seeReader looks how far a reader is, if it answers.
func (f *fleet) seeReader(ctx context.Context, client *http.Client, r *reader) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.base+"/v1/stats", nil)
	if err != nil {
		return
	}
	resp, err := client.Do(req)
	if err != nil {
		return
	}
	defer resp.Body.Close()
	var stats struct {
		Partitions []struct {
			AsOf  place `json:"as_of"`
			Ready bool  `json:"ready"`
		} `json:"partitions"`
	}
	if resp.StatusCode != http.StatusOK || json.NewDecoder(resp.Body).Decode(&stats) != nil {
		return
	}
	for _, p := range stats.Partitions {
		if p.Ready {
			f.reading.saw(p.AsOf.Partition, p.AsOf.Offset)
		}
	}
}

// flowing waits until likes go all the way again: accepted, in MySQL and at the readers, in all partitions.
func (f *fleet) flowing() {
	f.t.Helper()
	since := time.Now()
	waitFor(f.t, time.Minute, "likes to go all the way", func() bool {
		select {
		case <-f.load.done:
			require.NoError(f.t, f.load.err)
		default:
		}
		return f.likers.accepted.movedSince(since, 1) && f.mysql.movedSince(since, f.partitions) && f.reading.movedSince(since, f.partitions)
	})
}

// restart is what a rollout does with one process. It ends when likes go all the way again.
func (f *fleet) restart(m fleetMember) {
	f.t.Helper()
	began := time.Now()
	require.NoError(f.t, m.Stop())
	require.NoError(f.t, m.Exit(), "%s after SIGTERM\n%s", m, m.LogTail())
	ended := time.Now()
	require.NoError(f.t, m.Start(f.t.Context()))
	f.ready(m)
	ready := time.Now()
	f.away[m.takes] = span{began, ready}
	f.flowing()
	f.tell(fmt.Sprintf("%s (ended after %d ms, ready after %d ms more)", m, ended.Sub(began).Milliseconds(), ready.Sub(ended).Milliseconds()), began)
}

// interrupted is who had to wait for how long since then.
func (f *fleet) interrupted(since time.Time) interruptions {
	now := time.Now()
	return interruptions{
		like: f.likers.slowest(since, now), accepting: f.likers.accepted.longest(since, now),
		mysql: f.mysql.longest(since, now), readers: f.reading.longest(since, now),
	}
}

// tell logs it.
func (f *fleet) tell(what string, since time.Time) {
	i := f.interrupted(since)
	f.t.Logf("%s: slowest like %d ms, none accepted for %d ms, counts stood in MySQL for %d ms, at readers for %d ms",
		what, i.like.Milliseconds(), i.accepting.Milliseconds(), i.mysql.Milliseconds(), i.readers.Milliseconds())
}

// quietSeconds is for how long the test looks on before it restarts anything: what is slow then is the machine.
const quietSeconds = 5

// Two processes of each role are restarted one after the other while likes come over HTTP: each ends well, there is a
// producer for every like at any time, and in the end all counts are those of the likes that were sent. The log tells
// how long anybody had to wait, which goes with the machine.
func TestARollingRestartLosesNothing(t *testing.T) {
	tier.Verify(t)
	t.Parallel()
	rate := fromEnv(t, "KUDOS_TEST_RATE", 500)
	seed := uint64(fromEnv(t, "KUDOS_TEST_SEED", 1))
	f := newFleet(t)
	from := newOpinions(seed, time.Now().Add(-24*time.Hour))
	f.load = background(t, func(ctx context.Context) ([]oracle.Event, error) { return f.likers.run(ctx, from, rate) })
	f.watch()
	f.flowing()
	began := time.Now()
	waitFor(t, 2*time.Minute, "likes while nothing is restarted", func() bool { return f.likers.taken() >= quietSeconds*rate })
	f.tell("nothing restarted", began)
	began = time.Now()
	for _, m := range f.members {
		f.restart(m)
	}
	f.tell("all of them", began)
	sent := f.load.stop()
	t.Logf("%d likes, %d a second, %d of them tried again", len(sent), rate, f.likers.mu.retries)
	require.Positive(t, f.likers.mu.retries, "no like came while a producer was away")
	for _, tried := range f.likers.mu.nowhere {
		require.True(t, tried.excused(f.away), "a like that no producer took: %+v, and they were away %+v", tried, f.away)
	}
	f.requireNothingLost(sent)
}

// requireNothingLost: what was accepted is in the log; MySQL, readers and rankings have what the log says; and that is
// what was sent.
func (f *fleet) requireNothingLost(sent []oracle.Event) {
	f.t.Helper()
	// All partitions come to one time, so that every ranking is made of all.
	last := closed(nil, sent[len(sent)-1].TimeMs+time.Hour.Milliseconds())
	f.produce(records(last))
	f.drain(2 * time.Minute)
	e := f.exactness()
	e.Acknowledged(f.likers.mu.acks)
	ctx, cancel := e.bounded()
	defer cancel()
	left, err := e.Left(ctx, f.db.DB)
	require.NoError(f.t, err)
	require.Empty(f.t, left)
	v, err := e.Check(ctx, f.db.DB)
	require.NoError(f.t, err)
	require.Zero(f.t, v.Differences.Total, v.Differences.String())

	want := standingAfter(sent)
	for _, one := range last {
		want[one.PostID] = count{likes: 1}
	}
	requireSame(f.t, "MySQL after what was sent", want, f.mysqlCounts())
	posts := slices.Collect(maps.Keys(want))
	for _, r := range f.readers {
		e.require(r, oracle.Sample)
		requireSame(f.t, r.String()+" after what was sent", want, r.counted(posts))
	}
	f.waitRanked(rankingSettings, rankedWithin(len(sent)))
}

// TestExcused: a producer that refuses while it is not being restarted is no excuse, whatever the other one does.
func TestExcused(t *testing.T) {
	at := func(from, to int) span { return span{time.UnixMilli(int64(from)), time.UnixMilli(int64(to))} }
	away := map[string]span{"a": at(10, 20), "b": at(21, 30)}
	for name, tt := range map[string]struct {
		tried round
		want  bool
	}{
		"each was away when it was asked": {round{{span: at(18, 19), producer: "a"}, {span: at(22, 23), producer: "b"}}, true},
		"asked before it went":            {round{{span: at(9, 10), producer: "a"}, {span: at(20, 25), producer: "b"}}, true},
		"one is not away yet":             {round{{span: at(18, 19), producer: "a"}, {span: at(19, 20), producer: "b"}}, false},
		"one is back":                     {round{{span: at(21, 22), producer: "a"}, {span: at(22, 23), producer: "b"}}, false},
		"one was never away":              {round{{span: at(18, 19), producer: "a"}, {span: at(18, 19), producer: "c"}}, false},
	} {
		require.Equal(t, tt.want, tt.tried.excused(away), name)
	}
}
