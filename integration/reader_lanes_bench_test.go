package integration

import (
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kudos/schema"
)

// BenchmarkLanes measures a reader on a real Kafka with 4 partitions: its own CPU time for a million pairs of users and
// posts, and the bytes of a pair on its disk. First it reads 10,000,000 pairs (KUDOS_TEST_EVENTS) of 1,000,000 posts
// (KUDOS_TEST_POSTS), all there when it starts, then new ones at 100,000 per second (KUDOS_TEST_RATE) for 30 seconds,
// while a processor runs too. ready-s is how long it takes to be ready; counts- are those of a reader that keeps
// counts only. Run it with -benchtime 1x.
func BenchmarkLanes(b *testing.B) {
	pairs, rate := fromEnv(b, "KUDOS_TEST_EVENTS", 10_000_000), fromEnv(b, "KUDOS_TEST_RATE", 100_000)
	posts := uint64(fromEnv(b, "KUDOS_TEST_POSTS", 1_000_000))
	const seconds, burst = 30, 10 * time.Millisecond
	s := newRealSystem(b)
	random, user, now := rand.New(rand.NewPCG(1, 1)), uint64(0), time.Now().UnixMilli()
	next := func() schema.Event {
		user++
		return likeIn(schema.Region{'U', 'S'}, 1+random.Uint64N(posts), user, now)
	}
	s.pour(func(send func(schema.Event)) {
		for range pairs {
			send(next())
		}
	})
	p := s.processor("processor").start()
	s.drain(10 * time.Minute)
	for name, keep := range map[string]string{"": "true", "counts-": "false"} {
		r, began := s.reader("reader"+name, "--set", "reader.reactions="+keep), time.Now()
		r.start()
		waitFor(b, 10*time.Minute, "the reader to be ready", r.ready)
		b.ReportMetric(time.Since(began).Seconds(), name+"ready-s")
		before := r.cpu()
		b.ReportMetric(before*1e6/float64(pairs), name+"read-cpu-s/M")
		sent := 0
		s.pour(func(send func(schema.Event)) {
			for at, end := time.Now(), time.Now().Add(seconds*time.Second); at.Before(end); at = at.Add(burst) {
				pause(b, time.Until(at))
				for range rate / int(time.Second/burst) {
					send(next())
					sent++
				}
			}
		})
		s.drain(time.Minute)
		r.waitIdle()
		b.ReportMetric((r.cpu()-before)*1e6/float64(sent), name+"live-cpu-s/M")
		r.stop()
		b.ReportMetric(float64(diskUsed(b, r.stateDir))/float64(user), name+"B/pair")
	}
	p.stop()
}

func (r *reader) cpu() float64 { return r.sums()["process_cpu_seconds_total"] }

// waitIdle waits until the reader takes hardly any CPU time.
func (r *reader) waitIdle() {
	waitFor(r.t, 5*time.Minute, "the reader to be idle", func() bool {
		before := r.cpu()
		pause(r.t, time.Second)
		return r.cpu()-before < 0.1
	})
}

// diskUsed returns the bytes of all files below a directory.
func diskUsed(b *testing.B, dir string) (bytes int64) {
	require.NoError(b, filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if os.IsNotExist(err) {
			return nil
		}
		bytes += info.Size()
		return err
	}))
	return bytes
}
