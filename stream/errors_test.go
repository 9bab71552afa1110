package stream

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"

	"kudos/dev/testkit"
	"kudos/stream/kafka"
)

func TestErrorsAreClassified(t *testing.T) {
	require.Equal(t, CausePermission, FailureOf(fmt.Errorf("asking: %w", kerr.GroupAuthorizationFailed)).Cause)
	require.Equal(t, CauseUnavailable, FailureOf(fmt.Errorf("asking: %w", kerr.CoordinatorNotAvailable)).Cause)
	require.Equal(t, CauseState, FailureOf(fmt.Errorf("opening: %w",
		Park(CauseState, "", "%w", kerr.GroupAuthorizationFailed))).Cause)
	park := Park(CauseState, "do this", "that is wrong: %w", kerr.OffsetOutOfRange)
	require.ErrorIs(t, park, kerr.OffsetOutOfRange)
	require.EqualError(t, park, "that is wrong: "+kerr.OffsetOutOfRange.Error())
	require.ErrorIs(t, Reopen("why not"), errReopen)
	require.ErrorContains(t, Reopen("why not"), "why not")

	live, ended := context.Background(), testkit.Canceled()
	require.True(t, canceled(ended, context.Canceled))
	require.False(t, canceled(live, context.Canceled), "another context's cancellation")
	require.False(t, canceled(ended, kerr.ProducerFenced))

	for _, err := range []error{kerr.SaslAuthenticationFailed, kerr.TopicAuthorizationFailed,
		kerr.TransactionalIDAuthorizationFailed} {
		require.Equal(t, Failure{CausePermission, err.Error(), grantAccess}, FailureOf(err))
	}
	setup := fmt.Errorf("opening: %w", &kafka.SetupError{Action: "do that", Err: kerr.UnknownTopicOrPartition})
	require.Equal(t, Failure{CauseTopics, setup.Error(), "do that"}, FailureOf(setup))
	require.True(t, parks(setup), "it is retried after the park interval")
	require.False(t, parks(kerr.UnknownTopicOrPartition))
	older := fmt.Errorf("opening: %w", versionError{})
	require.Equal(t, Failure{CauseRecord, older.Error(), "upgrade"}, FailureOf(older))
	require.True(t, parks(older))
}

type versionError struct{}

func (versionError) Error() string                    { return "unknown version" }
func (versionError) Classify() (cause, action string) { return "record", "upgrade" }
