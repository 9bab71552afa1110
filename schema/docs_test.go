package schema

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDocumentedPartitions checks the example of docs/reading.md.
func TestDocumentedPartitions(t *testing.T) {
	text, err := os.ReadFile("../docs/reading.md")
	require.NoError(t, err)
	require.Contains(t, string(text), "With 8 partitions, post 42 is in partition 4 and post 43 in 2;")
	require.EqualValues(t, 4, PartitionFor(42, 8))
	require.EqualValues(t, 2, PartitionFor(43, 8))
}
