package tracing

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/sethvargo/go-retry"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"kudos/httpserver/tlsfiles"
)

// collector sends spans by OTLP over HTTP. OpenTelemetry's own client, otlptracehttp, imports all of gRPC: 80 packages.
type collector struct {
	url    string
	header http.Header
	gzip   bool
	client *http.Client
}

const (
	collectorURL     = "http://localhost:4318"
	collectorTimeout = 10 * time.Second
	// Retries end with the SDK's context: 30 s after the first attempt, unless the environment sets another timeout.
	firstRetry, longestRetry = 500 * time.Millisecond, 5 * time.Second
	answerBytes              = 4 << 10 // bounds what is read of a response, which is logged
)

// setting returns the value of a standard OTLP variable; that for traces takes precedence over that for all signals.
func setting(name string) string {
	return cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_TRACES_"+name), os.Getenv("OTEL_EXPORTER_OTLP_"+name))
}

// newCollector reads its settings from the environment.
func newCollector() (*collector, error) {
	c := &collector{url: os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), header: http.Header{}}
	if c.url == "" {
		c.url = strings.TrimSuffix(cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT"), collectorURL), "/") + "/v1/traces"
	}
	target, err := url.Parse(c.url)
	if err != nil || target.Host == "" || target.Scheme != "http" && target.Scheme != "https" {
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_ENDPOINT: %q is not an http or https URL", c.url)
	}
	for header := range strings.SplitSeq(setting("HEADERS"), ",") {
		name, value, found := strings.Cut(header, "=")
		text, err := url.PathUnescape(strings.TrimSpace(value))
		if name = strings.TrimSpace(name); name+text == "" {
			continue
		}
		if !found || err != nil { // not printed: it may be a secret
			return nil, errors.New("OTEL_EXPORTER_OTLP_HEADERS: a header is not name=value")
		}
		c.header.Set(name, text)
	}
	c.header.Set("Content-Type", "application/x-protobuf")
	c.header.Set("User-Agent", "OTel OTLP Exporter Go/"+otlptrace.Version())
	switch compression := setting("COMPRESSION"); compression {
	case "gzip":
		c.gzip = true
		c.header.Set("Content-Encoding", compression)
	case "", "none":
	default:
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_COMPRESSION is %q; gzip and none are supported", compression)
	}
	timeout := collectorTimeout
	if text := setting("TIMEOUT"); text != "" {
		ms, err := strconv.Atoi(text)
		if err != nil || ms <= 0 {
			return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_TIMEOUT is %q; it must be a number of milliseconds", text)
		}
		timeout = time.Duration(ms) * time.Millisecond
	}
	files := tlsfiles.Files{Setting: "tls", CA: setting("CERTIFICATE"), Cert: setting("CLIENT_CERTIFICATE"),
		Key: setting("CLIENT_KEY")}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if transport.TLSClientConfig, err = files.Config(target.Hostname()); err != nil {
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_CERTIFICATE, …_CLIENT_CERTIFICATE, …_CLIENT_KEY: %w", err)
	}
	c.client = &http.Client{Transport: transport, Timeout: timeout}
	return c, nil
}

// Start implements otlptrace.Client.
func (c *collector) Start(context.Context) error { return nil }

// Stop closes idle connections.
func (c *collector) Stop(context.Context) error {
	c.client.CloseIdleConnections()
	return nil
}

// UploadTraces sends spans and retries while the collector is overloaded. If the collector refuses connections, the
// spans are lost at once, so that a shutdown does not wait for it.
func (c *collector) UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	body, err := proto.Marshal(&tracepb.TracesData{ResourceSpans: spans}) // has the fields of an OTLP request
	if err != nil {
		return err
	}
	if c.gzip {
		var compressed bytes.Buffer
		w := gzip.NewWriter(&compressed)
		_, _ = w.Write(body) // in memory: it cannot fail
		_ = w.Close()
		body = compressed.Bytes()
	}
	backoff := retry.WithJitterPercent(20, retry.WithCappedDuration(longestRetry, retry.NewExponential(firstRetry)))
	return retry.Do(ctx, backoff, func(ctx context.Context) error { return c.send(ctx, body) })
}

func (c *collector) send(ctx context.Context, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header = c.header.Clone()
	resp, err := c.client.Do(req)
	if failed, ok := errors.AsType[*url.Error](err); ok && failed.Timeout() {
		return retry.RetryableError(err)
	}
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, answerBytes))
	switch resp.StatusCode {
	case http.StatusOK:
		if len(answer) > 0 && err == nil { // a protobuf message with some text
			otel.Handle(fmt.Errorf("tracing: %s rejected spans or returned a warning: %q", c.url, answer))
		}
		return nil
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return retry.RetryableError(fmt.Errorf("sending spans to %s: %s: %q", c.url, resp.Status, answer))
	}
	return fmt.Errorf("sending spans to %s: %s: %q", c.url, resp.Status, answer)
}
