package producer

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"kudos/schema"
)

// FuzzAPI: whatever is asked is answered in the form that is promised, and Kafka has
// just the events that the answer says were accepted.
func FuzzAPI(f *testing.F) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(partitions, schema.TopicLikes))
	require.NoError(f, err)
	f.Cleanup(cluster.Close)
	o := DefaultOptions()
	o.HTTPAddr = "127.0.0.1:0"
	p, err := New(o, kafkaOptions(cluster), slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	require.NoError(f, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	f.Cleanup(func() { cancel(); require.NoError(f, <-ended) })
	<-p.Listening()
	written := func() (n int64) {
		for _, info := range cluster.PartitionInfos(schema.TopicLikes) {
			n += info.HighWatermark
		}
		return n
	}

	f.Add("PUT", "/v1/posts/1/likes/2", "region=us&time_ms=7", "", []byte(nil))
	f.Add("POST", "/v1/posts/1/likes", "", "application/json", []byte(`{"user_id":"7","region":"DE"}`))
	f.Add("POST", "/v1/likes:batch", "lines=errors", "application/x-ndjson", []byte("{\"post_id\":1,\"user_id\":2,\"action\":\"LIKE\"}\nx\n"))
	f.Add("DELETE", "/v1/posts/18446744073709551616/dislikes/0", "", "", []byte(nil))
	f.Add("BREW", "/../v1//posts", "%zz", "text/html; charset=", []byte("{"))
	f.Fuzz(func(t *testing.T, method, path, query, contentType string, body []byte) {
		u := &url.URL{Path: path, RawQuery: query}
		r, err := http.NewRequest(method, "http://kudos", bytes.NewReader(body))
		if err != nil {
			return // no such request can arrive
		}
		r.URL.Path, r.URL.RawQuery, r.RequestURI = u.Path, u.RawQuery, u.RequestURI()
		if contentType != "" {
			r.Header.Set("Content-Type", contentType)
		}
		before := written()
		w := httptest.NewRecorder()
		p.Handler().ServeHTTP(w, r)
		accepted := int64(0)
		switch {
		case w.Code == http.StatusOK:
			require.Equal(t, document, w.Body.String())
		case w.Code == http.StatusAccepted && path == "/v1/likes:batch":
			var answer struct{ Accepted int64 }
			require.NoError(t, json.Unmarshal(w.Body.Bytes(), &answer), w.Body)
			accepted = answer.Accepted
		case w.Code == http.StatusAccepted:
			var at position
			require.NoError(t, json.Unmarshal(w.Body.Bytes(), &at), w.Body)
			accepted = 1
		case w.Code >= 400:
			require.Less(t, w.Code, 500, "%s %q: %s", method, path, w.Body)
			require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
			var problem struct {
				Status      int
				Type, Title string
				Accepted    int64
			}
			require.NoError(t, json.Unmarshal(w.Body.Bytes(), &problem), w.Body)
			require.Equal(t, w.Code, problem.Status)
			require.NotEmpty(t, problem.Type)
			require.NotEmpty(t, problem.Title)
			accepted = problem.Accepted
		default:
			require.Contains(t, []int{http.StatusMovedPermanently, http.StatusTemporaryRedirect, http.StatusPermanentRedirect}, w.Code, "a path is cleaned: %q", path)
		}
		require.Equal(t, before+accepted, written())
	})
}
