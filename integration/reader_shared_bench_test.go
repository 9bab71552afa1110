package integration

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// BenchmarkSharedReads measures how long it takes to get a user's reaction to a random post, of a view as in
// BenchmarkReads, at 500 requests a second (KUDOS_TEST_RATE) for 30 seconds: from a reader that keeps all reactions
// (local); from one of four that share them, with two replicas each (shared); and from it while the others are killed
// and restarted one after another, and then restarted (restarts, with the share of requests that are answered). Latency
// is from the time when a request is due. Then it measures how many reactions all four deliver, 50 of a user at a time
// to 32 clients, while only they are running. Run it with -benchtime 1x.
func BenchmarkSharedReads(b *testing.B) {
	posts, rate := fromEnv(b, "KUDOS_TEST_POSTS", 1_000_000), fromEnv(b, "KUDOS_TEST_RATE", 500)
	s := newRealSystem(b)
	s.countEach(posts)
	local, shared := s.startReader("local"), []*reader{}
	for i := range 4 {
		shared = append(shared, s.startReader(fmt.Sprintf("shared-%d", i), "--set", "reader.replicas=2",
			"--set", "reader.advertised_url="+ownBase, "--set", "reader.session_timeout=10s"))
	}
	for _, r := range append(shared, local) {
		waitFor(b, 5*time.Minute, "the readers to be ready", r.ready)
	}
	s.waitReplicas(2, shared...)
	one := atRate{base: local.base, request: postReactions, posts: posts, page: 1, perSecond: rate, seconds: 30}
	require.Zero(b, one.run(b, "local"))
	one.base = shared[0].base
	require.Zero(b, one.run(b, "shared"))
	restarts := background(b, func(ctx context.Context) (struct{}, error) {
		for _, end := range []func(*reader){func(r *reader) { r.kill() }, func(r *reader) { r.stop() }} {
			for _, r := range shared[1:] {
				end(r)
				pause(b, time.Second)
				r.start()
				r.waitReady()
				s.waitReplicas(2, shared...)
			}
		}
		return struct{}{}, nil
	})
	one.seconds = 60
	failed := one.run(b, "restarts")
	restarts.wait()
	b.ReportMetric(100-100*float64(failed)/float64(one.seconds*rate), "restarts-answered-%")
	local.stop()
	var dialed atomic.Int64
	inTurn := func(ctx context.Context) (func([]uint64) (int64, error), func(), error) {
		return dialReader(shared[dialed.Add(1)%4].base, postReactions)(ctx)
	}
	b.ReportMetric(50*measureReads(b, target{"shared", inTurn}, posts, 50).perSecond, "reactions/s")
}
