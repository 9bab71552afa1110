package live

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"kudos/reader/wire"
)

func TestReactionsOfTheViewer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reaction atomic.Value
		var fails atomic.Bool
		reaction.Store("LIKE")
		var asked []string
		r := start(t, 2, func(o *Options) {
			o.Reactions = func(_ context.Context, _ netip.Addr, user uint64, posts []uint64, covered []wire.Position,
			) ([]wire.UserReaction, error) {
				asked = append(asked, fmt.Sprint(user, posts, covered))
				if fails.Swap(false) {
					return nil, errors.New("not ready")
				}
				return []wire.UserReaction{{PostID: 1, UserID: user, Reaction: reaction.Load().(string),
					AsOf: wire.Position{Partition: 1, Offset: 10}}, {PostID: 2, UserID: user, Reaction: "NONE"}}, nil
			}
		})
		q := posts(1, 2)
		q.viewer = 7
		c := r.watch(q)
		gets := func(what string, events ...string) {
			t.Helper()
			synctest.Wait()
			var got []string
			for _, m := range c.take() {
				if m.event == "reaction" {
					var body wire.UserReaction
					m.decode(t, "reaction", &body)
					got = append(got, fmt.Sprintf("%d: %s", body.PostID, body.Reaction))
				}
			}
			require.Equal(t, events, got, what)
		}
		gets("at first", "1: LIKE", "2: NONE")

		reaction.Store("DISLIKE")
		r.likes.commit(1, 11, likes(1, 3))
		gets("at most one question a second")
		pass(viewerEvery)
		gets("after the counts", "1: DISLIKE")
		require.Equal(t, "7 [1 2] [1:11]", asked[len(asked)-1], "the answer must not be older than the counts")

		fails.Store(true)
		reaction.Store("NONE")
		r.likes.commit(1, 12, likes(1, 2))
		pass(2 * viewerEvery)
		gets("asked again after an error", "1: NONE")

		// Another user takes a like back in the same batch: the counts do not change.
		reaction.Store("LIKE")
		r.likes.commit(1, 13)
		pass(r.options.Heartbeat)
		gets("without a change of counts", "1: LIKE")
		pass(10 * r.options.Heartbeat)
		gets("nothing has changed")
	})
}

func TestStreamWithoutReactions(t *testing.T) {
	r := start(t, 1, nil)
	q := posts(1)
	q.viewer = 7
	no := r.show(t.Context(), q, kindSSE, func(*stream) (conn, *refusal) { return &fakeConn{}, nil })
	require.Equal(t, "urn:kudos:problem:no-reactions", no.Type)
}
