package reader

import (
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"kudos/reader/wire"
	"kudos/schema"
)

// flatLikes has the same counts for every post, and costs next to nothing.
type flatLikes struct {
	*fakeLikes
	counts []schema.Counts
	asOf   []wire.Position
}

func (f *flatLikes) Counts(posts []uint64) ([]schema.Counts, []wire.Position, error) {
	return f.counts[:len(posts)], f.asOf[:1], nil
}

// unread is a connection that nobody reads from.
type unread struct{ header http.Header }

func (u *unread) Header() http.Header         { return u.header }
func (u *unread) WriteHeader(int)             {}
func (u *unread) Write(b []byte) (int, error) { return len(b), nil }

// What an answer costs beside the copy and net/http's own.
func BenchmarkAPI(b *testing.B) {
	likes := &flatLikes{newFakeLikes(), make([]schema.Counts, wire.MaxPosts), []wire.Position{{Partition: 3, Offset: 1018}}}
	a, err := newAPI(DefaultOptions(), likes, &fakeRankings{}, nil, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	require.NoError(b, err)
	for _, posts := range []int{1, 20, 1000} {
		target := "/v1/posts/1234567890123/likes"
		if posts > 1 {
			var ids []string
			for i := range posts {
				ids = append(ids, strconv.Itoa(1234567890123+i))
			}
			target = "/v1/likes?post_ids=" + strings.Join(ids, ",")
		}
		b.Run("posts="+strconv.Itoa(posts), func(b *testing.B) {
			r, err := http.NewRequest(http.MethodGet, target, nil)
			require.NoError(b, err)
			w := &unread{http.Header{}}
			b.ReportAllocs()
			for b.Loop() {
				clear(w.header)
				a.ServeHTTP(w, r)
			}
		})
	}
}
