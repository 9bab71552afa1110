package live

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"kudos/dev/testkit"
	"kudos/reader/view"
	"kudos/reader/wire"
)

// These tests run in a bubble (synctest), whose clock advances only while everything in it waits.

// wants compares what a client got with lines "id post likes offset".
func wants(t *testing.T, c *fakeConn, lines ...string) {
	t.Helper()
	synctest.Wait()
	var got []string
	for _, m := range c.take() {
		body := m.likes(t)
		got = append(got, fmt.Sprintf("%s: %d has %d as of %s", m.id, body.PostID, body.Likes, body.AsOf))
	}
	require.Equal(t, lines, got)
}

func newest(t *testing.T, c *fakeConn) int64 {
	t.Helper()
	synctest.Wait()
	got := c.take()
	return got[len(got)-1].likes(t).Likes
}

// inBubble runs a test of a hub whose view has this many partitions.
func inBubble(t *testing.T, partitions int, test func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, start(t, partitions, nil)) })
}

// pass advances the bubble's fake clock, which jumps ahead once every goroutine waits.
func pass(d time.Duration) { <-time.After(d) }

func TestCurrentValuesThenChanges(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, r *rig) {
		r.likes.commit(1, 10, likes(1, 5), likes(5, 7))
		r.likes.commit(2, 20, likes(2, 9))
		c := r.watch(posts(2, 1, 9, 5))
		wants(t, c, "00000001.1:10: 1 has 5 as of 1:10", "00000001.1:10: 9 has 0 as of 1:10",
			"00000001.1:10: 5 has 7 as of 1:10", "00000001.1:10,2:20: 2 has 9 as of 2:20")
		require.Equal(t, 4, r.subjects())

		began := time.Now()
		r.likes.commit(1, 12, likes(5, 8), likes(13, 1))
		wants(t, c, "00000001.1:12,2:20: 5 has 8 as of 1:12")
		require.Zero(t, time.Since(began), "the first change after a pause is sent at once")

		// Later changes are collected per turn: only the newest of each post is sent.
		r.likes.commit(1, 13, likes(5, 9))
		r.likes.commit(1, 14, likes(1, 6))
		r.likes.commit(2, 21, likes(2, 8))
		wants(t, c)
		pass(r.options.Interval)
		wants(t, c, "00000001.1:14,2:20: 1 has 6 as of 1:14", "00000001.1:14,2:20: 5 has 9 as of 1:13",
			"00000001.1:14,2:21: 2 has 8 as of 2:21")

		r.likes.commit(1, 15, likes(13, 2)) // nobody shows it
		r.likes.commit(1, 16)
		pass(10 * r.options.Interval)
		wants(t, c)

		other, third := r.watch(posts(5)), r.watch(posts(5))
		synctest.Wait()
		c.leave()
		require.Equal(t, 1, r.subjects())
		other.take()
		third.take()
		r.likes.commit(1, 17, likes(5, 10))
		pass(r.options.Interval)
		wants(t, other, "00000001.1:17: 5 has 10 as of 1:17")
		wants(t, third, "00000001.1:17: 5 has 10 as of 1:17")
		other.leave()
		third.leave()
		require.Zero(t, r.subjects(), "a subject without streams is freed")
		r.likes.commit(1, 18, likes(5, 11))
	})
}

// A stream that is woken has all changes of the turn to send, of whatever partition.
func TestStreamsAreWokenAfterTheLastPartition(t *testing.T) {
	r := &registry[uint64]{epoch: func(int32) (string, error) { return "", nil }}
	s, published := newStream(t.Context()), 0
	for partition := range int32(2) {
		w := r.of(partition)
		w.setLocked(w.join("", []uint64{1}, s)[0], func() (*message, error) {
			require.Empty(t, s.wake)
			published++
			return &message{}, nil
		})
	}
	r.publish(slog.New(slog.DiscardHandler))
	require.Equal(t, 2, published)
	require.Len(t, s.wake, 1)
}

func TestHeartbeats(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, r *rig) {
		c := r.watch(posts(1))
		pass(r.options.Heartbeat*3 + time.Second)
		require.Equal(t, 3, c.beats())
		require.Equal(t, 1, r.likes.mu.reads, "nothing is read while nothing changes")
	})
}

// TestChangeBetweenSubscribingAndReading: whether callback or read is first, the older value never follows the newer.
func TestChangeBetweenSubscribingAndReading(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, r *rig) {
		r.likes.commit(0, 10, likes(1, 1))

		t.Log("the callback runs after the read")
		r.likes.beforeRead = func() { r.likes.apply(0, 11, likes(1, 2)) }
		c := r.watch(posts(1))
		wants(t, c, "00000001.0:11: 1 has 2 as of 0:11")
		r.likes.watch(wire.Position{Partition: 0, Offset: 11}, []view.Change{likes(1, 2)})
		pass(r.options.Interval)
		wants(t, c)

		t.Log("the change and its callback come before the read")
		r.likes.beforeRead = func() { r.likes.commit(0, 12, likes(1, 3)) }
		c2 := r.watch(posts(1))
		pass(r.options.Interval)
		wants(t, c2, "00000001.0:12: 1 has 3 as of 0:12")
		wants(t, c, "00000001.0:12: 1 has 3 as of 0:12")

		t.Log("they come right after the read")
		pass(r.options.Interval)
		r.likes.beforeRead, r.likes.afterRead = func() {}, func() { r.likes.commit(0, 13, likes(1, 4)) }
		c4 := r.watch(posts(1))
		pass(r.options.Interval)
		require.EqualValues(t, 4, newest(t, c4))
		wants(t, c, "00000001.0:13: 1 has 4 as of 0:13")

		t.Log("the same for a post that no other stream shows")
		r.likes.afterRead = func() { r.likes.commit(0, 14, likes(2, 9)) }
		alone := r.watch(posts(2))
		pass(r.options.Interval)
		require.EqualValues(t, 9, newest(t, alone)) // what was read may come first

		t.Log("the read is older than the callback")
		r.likes.afterRead = func() {}
		c3 := r.watchSlowly(posts(1))
		r.likes.commit(0, 15, likes(1, 5))
		pass(r.options.Interval)
		c3.release()
		wants(t, c3, "00000001.0:14: 1 has 4 as of 0:14", "00000001.0:15: 1 has 5 as of 0:15")
	})
}

func TestSlowClientSkipsToTheNewestCounts(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, r *rig) {
		slow, fast := r.watchSlowly(posts(1)), r.watch(posts(1))
		synctest.Wait()
		const changes = 100
		for i := range int64(changes) {
			r.likes.commit(0, i+1, likes(1, i+1))
			pass(r.options.Interval)
		}
		synctest.Wait()
		require.Len(t, fast.take(), 1+changes)
		require.Empty(t, slow.take())
		slow.release()
		wants(t, slow, "00000001.0:0: 1 has 0 as of 0:0", "00000001.0:100: 1 has 100 as of 0:100")
	})
}

func TestResume(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, r *rig) {
		r.likes.commit(0, 10, likes(3, 3), likes(6, 6))
		r.likes.commit(1, 10, likes(1, 1))

		t.Log("a view that has reached the client's position shows the current value")
		c := r.watch(seen(t, "00000001.0:9,1:10", posts(1, 3)))
		wants(t, c, "00000001.0:10,1:10: 3 has 3 as of 0:10", "00000001.0:10,1:10: 1 has 1 as of 1:10")

		t.Log("a partition that is behind waits, the others continue; the id keeps the client's position")
		c = r.watch(seen(t, "00000001.0:12,1:5,7:99", posts(1, 3, 6)))
		wants(t, c, "00000001.0:12,1:10: 1 has 1 as of 1:10")
		r.likes.commit(0, 11, likes(3, 4)) // published, but before the position wanted
		r.likes.commit(1, 11, likes(1, 2))
		pass(2 * r.options.Interval)
		wants(t, c, "00000001.0:12,1:11: 1 has 2 as of 1:11")
		r.likes.apply(0, 12) // nothing shown has changed, so there is no callback
		pass(r.options.Interval)
		wants(t, c, "00000001.0:12,1:11: 3 has 4 as of 0:12", "00000001.0:12,1:11: 6 has 6 as of 0:12")
		r.likes.commit(0, 13, likes(6, 7))
		pass(r.options.Interval)
		wants(t, c, "00000001.0:13,1:11: 6 has 7 as of 0:13")

		t.Log("positions of another epoch are ignored")
		c = r.watch(seen(t, "0badc0de.0:1000", posts(3)))
		wants(t, c, "00000001.0:13: 3 has 4 as of 0:13")
	})
}

// TestResumeFromBeyondTheLog checks that the wait is bounded, and that heartbeats are sent meanwhile.
func TestResumeFromBeyondTheLog(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, r *rig) {
		c := r.watch(seen(t, "00000001.0:9000000000000000000", posts(1, 2)))
		wants(t, c, "00000001.0:9000000000000000000,1:0: 1 has 0 as of 1:0")
		r.likes.set(func() { r.likes.mu.down[0] = true }) // a view that is not ready must not end the stream
		pass(resumeWait - time.Second)
		synctest.Wait()
		require.NoError(t, c.cause())
		require.Equal(t, 1, c.beats())
		pass(2 * time.Second)
		synctest.Wait()
		require.ErrorIs(t, c.cause(), errNotCovered)
		require.Empty(t, c.take())
		require.Zero(t, r.subjects())
	})
}

// TestRecreatedTopicEndsItsStreams checks that streams end when positions before and after cannot be compared.
func TestRecreatedTopicEndsItsStreams(t *testing.T) {
	for name, recreated := range map[string]func(f *fakeLikes){
		"anything may have changed": func(f *fakeLikes) { f.watch(wire.Position{Partition: 0, Offset: 10}, nil) },
		"the position is rewound":   func(f *fakeLikes) { f.commit(0, 9, likes(2, 1)) },
		"a rebuild fixes counts":    func(f *fakeLikes) { f.commit(0, 10, likes(2, 1)) },
		"another epoch": func(f *fakeLikes) {
			f.set(func() { f.mu.epochs[0] = epochTwo })
			f.commit(0, 11, likes(2, 1))
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 2, func(t *testing.T, r *rig) {
				c, other := r.watch(posts(2, 1)), r.watch(posts(1))
				synctest.Wait()
				r.likes.commit(0, 10, likes(2, 7))
				pass(r.options.Interval)
				synctest.Wait()
				c.take()
				recreated(r.likes)
				pass(r.options.Interval)
				wants(t, c)
				require.ErrorIs(t, c.cause(), errRecreated)
				require.NoError(t, other.cause(), "streams of other partitions continue")

				// A new stream does not show what was published before.
				if name == "another epoch" {
					r.likes.set(func() { r.likes.mu.epochs[1] = epochTwo })
				}
				r.likes.apply(0, 3, likes(2, 2))
				again := r.watch(posts(2))
				epoch, _ := r.likes.Epoch(0)
				wants(t, again, epoch+".0:3: 2 has 2 as of 0:3")
			})
		})
	}
}

// TestLingeringStreamIsClosed checks a stream that is stuck, and so has not left, when the log is rewound. It must
// neither pass old values on to new streams nor remove their subjects.
func TestLingeringStreamIsClosed(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, r *rig) {
		old := r.watchSlowly(posts(1))
		r.likes.commit(0, 100, likes(1, 7))
		pass(r.options.Interval)
		r.likes.commit(0, 5, likes(1, 2))

		c := r.watch(posts(1))
		wants(t, c, "00000001.0:5: 1 has 2 as of 0:5")
		old.release()
		synctest.Wait()
		require.ErrorIs(t, old.cause(), errRecreated)
		r.likes.commit(0, 6, likes(1, 3))
		pass(r.options.Interval)
		wants(t, c, "00000001.0:6: 1 has 3 as of 0:6")
		require.NoError(t, c.cause())
	})
}

// TestStreamOfANewEpochEndsOlderStreams checks that no callback is needed for it.
func TestStreamOfANewEpochEndsOlderStreams(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, r *rig) {
		r.likes.commit(0, 100, likes(2, 7))
		old := r.watch(posts(2))
		wants(t, old, "00000001.0:100: 2 has 7 as of 0:100")
		r.likes.set(func() { r.likes.mu.epochs[0] = epochTwo })
		r.likes.apply(0, 3, likes(2, 1))

		mixed := newStream(t.Context())
		require.ErrorIs(t, r.subscribe(mixed, posts(1, 2)), errEpochs,
			"partitions of different logs cannot share an event id")
		mixed.leave()
		wants(t, r.watch(posts(2)), "00000002.0:3: 2 has 1 as of 0:3")
		require.ErrorIs(t, old.cause(), errRecreated)
	})
}

// TestTopicRecreatedWhileAStreamOpens checks that positions in the new log are never sent with the old epoch.
func TestTopicRecreatedWhileAStreamOpens(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, r *rig) {
		r.likes.commit(0, 100, likes(1, 7))
		r.likes.beforeRead = func() {
			r.likes.set(func() { r.likes.mu.epochs[0] = epochTwo })
			r.likes.apply(0, 3, likes(1, 1))
		}
		s := newStream(t.Context())
		require.ErrorIs(t, r.subscribe(s, posts(1)), errRecreated)
		s.leave()
		require.Equal(t, slugNotReady, r.refusalOf(errRecreated).slug(), "the client may try again")
	})
}

func TestRankings(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, r *rig) {
		q := func() *wanted { return &wanted{ranking: &rankingKey{"DE", "1h"}} }
		next := func(c *fakeConn) (line string) {
			synctest.Wait()
			for _, m := range c.take() {
				line += fmt.Sprintf("%s: %d ", m.id, m.first(t))
			}
			return line
		}
		c := r.watch(q())
		require.Empty(t, next(c), "there is no ranking yet")
		r.rankings.put("DE", "1h", 5, 42)
		r.rankings.put("DE", "24h", 6, 43)
		require.Equal(t, "00000001.2:5: 42 ", next(c))

		resumed, ahead := r.watch(seen(t, "00000001.2:5", q())), r.watch(seen(t, "00000001.2:8", q()))
		require.Equal(t, "00000001.2:5: 42 ", next(resumed))
		require.Empty(t, next(ahead))
		r.rankings.put("DE", "1h", 7, 44)
		pass(r.options.Interval)
		require.Equal(t, "00000001.2:7: 44 ", next(c))
		require.Empty(t, next(ahead), "it has a newer one")
		r.rankings.put("DE", "1h", 8, 45)
		pass(2 * r.options.Interval)
		require.Equal(t, "00000001.2:8: 45 ", next(ahead))
		require.Equal(t, "00000001.2:8: 45 ", next(c))

		r.rankings.mu.epoch = epochTwo
		r.rankings.put("DE", "1h", 1, 46)
		pass(r.options.Interval)
		synctest.Wait()
		require.ErrorIs(t, c.cause(), errRecreated)
	})
}

// TestRunIsBounded checks that a handler that hangs, which is a defect, is reported.
func TestRunIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHub(t, newLikes(1), newRankings(), prometheus.NewRegistry(), nil)
		ctx, cancel := context.WithCancel(t.Context())
		ended := testkit.Later(func() error { return h.Run(ctx) })
		synctest.Wait()
		require.Nil(t, h.admit(newStream(t.Context()), netip.Addr{}))
		began := time.Now()
		cancel()
		require.ErrorContains(t, <-ended, "1 streams did not end")
		require.Equal(t, h.options.WriteTimeout+2*leaveTimeout, time.Since(began))
	})
}

// A stream shows the sum of a post in several partitions, whichever of them has changed.
func TestPostWithUserBucketsIsSummed(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, r *rig) {
		const post = sharedPost + 1
		r.likes.commit(1, 10, likes(post, 5))
		c := r.watch(posts(post))
		wants(t, c, fmt.Sprintf("00000001.0:0: %d has 5 as of 0:0", post),
			fmt.Sprintf("00000001.0:0,1:10: %d has 5 as of 1:10", post),
			fmt.Sprintf("00000001.0:0,1:10,2:0: %d has 5 as of 2:0", post))

		r.likes.apply(2, 4, likes(post, 6)) // the sum of all
		r.likes.watch(wire.Position{Partition: 2, Offset: 4}, []view.Change{likes(post, 1)})
		wants(t, c, fmt.Sprintf("00000001.0:0,1:10,2:4: %d has 6 as of 2:4", post))

		// While posts may be in all partitions, a sum that is read later is as of a later position, too.
		r.likes.apply(2, 7, likes(post, 9))
		r.likes.watch(wire.Position{Partition: 2, Offset: 6}, []view.Change{likes(post, 1)})
		pass(r.options.Interval)
		wants(t, c, fmt.Sprintf("00000001.0:0,1:10,2:7: %d has 9 as of 2:7", post))
		c.leave()
		require.Zero(t, r.subjects())
	})
}
