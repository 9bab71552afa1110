package window

import (
	"testing"

	"github.com/stretchr/testify/require"

	"kudos/schema"
)

// A bucket's likes are as old as the bucket.
func TestWeightsAreByBucket(t *testing.T) {
	require.Equal(t, []schema.Score{1_000_000, 500_000, 250_000}, weights(3, 60, 60))
	require.Equal(t, []schema.Score{1_000_000, 707_106, 500_000}, weights(3, 30, 60))
}

// The expected ones are 10^6 * 2^(-p/q) by a calculator of 30 digits, cut off.
func TestHalved(t *testing.T) {
	for _, tt := range []struct {
		p, q int64
		want schema.Score
	}{
		{0, 30, 1_000_000}, {30, 30, 500_000}, {60, 30, 250_000}, {1, 30, 977_159}, {29, 30, 511_686}, {1, 2, 707_106},
		{600, 30, 0}, {599, 30, 0}, {597, 30, 1}, {1, 10080, 999_931}, {719, 10079, 951_755},
	} {
		require.Equal(t, tt.want, halved(tt.p, tt.q), "2^-(%d/%d)", tt.p, tt.q)
	}
}
