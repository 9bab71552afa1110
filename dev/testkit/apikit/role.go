package apikit

import (
	"bufio"
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/dev/testkit"
	"kudos/schema"
	"kudos/stream/kafka"
)

// Server is a role with an API.
type Server interface {
	Run(ctx context.Context) error
	Listening() <-chan struct{}
	Addr() string
	Ready() error
}

// Role is a Server under test, with the metrics that it registers.
type Role struct {
	T       testing.TB
	Server  Server
	Metrics *prometheus.Registry
	Stop    context.CancelFunc // ends Run
	Ended   chan error         // receives what Run returned
}

// NewRole returns a Role; set its Server before Start.
func NewRole(t testing.TB) *Role {
	return &Role{T: t, Metrics: prometheus.NewRegistry(), Ended: make(chan error, 1)}
}

// Start runs the server until the test ends, and waits until it listens.
func (r *Role) Start() {
	r.T.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r.Stop = cancel
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Ended <- r.Server.Run(ctx)
	}()
	r.T.Cleanup(func() {
		cancel()
		testkit.Receive(r.T, done, "Run must end")
	})
	testkit.Receive(r.T, r.Server.Listening(), "Run must listen")
}

// StartUntilReady calls Start and waits until the server is ready.
func (r *Role) StartUntilReady() {
	r.T.Helper()
	r.Start()
	r.WaitFor("the role must become ready", func() bool { return r.Server.Ready() == nil })
}

// End stops the server and requires Run to return no error.
func (r *Role) End() {
	r.T.Helper()
	r.Stop()
	require.NoError(r.T, testkit.Receive(r.T, r.Ended, "Run must end"))
}

// WaitFor waits until a condition holds.
func (r *Role) WaitFor(what string, condition func() bool) {
	r.T.Helper()
	require.Eventually(r.T, condition, testkit.Patience, time.Millisecond, what)
}

// WaitClosed waits until no connection is accepted, and requires the readiness error to name the shutdown.
func (r *Role) WaitClosed() {
	r.T.Helper()
	r.WaitFor("the server must stop accepting connections", func() bool {
		conn, err := net.Dial("tcp", r.Server.Addr())
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	})
	require.ErrorContains(r.T, r.Server.Ready(), ": shutting down")
}

// Metric is the value of a metric, or a histogram's number of observations; labels are name and value pairs.
func (r *Role) Metric(name string, labels ...string) float64 {
	r.T.Helper()
	return Metric(r.T, r.Metrics, name, labels...)
}

// Metric is Role.Metric for any gatherer.
func Metric(t testing.TB, reg prometheus.Gatherer, name string, labels ...string) float64 {
	t.Helper()
	families, err := reg.Gather()
	require.NoError(t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			fits := f.GetName() == name
			for pair := range slices.Chunk(labels, 2) {
				fits = fits && slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool {
					return l.GetName() == pair[0] && l.GetValue() == pair[1]
				})
			}
			if fits { // it is one of the three
				return m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	require.Fail(t, "no metric", "%s%v", name, labels)
	return 0
}

// Send sends a request; headers are name and value pairs.
func (r *Role) Send(method, path, body string, headers ...string) Answer {
	r.T.Helper()
	return MustSend(r.T, nil, method, "http://"+r.Server.Addr()+path, body, headers...)
}

// Later sends a request in the background. If it fails, the answer has status 0.
func (r *Role) Later(method, path, body string, headers ...string) <-chan Answer {
	return testkit.Later(func() Answer {
		a, _ := Send(r.T, nil, method, "http://"+r.Server.Addr()+path, body, headers...)
		return a
	})
}

// Dial opens a connection and writes the start of a request, for requests that Go's client cannot send.
func (r *Role) Dial(begin string) net.Conn {
	r.T.Helper()
	conn, err := net.Dial("tcp", r.Server.Addr())
	require.NoError(r.T, err)
	r.T.Cleanup(func() { _ = conn.Close() })
	require.NoError(r.T, conn.SetDeadline(time.Now().Add(testkit.Patience)))
	_, err = io.WriteString(conn, begin)
	require.NoError(r.T, err)
	return conn
}

// ReadFrom reads the response to what was written on a connection.
func ReadFrom(t testing.TB, conn net.Conn) Answer {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	return Read(t, resp)
}

// Unfinished sends a POST with only the start of its 1,000-byte body, once the server has begun to read the body: it
// then sends 100 Continue. If the server rejects the request instead, no body is sent and the caller sees the response.
func (r *Role) Unfinished(path, contentType, begin string) net.Conn {
	r.T.Helper()
	conn := r.Dial(fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: %s\r\n"+
		"Content-Length: 1000\r\nExpect: 100-continue\r\n\r\n", path, contentType))
	const goOn = "HTTP/1.1 100 Continue\r\n\r\n"
	answer := make([]byte, len(goOn))
	_, err := io.ReadFull(conn, answer)
	require.NoError(r.T, err)
	if string(answer) == goOn {
		_, err = io.WriteString(conn, begin)
		require.NoError(r.T, err)
	}
	return conn
}

// TLSFiles writes a certificate and its key, and returns a client that trusts it.
func TLSFiles(t testing.TB) (client *http.Client, cert, key string) {
	t.Helper()
	server := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	pair := server.TLS.Certificates[0]
	secret, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	require.NoError(t, err)
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(t.TempDir(), name)
		require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
		return path
	}
	client = server.Client()
	t.Cleanup(client.CloseIdleConnections)
	return client, write("cert.pem", "CERTIFICATE", pair.Certificate[0]), write("key.pem", "PRIVATE KEY", secret)
}

// Broker starts an embedded broker with topics.
func Broker(t testing.TB, partitions int32, topics []string, opts ...kfake.Opt) (*testkit.Cluster, kafka.Options) {
	t.Helper()
	cluster := testkit.NewCluster(t, opts...)
	for _, topic := range topics {
		cluster.Topic(topic, partitions)
	}
	options := kafka.DefaultOptions()
	options.Brokers = cluster.ListenAddrs()
	options.RequestTimeout = 5 * time.Second
	return cluster, options
}

// Likes reads all records of likes, by partition and offset.
func Likes(t testing.TB, options kafka.Options) (records []*kgo.Record) {
	t.Helper()
	cl, err := options.NewClient(testkit.Log())
	require.NoError(t, err)
	defer cl.Close()
	ctx := testkit.Context(t)
	topics, err := kafka.LookUpTopics(ctx, cl, schema.TopicLikes)
	require.NoError(t, err)
	for p := range topics.ByName[schema.TopicLikes].Partitions {
		records = append(records, Records(t, cl, schema.TopicLikes, p)...)
	}
	return records
}

// Records returns the committed records of a partition.
func Records(t testing.TB, cl *kgo.Client, topic string, partition int32) (records []*kgo.Record) {
	t.Helper()
	ctx := testkit.Context(t)
	from, to, err := kafka.Bounds(ctx, cl, topic, partition)
	require.NoError(t, err)
	if from == to {
		return nil
	}
	require.NoError(t, kafka.ReadLog(ctx, cl, topic, partition, from, func(c kafka.LogChunk) (bool, error) {
		records = append(records, c.Records...)
		return c.Next < to, nil
	}))
	return records
}

// Event decodes a record of likes.
func Event(t testing.TB, rec *kgo.Record) (e schema.Event) {
	t.Helper()
	require.NoError(t, schema.DecodeEvent(rec.Key, rec.Value, &e))
	return e
}
