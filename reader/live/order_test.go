package live

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"kudos/reader/view"
	"kudos/reader/wire"
	"kudos/schema"
)

// theLog is the log that two readers follow: the transactions of each partition.
type theLog struct {
	mu           sync.Mutex
	transactions [][]transaction
	counts       map[uint64]schema.Counts
	history      map[uint64]map[int64]int64 // likes of each post, by the offset from which they are valid
}

type transaction struct {
	offset  int64 // the position after it
	changes []view.Change
}

func newLog(partitions int) *theLog {
	return &theLog{
		transactions: make([][]transaction, partitions),
		counts:       map[uint64]schema.Counts{}, history: map[uint64]map[int64]int64{},
	}
}

// append adds a transaction that changes some of the posts of a partition, or none.
func (l *theLog) append(rng *rand.Rand, partition int32, posts []uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := &l.transactions[partition]
	tx := transaction{offset: 1 + rng.Int64N(3)}
	if n := len(*of); n > 0 {
		tx.offset += (*of)[n-1].offset
	}
	for _, post := range posts {
		if post%uint64(len(l.transactions)) != uint64(partition) || rng.IntN(3) > 0 {
			continue
		}
		counts := l.counts[post]
		counts.Likes += rng.Int64N(5) - 2
		l.counts[post] = counts
		tx.changes = append(tx.changes, view.Change{PostID: post, Counts: counts})
		if l.history[post] == nil {
			l.history[post] = map[int64]int64{}
		}
		l.history[post][tx.offset] = counts.Likes
	}
	*of = append(*of, tx)
}

// feed applies at most n more transactions of each partition to a view.
func (l *theLog) feed(f *fakeLikes, applied []int, n int) {
	for partition := range l.transactions {
		l.mu.Lock()
		next := l.transactions[partition][applied[partition]:]
		next = next[:min(n, len(next))]
		l.mu.Unlock()
		for _, tx := range next {
			f.commit(int32(partition), tx.offset, tx.changes...)
		}
		applied[partition] += len(next)
	}
}

func (l *theLog) asOf(post uint64, offset int64) (likes int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	newest := int64(-1)
	for from, n := range maps.All(l.history[post]) {
		if from <= offset && from > newest {
			newest, likes = from, n
		}
	}
	return likes
}

// TestNewestValueWins: clients that reconnect, maybe to a reader that is behind, see of each post values that are right
// as of their positions, never older than one seen before, and end with the last one.
func TestNewestValueWins(t *testing.T) {
	const partitions, clients, rounds = 3, 12, 150
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	posts := []uint64{1, 2, 3, 4, 5, 6, 7}
	log := newLog(partitions)
	var readers [2]*rig
	var servers [2]*httptest.Server
	applied := [2][]int{make([]int, partitions), make([]int, partitions)}
	for i := range readers {
		readers[i] = start(t, partitions, func(o *Options) { quick(o); o.Interval = time.Millisecond })
		servers[i] = serve(t, readers[i], false)
	}

	finished, finish := context.WithCancel(t.Context()) // canceled once nothing is appended any more
	defer finish()
	pace := time.NewTicker(time.Millisecond)
	defer pace.Stop()
	var running sync.WaitGroup
	for i := range clients {
		c := &wanderer{t: t, log: log, posts: posts[i%3 : i%3+5], servers: servers[:],
			rng: rand.New(rand.NewPCG(seed, uint64(i)+1)), seen: map[uint64]wire.PostLikes{}}
		running.Go(func() { c.run(finished) })
	}
	for range rounds {
		for partition := range int32(partitions) {
			log.append(rng, partition, posts)
		}
		// One reader is up to date; the other is behind, and catches up a little now and then.
		log.feed(readers[0].likes, applied[0], 1)
		if rng.IntN(10) == 0 {
			log.feed(readers[1].likes, applied[1], rng.IntN(15))
		}
		<-pace.C
	}
	log.feed(readers[0].likes, applied[0], rounds)
	log.feed(readers[1].likes, applied[1], rounds)
	finish()
	running.Wait()
}

// wanderer is a client that loses its connection again and again.
type wanderer struct {
	t       *testing.T
	log     *theLog
	posts   []uint64
	servers []*httptest.Server
	rng     *rand.Rand
	lastID  string
	seen    map[uint64]wire.PostLikes
}

// run reconnects until the client has the last values, after finished.
func (c *wanderer) run(finished context.Context) {
	query := "post_ids=" + fmt.Sprint(c.posts[0])
	for _, post := range c.posts[1:] {
		query += fmt.Sprintf(",%d", post)
	}
	for deadline := time.Now().Add(patience); ; {
		last := finished.Err() != nil
		client := dial(c.t, c.servers[c.rng.IntN(2)], query+"&last_event_id="+c.lastID)
		messages := 1 + c.rng.IntN(30)
		if last { // each post once: then the client has all of them
			messages = len(c.posts)
		}
		// A client that waits for further changes would wait forever then.
		stop := context.AfterFunc(finished, func() {
			if !last {
				_ = client.answer.Body.Close()
			}
		})
		for range messages {
			m, ok := client.read()
			if !ok {
				break
			}
			c.look(m)
		}
		stop()
		client.close()
		if last && c.upToDate() {
			return
		}
		if time.Now().After(deadline) {
			c.t.Errorf("a client did not get the last values: it has %v", c.seen)
			return
		}
	}
}

func (c *wanderer) look(m shown) {
	got := m.likes(c.t)
	if before, ok := c.seen[got.PostID]; ok && got.AsOf.Offset < before.AsOf.Offset {
		c.t.Errorf("post %d: %+v was sent after %+v", got.PostID, got, before)
	}
	if want := c.log.asOf(got.PostID, got.AsOf.Offset); got.Likes != want {
		c.t.Errorf("post %d has %d as of %s, not %d", got.PostID, want, got.AsOf, got.Likes)
	}
	c.seen[got.PostID], c.lastID = got, m.id
}

func (c *wanderer) upToDate() bool {
	for _, post := range c.posts {
		c.log.mu.Lock()
		want := c.log.counts[post].Likes
		c.log.mu.Unlock()
		if got, ok := c.seen[post]; !ok || got.Likes != want {
			return false
		}
	}
	return true
}
