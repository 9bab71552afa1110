package stream

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRecordsFitAgain: a fetch of batches of almost the same size uses the memory of the last one, and a small batch
// does not hold much.
func TestRecordsFitAgain(t *testing.T) {
	var p recordPool
	for n := 1; n < 10_000; n += 1 + n/32 {
		room := cap(p.GetRecords(n))
		require.GreaterOrEqual(t, room, n)
		require.LessOrEqual(t, room, n+n/4)
	}
	require.Equal(t, cap(p.GetRecords(1600)), cap(p.GetRecords(1700)))

	small, large := p.GetRecords(10), p.GetRecords(100)
	p.PutRecords(small)
	p.PutRecords(large)
	for range 3 { // whatever the pool has kept
		require.GreaterOrEqual(t, len(p.GetRecords(50)), 50)
	}
}
