package kafka

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
)

func TestRetryTakenOver(t *testing.T) {
	taken := fmt.Errorf("writing: %w", kerr.InvalidProducerEpoch)
	for name, c := range map[string]struct {
		err      error
		succeeds int // the call that succeeds
		want     error
	}{
		"a worker takes the id over many times": {taken, 15, nil},
		"a worker keeps taking the id over":     {taken, 1000, kerr.InvalidProducerEpoch},
		"other errors are not retried":          {kerr.UnknownServerError, 2, kerr.UnknownServerError},
	} {
		synctest.Test(t, func(t *testing.T) {
			begun, calls := time.Now(), 0
			err := RetryTakenOver(t.Context(), func() error {
				if calls++; calls == c.succeeds {
					return nil
				}
				return c.err
			})
			require.ErrorIs(t, err, c.want, name)
			require.LessOrEqual(t, time.Since(begun), takenOverFor+time.Second, name)
		})
	}
}
