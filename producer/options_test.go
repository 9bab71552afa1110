package producer

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kudos/schema"
)

func TestDefaultOptionsAreValid(t *testing.T) { require.NoError(t, DefaultOptions().Validate()) }

func TestValidateTellsAll(t *testing.T) {
	for want, change := range map[string]func(*Options){
		`producer.http_addr: "8080" is not host:port`:                                                    func(o *Options) { o.HTTPAddr = "8080" },
		"producer.max_body_bytes: must be above zero":                                                    func(o *Options) { o.MaxBodyBytes = 0 },
		"producer.max_batch_bytes: must be above zero":                                                   func(o *Options) { o.MaxBatchBytes = -1 },
		"producer.max_batch_lines: must be above zero":                                                   func(o *Options) { o.MaxBatchLines = 0 },
		"producer.max_header_bytes: must be above zero":                                                  func(o *Options) { o.MaxHeaderBytes = 0 },
		"producer.max_concurrent_requests: must be above zero":                                           func(o *Options) { o.MaxConcurrentRequests = 0 },
		"producer.max_concurrent_batches: must be above zero":                                            func(o *Options) { o.MaxConcurrentBatches = 0 },
		"producer.max_buffered_records: must be at least producer.max_batch_lines (10000)":               func(o *Options) { o.MaxBufferedRecords = 9_999 },
		"producer.ready_timeout: must be above zero":                                                     func(o *Options) { o.ReadyTimeout = 0 },
		"producer.read_header_timeout: must be above zero":                                               func(o *Options) { o.ReadHeaderTimeout = 0 },
		"producer.idle_timeout: must be above zero":                                                      func(o *Options) { o.IdleTimeout = -time.Second },
		"producer.linger: must be between 0 and 1s":                                                      func(o *Options) { o.Linger = 2 * time.Second },
		"producer.ack_timeout: must be at least 200ms":                                                   func(o *Options) { o.AckTimeout = time.Millisecond },
		"producer.retry_after: must be at least 1s":                                                      func(o *Options) { o.RetryAfter = time.Millisecond },
		"producer.read_timeout: must be above zero":                                                      func(o *Options) { o.ReadTimeout = 0 },
		"producer.write_timeout: must be at least producer.read_timeout plus producer.ack_timeout (40s)": func(o *Options) { o.WriteTimeout = 39 * time.Second },
		"producer.shutdown_timeout: must be above producer.ack_timeout (10s)":                            func(o *Options) { o.ShutdownTimeout = 10 * time.Second },
	} {
		o := DefaultOptions()
		change(&o)
		require.ErrorContains(t, o.Validate(), want)
	}
	err := Options{}.Validate()
	require.ErrorContains(t, err, "http_addr")
	require.ErrorContains(t, err, "shutdown_timeout", "all of it in one go")
}

// The slab of a request's records is made once.
func TestMaxRecordBytes(t *testing.T) {
	const most = 1<<64 - 1
	e := schema.Event{PostID: most, UserID: most, Action: schema.Dislike, TimeMs: 1<<63 - 1, Region: schema.Region{'G', 'B', '-', 'E', 'N', 'G'}}
	key, value, all := appendRecord(make([]byte, 0, maxRecordBytes), &e)
	require.LessOrEqual(t, len(all), maxRecordBytes)
	require.Equal(t, "18446744073709551615", string(key))
	require.Equal(t, schema.AppendEvent(nil, &e), value)
	require.Zero(t, cap(key)-len(key), "what is appended to a key must not write into the value")
}
