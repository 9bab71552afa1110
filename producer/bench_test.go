package producer

import (
	"bytes"
	"fmt"
	"testing"

	"kudos/schema"
)

// A full batch, from its bytes to its events: what a line costs beside Kafka.
func BenchmarkReadBatch(b *testing.B) {
	const lines = 10_000
	var body bytes.Buffer
	for i := range lines {
		fmt.Fprintf(&body, `{"post_id":%d,"user_id":"%d","action":"LIKE","time_ms":1700000000000,"region":"US-CA"}`+"\n", i%1000+1, i+1)
	}
	b.ReportAllocs()
	for b.Loop() {
		fb := fallback{timeMs: 1, region: schema.UnknownRegion}
		got, err := readBatch(bytes.NewReader(body.Bytes()), lines, &fb)
		if err != nil || len(got.events) != lines {
			b.Fatal(err, len(got.events))
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*lines), "ns/line")
}
