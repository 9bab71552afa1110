package kafka

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
)

// ErrFenced means that another process owns the partition. A fenced worker stops at once and never initializes the
// transactional id again, which would fence the rightful owner: it needs a new assignment.
var ErrFenced = errors.New("this process lost the partition")

var ErrRecreated = errors.New("the topic was deleted and recreated") // its log is another one

// SetupError means that the cluster lacks something that no retry provides. Action is the command to run.
type SetupError struct {
	Action string
	Err    error
}

func (e *SetupError) Error() string { return e.Err.Error() }
func (e *SetupError) Unwrap() error { return e.Err }

// fencing lists the errors by which Kafka says that the partition is no longer ours. The last three are of an offset
// commit with an outdated member id or generation.
var fencing = []error{kerr.ProducerFenced, kerr.InvalidProducerEpoch, kerr.FencedInstanceID,
	kerr.IllegalGeneration, kerr.UnknownMemberID, kerr.RebalanceInProgress}

func asFenced(err error) error {
	for _, f := range fencing {
		if errors.Is(err, f) {
			return fmt.Errorf("%w: %w", ErrFenced, err)
		}
	}
	return err
}
