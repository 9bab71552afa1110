package reader

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kudos/reader/view"
	"kudos/reader/wire"
)

// floodSlots is reader.max_concurrent_requests of these tests.
const floodSlots = 4

// Requests that wait for min_offset take no slot from those that need not wait, and none waits for what is not
// in likes.
func TestRegressFarMinOffset(t *testing.T) {
	t.Run("waiting", func(t *testing.T) {
		r := newRig(t, func(o *Options) {
			o.MaxConcurrentRequests, o.MaxWait, o.WriteTimeout = floodSlots, patience, 2*patience
		}, nil)
		waiting := make(chan answered, floodSlots)
		for range floodSlots {
			go func() { waiting <- r.get("/v1/posts/1/likes?min_offset=1000") }()
			receive(t, r.likes.mu.waits, "the request must wait")
		}
		const post = "/v1/posts/1/likes"
		for _, target := range []string{post, post + "?min_offset=0", "/v1/stats", "/openapi.yaml"} {
			require.Equal(t, http.StatusOK, r.get(target).status, target)
		}
		require.Equal(t, http.StatusOK, r.post("/v1/likes:get", `{"post_ids":[1]}`).status)

		a := r.get("/v1/posts/1/likes?min_offset=1000")
		require.Equal(t, "as many requests wait for min_offset as the reader takes (reader.max_concurrent_requests)",
			a.requireProblem(http.StatusTooManyRequests, "too-many-requests"))
		require.Equal(t, "1", a.header.Get("Retry-After"))

		r.likes.set(func() { r.likes.mu.asOf[r.likes.partition(1)] = 1001 })
		for range floodSlots {
			require.Equal(t, http.StatusOK, receive(t, waiting, "the request must be answered").status)
		}
		all := int64(floodSlots)
		require.True(t, r.working.TryAcquire(all) && r.waiting.TryAcquire(all), "all slots are free again")
	})
	t.Run("beyond the end", func(t *testing.T) {
		r := startRole(t, func(o *Options) {
			o.MaxConcurrentRequests, o.MaxWait, o.WriteTimeout = floodSlots, 2*patience, 4*patience
		})
		flood := make(chan answered, floodSlots)
		for i := range cap(flood) {
			go func() {
				resp, err := r.ask(http.MethodGet, fmt.Sprintf("/v1/posts/1/likes?min_offset=%d", likesEnd+i))
				if err != nil {
					flood <- answered{t: t, body: err.Error()}
					return
				}
				flood <- r.whole(resp)
			}()
		}
		require.Equal(t, http.StatusOK, r.get("/v1/posts/1/likes").status)
		for range cap(flood) {
			a := receive(t, flood, "the request must be answered at once")
			require.Equal(t, http.StatusBadRequest, a.status, a.body)
			require.Contains(t, a.body, fmt.Sprintf("the topic likes ends at %d there", likesEnd))
			require.Contains(t, a.body, `"field":"min_offset","reason":"out_of_range"`)
		}
	})
}

// A request whose body does not come takes no slot.
func TestRegressUnfinishedBodies(t *testing.T) {
	r := startRole(t, func(o *Options) {
		o.MaxConcurrentRequests, o.ReadTimeout, o.WriteTimeout = floodSlots, 2*patience, 4*patience
	})
	for range 3 * floodSlots {
		conn, err := net.Dial("tcp", r.Addr())
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
		_, err = io.WriteString(conn, "POST /v1/likes:get HTTP/1.1\r\nHost: x\r\n"+
			"Content-Type: application/json\r\nContent-Length: 1000\r\nExpect: 100-continue\r\n\r\n")
		require.NoError(t, err)
		const goOn = "HTTP/1.1 100 Continue\r\n\r\n" // said when the body is read
		answer := make([]byte, len(goOn))
		_, err = io.ReadFull(conn, answer)
		require.NoError(t, err)
		if string(answer) == goOn {
			_, err = io.WriteString(conn, `{"post_ids":`)
			require.NoError(t, err)
		}
	}
	require.Equal(t, http.StatusOK, r.get("/v1/posts/1/likes").status)
	r.get("/v1/posts").requireProblem(http.StatusNotFound, "not-found")
}

// Every answer that waits for min_offset says so if there is no such event.
func TestBeyondEnd(t *testing.T) {
	r := newRig(t, func(o *Options) { o.MaxWait, o.WriteTimeout = patience, 2*patience }, nil)
	r.likes.mu.beyondEnd = &view.BeyondEndError{Want: wire.Position{Partition: 3, Offset: 1001}, End: 40}
	for _, a := range []answered{
		r.get("/v1/posts/1/likes?min_offset=1000"),
		r.get("/v1/posts/1/likes/7?min_offset=1000"),
		r.get("/v1/posts/1/likers?min_offset=1000"),
		r.get("/v1/likes?post_ids=1&min_offset=0:5,3:1000"),
		r.post("/v1/likes:get", `{"post_ids":[1],"min_offset":[{"partition":3,"offset":1000}]}`),
	} {
		a.requireInvalid("min_offset", "out_of_range",
			"no event is at partition 3, offset 1000; the topic likes ends at 40 there")
	}
	require.Empty(t, r.logged.String())
}
