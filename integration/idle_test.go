package integration

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"

	"kudos/schema"
)

// An idle system writes nothing; Kafka's tools show no lag for its groups, although the updates end with a marker.
func TestIdleSystemIsQuiet(t *testing.T) {
	s := newFolded(t, 10_000)
	lag := func() (lag int64) {
		lags, err := s.admin().Lag(t.Context(), schema.GroupFold, schema.GroupApply)
		require.NoError(t, err)
		lags.Each(func(l kadm.DescribedGroupLag) {
			require.NoError(t, l.Error())
			for _, topic := range l.Lag {
				for _, p := range topic {
					lag += p.Lag
				}
			}
		})
		return lag
	}
	waitFor(t, 10*time.Second, "lag 0", func() bool { return lag() == 0 })

	written := func() string {
		moved := queryRow[string](t, s.db, "SELECT MAX(updated_at) FROM applied_offset")
		return fmt.Sprintf("offsets of all topics: %d, last update in MySQL: %s", s.written(t.Context()), moved)
	}
	before := written()
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); {
		require.Equal(t, before, written())
		require.Zero(t, lag())
		pause(t, 250*time.Millisecond)
	}
}
