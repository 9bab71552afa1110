package producer

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// unfinished sends a request without the end of its body, once the producer has begun to read that: the producer then
// says 100 Continue. If the producer refuses the request instead, that is left to the client beside it to notice.
func (r *rig) unfinished(path, contentType, begin string) net.Conn {
	r.t.Helper()
	conn := r.dial()
	_, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: %s\r\n"+
		"Content-Length: 1000\r\nExpect: 100-continue\r\n\r\n", path, contentType)
	require.NoError(r.t, err)
	const goOn = "HTTP/1.1 100 Continue\r\n\r\n"
	answer := make([]byte, len(goOn))
	_, err = io.ReadFull(conn, answer)
	require.NoError(r.t, err)
	if string(answer) == goOn {
		_, err = io.WriteString(conn, begin)
		require.NoError(r.t, err)
	}
	return conn
}

// requireServed has a normal client send each kind of request.
func (r *rig) requireServed() {
	r.t.Helper()
	r.put("/v1/posts/7/likes/8").place(r.t)
	r.postLikeBody("/v1/posts/7/likes", `{"user_id":9}`).place(r.t)
	a := r.postLines("", line(7, 10))
	require.Equal(r.t, http.StatusAccepted, a.status, a.body)
	require.Equal(r.t, http.StatusOK, r.send(http.MethodGet, "/openapi.yaml", "").status)
}

// Requests whose bodies do not come take no slot: other clients are served as ever.
func TestRegressUnfinishedBodies(t *testing.T) {
	const slots = 4
	begin := func(t *testing.T) *rig {
		return start(t, func(o *Options) {
			o.MaxConcurrentRequests, o.MaxConcurrentBatches = slots, slots/2
			o.ReadTimeout, o.WriteTimeout = 2*patience, 4*patience // nothing ends by itself
		})
	}
	t.Run("single", func(t *testing.T) {
		r := begin(t)
		for range 3 * slots {
			r.unfinished("/v1/posts/7/likes", "application/json", `{"user_`)
		}
		r.requireServed()
	})
	t.Run("batch", func(t *testing.T) {
		r := begin(t)
		for range 3 * slots {
			r.unfinished("/v1/likes:batch", "application/jsonl", line(7, 1)+"\n"+line(7, 2))
		}
		r.requireServed()
		require.EqualValues(t, 3, r.written(), "nothing is written of a batch that is not whole")
	})
	t.Run("body that is not read", func(t *testing.T) {
		r := begin(t)
		for i := range 3 * slots {
			_, err := io.WriteString(r.dial(), "PUT /v1/posts/7/likes/9 HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")
			require.NoError(t, err)
			require.Eventually(t, func() bool {
				return r.metric("kudos_producer_accepted_total") == float64(i+1)
			}, patience, time.Millisecond)
		}
		r.requireServed()
	})
}

// What unfinished bodies hold is bounded: the one that has been arriving longest makes way, and nothing of it
// is written.
func TestOldestUnfinishedBodyMakesWay(t *testing.T) {
	r := start(t, func(o *Options) {
		o.MaxConcurrentRequests, o.MaxConcurrentBatches, o.MaxBatchBytes = 4, 1, 2_000
		o.ReadTimeout, o.WriteTimeout = 2*patience, 4*patience
	})
	begin := strings.Repeat(line(7, 1)+"\n", 15) // of 1,000 bytes, all but the last lines
	oldest := r.unfinished("/v1/likes:batch", "application/jsonl", begin)
	var others []net.Conn
	for range 4 {
		others = append(others, r.unfinished("/v1/likes:batch", "application/jsonl", begin))
	}
	resp, body := readResponse(t, oldest)
	require.Equal(t, http.StatusRequestTimeout, resp.StatusCode, body)
	require.Contains(t, body, "urn:kudos:problem:request-timeout")
	require.Contains(t, body, "nothing of it was written")
	require.Zero(t, r.written())

	newest := others[len(others)-1]
	_, err := io.WriteString(newest, strings.Repeat("\n", 1000-len(begin)))
	require.NoError(t, err)
	resp, body = readResponse(t, newest)
	require.Equal(t, http.StatusAccepted, resp.StatusCode, body)
	r.requireServed()
}
