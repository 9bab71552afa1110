package window

import (
	"math/rand/v2"
	"runtime"
	"testing"

	"kudos/schema"
)

// made is likes over a day in order: popular posts and a long tail, in 5 regions.
type made struct {
	regions []schema.Region
	random  *rand.Rand
	zipf    *rand.Zipf
	update  [1]schema.Delta
}

func newMade(posts int) *made {
	regions := []schema.Region{{'U', 'S'}, {'D', 'E'}, {'I', 'N'}, {'B', 'R'}, {'J', 'P'}}
	m := &made{random: rand.New(rand.NewPCG(1, 2)), regions: regions}
	m.zipf = rand.NewZipf(m.random, 1.1, 1, uint64(posts-1))
	return m
}

func (m *made) like(at schema.Minute) (post uint64, deltas []schema.Delta) {
	m.update[0] = schema.Delta{Region: m.regions[m.random.IntN(len(m.regions))], Minute: int64(at), Likes: 1}
	return m.zipf.Uint64(), m.update[:]
}

func benchConfig(halfLife int64) *Config {
	windows := []Window{New(10, halfLife), New(60, halfLife), New(24*60, halfLife), Day()}
	return &Config{Windows: windows, Lateness: 2, TopN: 100, MinLikes: 1}
}

const benchStart = schema.Minute(30_000_000)

// BenchmarkAdd counts the updates of a live stream: perMinute of them per minute, and lists six times per minute.
func BenchmarkAdd(b *testing.B) {
	for _, bb := range []struct {
		name     string
		halfLife int64
	}{{"count", 0}, {"decay", 30}} {
		b.Run(bb.name, func(b *testing.B) {
			const perMinute = 1_000_000
			p, m := NewPartition(benchConfig(bb.halfLife)), newMade(1_000_000)
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				post, deltas := m.like(benchStart + schema.Minute(i/perMinute))
				p.Add(post, deltas, int64(i))
				if i%(perMinute/6) == 0 {
					p.MakeVersions(int64(i))
					p.Versions, p.Marks = p.Versions[:0], p.Marks[:0]
				}
				if i%50_000 == 0 {
					for range p.Changed() {
					}
				}
				i++
			}
			posts, _ := p.Size()
			b.ReportMetric(float64(posts), "active")
		})
	}
}

// BenchmarkActive fills the windows with 1 million posts, each liked in one or more regions, and reports their memory.
func BenchmarkActive(b *testing.B) {
	for b.Loop() {
		before := heap()
		p, m := NewPartition(benchConfig(0)), newMade(2)
		for post := range uint64(1_000_000) {
			_, deltas := m.like(benchStart + schema.Minute(post/1000))
			p.Add(post, deltas, int64(post))
			p.Versions, p.Marks = p.Versions[:0], p.Marks[:0]
		}
		for range p.Changed() {
		}
		posts, cells := p.Size()
		b.ReportMetric(float64(heap()-before)/float64(posts), "bytes/active")
		b.ReportMetric(float64(cells)/float64(posts), "buckets/active")
		b.ReportMetric(float64(posts), "active")
		runtime.KeepAlive(p)
	}
}

// BenchmarkLists computes the lists of 1 million active posts, all changed.
func BenchmarkLists(b *testing.B) {
	p, m := NewPartition(benchConfig(0)), newMade(1_000_000)
	for i := range 3_000_000 {
		post, deltas := m.like(benchStart + schema.Minute(i/3000))
		if i%3 == 0 {
			post = uint64(i / 3)
		}
		p.Add(post, deltas, int64(i))
		p.Versions, p.Marks = p.Versions[:0], p.Marks[:0]
	}
	posts, _ := p.Size()
	for b.Loop() {
		for i := range p.boards.items {
			p.boards.items[i].dirty = 1<<len(p.config.Windows) - 1
		}
		p.MakeVersions(0)
	}
	b.ReportMetric(float64(posts), "active")
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
