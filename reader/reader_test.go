package reader

import (
	"io"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/dev/testkit"
	"kudos/dev/testkit/apikit"
	"kudos/schema"
	"kudos/stream/kafka"
)

// foldedTo is the offset in likes that these tests' tables reflect; the partitions of likes end at likesEnd.
const foldedTo, likesEnd = 10, foldedTo + 5

// roleRig is a reader that runs against an embedded broker, without MySQL.
type roleRig struct {
	*Reader
	*apikit.Role
	inFlight chan struct{} // gets one for each request whose response has begun
}

// broker is a broker as the fold has left it: post 1 has 3 likes, in either partition; some events are not folded.
func broker(t *testing.T) kafka.Options {
	t.Helper()
	const partitions = 2
	topics := []string{schema.TopicLikes, schema.TopicState, schema.TopicCounts, schema.TopicTrending}
	cluster, kafka := apikit.Broker(t, partitions, topics)
	records := []*kgo.Record{{
		Topic: schema.TopicCounts, Partition: schema.PartitionFor(1, partitions),
		Key: schema.AppendCountsKey(nil, 1), Value: schema.AppendCounts(nil, schema.Counts{Likes: 3}),
	}}
	progress := schema.Progress{NextOffset: foldedTo, SourceID: schema.TopicID{1}, Partitions: partitions}
	for p := range int32(partitions) {
		for _, topic := range []string{schema.TopicState, schema.TopicCounts} {
			records = append(records, testkit.Record(topic, p, schema.StateProgressKey,
				string(schema.AppendProgress(nil, &progress))))
		}
		for range likesEnd {
			records = append(records, &kgo.Record{Topic: schema.TopicLikes, Partition: p, Value: []byte("{}")})
		}
	}
	cluster.Produce(records...)
	return kafka
}

// newRole returns a reader with options set by change; it does not run.
func newRole(t *testing.T, change func(*Options)) *roleRig {
	t.Helper()
	o := DefaultOptions()
	o.HTTPAddr, o.StateDir, o.CacheBytes = "127.0.0.1:0", t.TempDir(), 8<<20
	if change != nil {
		change(&o)
	}
	r := &roleRig{Role: apikit.NewRole(t), inFlight: make(chan struct{}, 100)}
	var err error
	r.Reader, err = New(o, broker(t), nil, testkit.Log(), r.Metrics)
	require.NoError(t, err)
	r.Role.Server = r.Reader
	all := r.HTTP.Handler
	r.HTTP.Handler = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.inFlight <- struct{}{}
		all.ServeHTTP(w, req)
	})
	return r
}

// startRole runs a reader until the test ends, and waits until it is ready.
func startRole(t *testing.T, change func(*Options)) *roleRig {
	t.Helper()
	r := newRole(t, change)
	r.StartUntilReady()
	return r
}

func (r *roleRig) get(path string, headers ...string) apikit.Answer {
	r.T.Helper()
	return r.Send(http.MethodGet, path, "", headers...)
}

func (r *roleRig) getLater(path string) <-chan apikit.Answer {
	return r.Later(http.MethodGet, path, "")
}

// openStream opens a live stream of post 1 and reads its beginning.
func (r *roleRig) openStream(headers ...string) *http.Response {
	r.T.Helper()
	resp, err := apikit.Do(r.T, nil, http.MethodGet, "http://"+r.Addr()+"/v1/stream?post_ids=1", "", headers...)
	require.NoError(r.T, err)
	r.T.Cleanup(func() { _ = resp.Body.Close() })
	require.Equal(r.T, 200, resp.StatusCode)
	require.Equal(r.T, "text/event-stream", resp.Header.Get("Content-Type"))
	begin := make([]byte, len("retry: "))
	_, err = io.ReadFull(resp.Body, begin)
	require.NoError(r.T, err)
	require.Equal(r.T, "retry: ", string(begin))
	return resp
}

func TestReaderServesEverythingOnOneAddress(t *testing.T) {
	const listed = "https://www.example.com"
	r := startRole(t, func(o *Options) { o.Origins, o.ProducerURL = []string{listed}, "https://likes.example.com" })

	at := strconv.Itoa(int(schema.PartitionFor(1, 2)))
	a := r.get(likesOf1, "Origin", listed).RequireHeader("Access-Control-Allow-Origin", listed).RequireJSON(200,
		`{"post_id":"1","likes":3,"dislikes":0,"as_of":{"partition":`+at+`,"offset":10}}`)
	require.Contains(t, a.Header.Get("Access-Control-Expose-Headers"), "Kudos-As-Of")
	r.get("/v1/posts").RequireProblem(http.StatusNotFound, "not-found", "")
	r.get(overTime).RequireProblem(503, "no-mysql", "neither mysql.dsn nor mysql.shards is set")

	for path, contentType := range map[string]string{
		"/":              "text/html; charset=utf-8",
		"/assets/app.js": "text/javascript; charset=utf-8",
		"/openapi.yaml":  "application/yaml",
	} {
		require.NotEmpty(t, r.get(path).Require(200).RequireHeader("Content-Type", contentType).Body, path)
	}
	r.get("/dashboard.json").RequireJSON(200, `{"producer_url":"https://likes.example.com",
		"post_url":"","title_url":"","grafana_url":""}`)

	stream := r.openStream("Origin", listed)
	require.Equal(t, listed, stream.Header.Get("Access-Control-Allow-Origin"))
	require.Equal(t, "Retry-After", stream.Header.Get("Access-Control-Expose-Headers"))
	require.Empty(t, r.openStream("Origin", "https://www.example.org").Header.Get("Access-Control-Allow-Origin"))
	r.Send(http.MethodOptions, "/v1/stream", "", "Origin", listed,
		"Access-Control-Request-Method", "GET", "Access-Control-Request-Headers", "last-event-id").
		Require(http.StatusNoContent).RequireHeader("Access-Control-Allow-Headers", "last-event-id")

	for _, p := range []string{"0", "1"} {
		for _, lane := range []string{"counts", "reactions"} {
			at := r.Metric("kudos_reader_position", "lane", lane, "partition", p)
			require.EqualValues(t, foldedTo, at, "partition %s of %s", p, lane)
		}
		for _, group := range []string{"reader-counts", "reader-reactions", "reader-rankings"} {
			running := r.Metric("kudos_partition_state", "group", group, "partition", p, "state", "running")
			require.EqualValues(t, 1, running, "partition %s of %s", p, group)
		}
	}
}

func TestReaderWithoutDashboard(t *testing.T) {
	r := startRole(t, func(o *Options) { o.Dashboard = false })
	for _, path := range []string{"/", "/assets/app.js", "/dashboard.json"} {
		r.get(path).RequireProblem(http.StatusNotFound, "not-found", "")
	}
	r.get(likesOf1).Require(200)
}

// At shutdown, a request that waits for its event is still answered, from views that still exist.
func TestReaderShutdownAnswersRequestsInFlight(t *testing.T) {
	r := startRole(t, func(o *Options) { o.MaxWait = time.Second })
	stream := r.openStream()
	testkit.Receive(t, r.inFlight, "the stream must be in flight")
	waiting := r.getLater(likesOf1 + "?min_offset=11")
	testkit.Receive(t, r.inFlight, "the request must be in flight")

	r.Stop()
	r.WaitClosed()
	require.EqualError(t, r.Ready(), "reader: shutting down")
	apikit.Read(t, stream)

	a := testkit.Receive(t, waiting, "the request must be answered").RequireProblem(503, "not-covered", "")
	require.Contains(t, a.Body, `"as_of":[{"partition":`+strconv.Itoa(int(schema.PartitionFor(1, 2)))+`,"offset":10}]`)
	r.End()
}

// A request that waits longer than the shutdown timeout is cut off, and Run reports it.
func TestReaderShutdownIsBounded(t *testing.T) {
	r := startRole(t, func(o *Options) { longWait(o); o.ShutdownTimeout = 50 * time.Millisecond })
	cut := r.getLater(likesOf1 + "?min_offset=11")
	testkit.Receive(t, r.inFlight, "the request must be in flight")
	r.Stop()
	ended := testkit.Receive(t, r.Ended, "Run must end")
	require.ErrorContains(t, ended, "reader: requests were interrupted after 50ms")
	testkit.Receive(t, cut, "the request must end").Require(0)
}

func TestReaderRunRejectsInvalidOptions(t *testing.T) {
	r := startRole(t, nil)
	require.EqualError(t, r.Run(t.Context()), "reader: Run was called twice")
	r.get(likesOf1).Require(200) // the first continues
	taken := newRole(t, func(o *Options) { o.HTTPAddr = r.Addr() })
	require.ErrorContains(t, taken.Run(t.Context()),
		"reader: listening on "+r.Addr()+" (set reader.http_addr to a free host:port): ")
	r.End()
}

func TestNewReaderRejectsInvalidOptions(t *testing.T) {
	reg := prometheus.NewRegistry()
	create := func(o Options, brokers ...string) error {
		kafka := kafka.DefaultOptions()
		kafka.Brokers = brokers
		_, err := New(o, kafka, nil, testkit.Log(), reg)
		return err
	}
	require.ErrorContains(t, create(Options{}, "localhost:9092"), "reader options: reader.http_addr")
	require.ErrorContains(t, create(DefaultOptions()), "kafka.brokers")
	require.NoError(t, create(DefaultOptions(), "localhost:9092"))
	require.ErrorContains(t, create(DefaultOptions(), "localhost:9092"), "registering the metrics")
}

func TestOptionsRejectInvalidURLs(t *testing.T) {
	o := DefaultOptions()
	o.PostURL, o.TitleURL = "https://a.example.com/{post_id}", "http://a.example.com:8080/{post_id}?x=1"
	o.AdminURLs, o.GrafanaURL = []string{"http://10.0.0.7:9090"}, "https://grafana.example.com/d/kudos"
	require.NoError(t, o.Validate())
	o.PostURL, o.TitleURL = "https://a.example.com/", "javascript:{post_id}"
	o.AdminURLs, o.GrafanaURL, o.ProducerURL = []string{"10.0.0.7:9090"}, "grafana", "//a"
	err := o.Validate()
	for _, key := range []string{"post_url", "title_url", "admin_urls", "grafana_url", "producer_url"} {
		require.ErrorContains(t, err, "reader."+key+": ")
	}
}

// With a certificate, everything is served over HTTPS only. Missing files must not lead to plain HTTP.
func TestReaderTLS(t *testing.T) {
	client, cert, key := apikit.TLSFiles(t)
	r := newRole(t, func(o *Options) { o.TLSCert, o.TLSKey = "/nowhere/cert.pem", "/nowhere/key.pem" })
	require.ErrorContains(t, r.Run(t.Context()), "reader.tls_cert: open /nowhere/cert.pem")
	o := DefaultOptions()
	o.TLSKey = "key.pem"
	require.ErrorContains(t, o.Validate(), "reader.tls_cert: tls_cert and tls_key go together")

	r = startRole(t, func(o *Options) { o.TLSCert, o.TLSKey = cert, key })
	client.Transport.(*http.Transport).ForceAttemptHTTP2 = true
	for _, path := range []string{likesOf1, "/v1/stream?post_ids=1"} {
		resp, err := apikit.Do(t, client, http.MethodGet, "https://"+r.Addr()+path, "")
		require.NoError(t, err)
		require.Equal(t, 200, resp.StatusCode, path)
		_, err = io.ReadFull(resp.Body, make([]byte, 6))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
	}
	require.Contains(t, []int{0, http.StatusBadRequest}, (<-r.getLater(likesOf1)).Status, "plain HTTP")
	client.CloseIdleConnections()
}
