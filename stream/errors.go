package stream

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/stream/kafka"
)

// ParkError is a cause that trying again does not mend: the partition is parked (it stays
// assigned, nothing is consumed) until it is found mended. The other partitions
// go on. Reason says what is the matter, Remedy what a person can do.
type ParkError struct {
	Cause          Cause
	Reason, Remedy string
	Err            error
}

// Cause is the kind of trouble that parks a partition: what an alert goes by.
type Cause string

// What parks. CauseUnavailable is all that is tried again by itself.
const (
	CauseUnavailable Cause = "unavailable" // a server is away, or does not do what it is asked
	CausePermission  Cause = "permission"  // a server refuses this user
	CauseTopics      Cause = "topics"      // a topic is missing, was made anew, or has other partitions
	CauseState       Cause = "state"       // the state table is not what it was
	CauseLoss        Cause = "loss"        // records that were to be read, or had been, are gone
	CauseMySQL       Cause = "mysql"       // MySQL's position does not fit the updates
	CauseRecord      Cause = "record"      // a record that this version does not understand
)

// Trouble is why a partition is not worked on.
type Trouble struct {
	Cause  Cause  `json:"cause,omitempty"`
	Reason string `json:"reason,omitempty"`
	Remedy string `json:"remedy,omitempty"`
}

var causes = []Cause{CauseUnavailable, CausePermission, CauseTopics, CauseState, CauseLoss, CauseMySQL, CauseRecord}

// Park makes a ParkError. Of CauseLoss the group knows the remedy (ProcessorOptions.LossRemedy).
func Park(cause Cause, remedy, format string, args ...any) *ParkError {
	err := fmt.Errorf(format, args...)
	return &ParkError{Cause: cause, Reason: err.Error(), Remedy: remedy, Err: err}
}

func (e *ParkError) Error() string { return e.Reason }
func (e *ParkError) Unwrap() error { return e.Err }

// TroubleOf tells what kind of trouble err is, and what helps.
func TroubleOf(err error) Trouble {
	return Trouble{Cause: causeOf(err), Reason: err.Error(), Remedy: remedyOf(err)}
}

// grantAccess is for what Kafka refuses this user, which it asks for again by itself.
const grantAccess = "see to this user's password and to its ACLs: docs/security.md has those of each role"

// remedyOf returns what a person can do about err, or "" if nothing is known.
func remedyOf(err error) string {
	var park *ParkError
	var setup *kafka.SetupError
	switch {
	case errors.As(err, &park):
		return park.Remedy
	case errors.As(err, &setup):
		return setup.Remedy
	case causeOf(err) == CausePermission:
		return grantAccess
	}
	return ""
}

// causeOf tells what kind of trouble err is.
func causeOf(err error) Cause {
	var park *ParkError
	var setup *kafka.SetupError
	switch {
	case errors.As(err, &park):
		return park.Cause
	case errors.As(err, &setup):
		return CauseTopics
	}
	for _, refusal := range refusals {
		if errors.Is(err, refusal) {
			return CausePermission
		}
	}
	return CauseUnavailable
}

var refusals = []error{
	kerr.TopicAuthorizationFailed, kerr.GroupAuthorizationFailed, kerr.ClusterAuthorizationFailed,
	kerr.TransactionalIDAuthorizationFailed,
	kerr.SaslAuthenticationFailed, kerr.UnsupportedSaslMechanism, kerr.IllegalSaslState,
}

// remedyNote is what stands behind a reason for a person to read.
func remedyNote(remedy string) string {
	if remedy == "" {
		return ""
	}
	return " (remedy: " + remedy + ")"
}

// errReopen tells that nothing is wrong but the position: a Worker may return it
// (see Reopen) to have its position read again.
var errReopen = errors.New("position has to be read again")

// errMore tells that the topic has other partitions than it had: all of them begin again.
var errMore = errors.New("the number of partitions has changed")

// Reopen makes an error that has the partition opened again at once: position and
// state are read anew, and nothing is counted as a failure.
func Reopen(why string) error { return fmt.Errorf("%w: %s", errReopen, why) }

// dataLost parks for an unclean election.
func dataLost(err error) *ParkError {
	return Park(CauseLoss, "compare the log with `kudos audit`; the records behind the new end are gone",
		"data was lost by an unclean leader election: %w", err)
}

// parks tells whether err is one that another try does not mend.
func parks(err error) bool {
	var park *ParkError
	var setup *kafka.SetupError
	return errors.As(err, &park) || errors.As(err, &setup)
}

// checkTruncation asks the leader where the position's epoch ends in its log. Before
// the position: an unclean election took records that were read, and others may have
// their offsets. (KIP-320; the client asks only when it sees a leader change.)
func checkTruncation(ctx context.Context, cl kmsg.Requestor, topic string, partition int32, pos kafka.Position) error {
	if pos.Epoch < 0 {
		return nil
	}
	end, err := kafka.EpochEnd(ctx, cl, topic, partition, pos.Epoch)
	if err != nil {
		return err
	}
	// Below zero: the leader does not know the epoch, which alone proves nothing.
	if end >= 0 && end < pos.Offset {
		return dataLost(fmt.Errorf("leader epoch %d of %s/%d ends at offset %d, but had been read up to %d", pos.Epoch,
			topic, partition, end, pos.Offset))
	}
	return nil
}

// fetchError says what a partition's fetch error means for it.
func fetchError(err error) error {
	var loss *kgo.ErrDataLoss
	switch {
	case errors.As(err, &loss):
		return dataLost(err)
	case errors.Is(err, kerr.OffsetOutOfRange):
		return Park(CauseLoss, "raise the topic's retention; `kudos topics check` shows its ends",
			"the position is not in the log any more: %w", err)
	case errors.Is(err, kerr.TopicAuthorizationFailed), errors.Is(err, kerr.GroupAuthorizationFailed):
		return Park(CausePermission, grantAccess, "%w", err)
	}
	return err
}

// canceled tells whether err only says that ctx has ended.
func canceled(ctx context.Context, err error) bool {
	return ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded))
}
