package chaos

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

// TestMarkers has the marks of the transaction that Kafka 4.2.1 tore when chaos found out about it.
func TestMarkers(t *testing.T) {
	abort, commit := []byte{0, 0, 0, 0}, []byte{0, 0, 0, 1}
	m := markers{}
	for _, rec := range []*kgo.Record{
		{Partition: 4, Offset: 129342, ProducerID: 2001, ProducerEpoch: 635, Key: commit},
		{Partition: 4, Offset: 129863, ProducerID: 2001, ProducerEpoch: 636, Key: commit},
		{Partition: 3, Offset: 129864, ProducerID: 2001, ProducerEpoch: 636, Key: abort}, // of another partition
		{Partition: 4, Offset: 129864, ProducerID: 2002, ProducerEpoch: 636, Key: abort}, // of another producer
		{Partition: 4, Offset: 129865, ProducerID: 2001, ProducerEpoch: 637, Key: abort}, // of another transaction
		{Partition: 4, Offset: 129866, Key: []byte{0, 0}},                                // no end of a transaction
	} {
		_, twice := m.add(rec)
		require.False(t, twice, "offset %d", rec.Offset)
	}
	at, twice := m.add(&kgo.Record{Partition: 4, Offset: 129867, ProducerID: 2001, ProducerEpoch: 636, Key: abort})
	require.True(t, twice)
	require.EqualValues(t, 129863, at)
}
