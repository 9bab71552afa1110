package kafka

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
)

// ErrFenced tells that another process owns the partition by now. Whoever sees it stops at once and never initialises
// the transactional id again, which would fence the rightful owner: only a new assignment leads back.
var ErrFenced = errors.New("another process owns this partition")

// ErrRecreated tells that a topic is not the one that it was.
var ErrRecreated = errors.New("the topic was deleted and created again")

// SetupError tells of a cluster that lacks something which no retry brings: Remedy says what to run.
type SetupError struct {
	Remedy string
	Err    error
}

func (e *SetupError) Error() string { return e.Err.Error() }
func (e *SetupError) Unwrap() error { return e.Err }

// fencing lists Kafka's answers that mean: not yours any more. The last three come
// from a commit of offsets with a member id and generation that are past.
var fencing = []error{
	kerr.ProducerFenced, kerr.InvalidProducerEpoch, kerr.FencedInstanceID,
	kerr.IllegalGeneration, kerr.UnknownMemberID, kerr.RebalanceInProgress,
}

// asFenced turns Kafka's fencing answers into ErrFenced and leaves others alone.
func asFenced(err error) error {
	for _, f := range fencing {
		if errors.Is(err, f) {
			return fmt.Errorf("%w: %w", ErrFenced, err)
		}
	}
	return err
}
