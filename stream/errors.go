package stream

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/stream/kafka"
)

// ParkError is a failure that a retry cannot fix. The partition is parked: it stays assigned but consumes nothing until
// the cause is fixed, while other partitions continue. Reason says what failed, Action what the operator can do.
type ParkError struct {
	Cause          Cause
	Reason, Action string
	Err            error
}

// Cause classifies why a partition is parked, for alerts.
type Cause string

// Causes of a parked partition. CauseUnavailable is the only one that retries alone can fix.
const (
	CauseUnavailable Cause = "unavailable" // a server is unavailable, or fails requests
	CausePermission  Cause = "permission"  // a server denies access to this user
	CauseTopics      Cause = "topics"      // a topic is missing, was recreated, or has another partition count
	CauseState       Cause = "state"       // the state table is incomplete or inconsistent
	CauseLoss        Cause = "loss"        // records are lost, before or after they were processed
	CauseMySQL       Cause = "mysql"       // MySQL's position does not match like-updates
	CauseRecord      Cause = "record"      // this version cannot decode a record
)

// Failure is why a partition is not running.
type Failure struct {
	Cause  Cause  `json:"cause,omitempty"`
	Reason string `json:"reason,omitempty"`
	Action string `json:"action,omitempty"`
}

var causes = []Cause{CauseUnavailable, CausePermission, CauseTopics, CauseState, CauseLoss, CauseMySQL, CauseRecord}

// Park returns a ParkError. For CauseLoss, ProcessorOptions.LossAction takes precedence over action.
func Park(cause Cause, action, format string, args ...any) *ParkError {
	err := fmt.Errorf(format, args...)
	return &ParkError{Cause: cause, Reason: err.Error(), Action: action, Err: err}
}

func (e *ParkError) Error() string { return e.Reason }
func (e *ParkError) Unwrap() error { return e.Err }

// grantAccess is what to do when Kafka denies access, which kudos retries by itself.
const grantAccess = "check this user's password and ACLs: docs/security.md lists the ACLs of each role"

// classified is an error of a package that knows nothing of partitions (schema, sql): its Cause, and an action.
type classified interface{ Classify() (cause, action string) }

// FailureOf returns the cause of err, its text and what to do about it.
func FailureOf(err error) Failure {
	failure := Failure{Cause: CauseUnavailable, Reason: err.Error()}
	var park *ParkError
	var setup *kafka.SetupError
	var known classified
	switch {
	case errors.As(err, &park):
		failure.Cause, failure.Action = park.Cause, park.Action
	case errors.As(err, &known):
		cause, action := known.Classify()
		failure.Cause, failure.Action = Cause(cause), action
	case errors.As(err, &setup):
		failure.Cause, failure.Action = CauseTopics, setup.Action
	case slices.ContainsFunc(refusals, func(refusal error) bool { return errors.Is(err, refusal) }):
		failure.Cause, failure.Action = CausePermission, grantAccess
	}
	return failure
}

func actionOf(err error) string { return FailureOf(err).Action }

var refusals = []error{kerr.TopicAuthorizationFailed, kerr.GroupAuthorizationFailed, kerr.ClusterAuthorizationFailed,
	kerr.TransactionalIDAuthorizationFailed, kerr.SaslAuthenticationFailed, kerr.UnsupportedSaslMechanism,
	kerr.IllegalSaslState}

func actionNote(action string) string {
	if action == "" {
		return ""
	}
	return " (action: " + action + ")"
}

// errReopen means that only the position is wrong: a Worker may return it (see Reopen) to have its position read again.
var errReopen = errors.New("the position must be read again")

var errMore = errors.New("the number of partitions has changed") // all partitions restart

// Reopen returns an error that is no failure but reopens the partition at once: position and state are read again.
func Reopen(why string) error { return fmt.Errorf("%w: %s", errReopen, why) }

// dataLost parks because of an unclean leader election.
func dataLost(err error) *ParkError {
	return Park(CauseLoss, "compare MySQL with the log by `kudos audit`; the records after the new end are lost",
		"data was lost by an unclean leader election: %w", err)
}

func parks(err error) bool {
	return FailureOf(err).Cause != CauseUnavailable || errors.As(err, new(*ParkError))
}

// checkTruncation asks the leader where the position's epoch ends. If that is before the position, an unclean election
// discarded records that were read; others may have their offsets. (KIP-320; the client asks at leader changes only.)
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

// fetchError turns the fetch errors that a retry cannot fix into ParkErrors.
func fetchError(err error) error {
	switch {
	case errors.As(err, new(*kgo.ErrDataLoss)):
		return dataLost(err)
	case errors.Is(err, kerr.OffsetOutOfRange):
		return Park(CauseLoss, "raise the topic's retention; `kudos topics check` shows its ends",
			"the position is not in the log any more: %w", err)
	case errors.Is(err, kerr.TopicAuthorizationFailed), errors.Is(err, kerr.GroupAuthorizationFailed):
		return Park(CausePermission, grantAccess, "%w", err)
	}
	return err
}

func canceled(ctx context.Context, err error) bool {
	return ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded))
}
