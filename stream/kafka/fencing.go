package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/sethvargo/go-retry"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
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

// fence initializes the client's transactional id: the previous owner can no longer write under it, its open
// transaction is aborted, and one that it has committed is complete. The fold and every tool take a partition this way.
// It checks the version each time: without KIP-890, a late EndTxn ends a later transaction.
func fence(ctx context.Context, cl TxnClient) error {
	if err := RequireTransactionVersion2(ctx, cl); err != nil {
		return err
	}
	_, _, err := cl.ProducerID(ctx)
	return asFenced(err)
}

// NewFencingClient returns a client for a tool's transactions under the first of the ids, after fencing the previous
// owner of all of them. After an error in a transaction, close it: aborting would initialize the id again. The next
// fence aborts the transaction.
func (o Options) NewFencingClient(ctx context.Context, log *slog.Logger, ids []string, extra ...kgo.Opt,
) (_ *kgo.Client, err error) {
	ctx, cancel := context.WithTimeout(ctx, o.RequestTimeout)
	defer cancel()
	var clients []*kgo.Client
	defer func() {
		for i, cl := range clients {
			if i > 0 || err != nil {
				cl.Close()
			}
		}
	}()
	for _, id := range ids {
		opts := []kgo.Opt{kgo.TransactionalID(id), kgo.RecordPartitioner(kgo.ManualPartitioner())}
		cl, err := o.NewClient(log, append(opts, extra...)...)
		if err != nil {
			return nil, err
		}
		clients = append(clients, cl)
		if err := fence(ctx, cl); err != nil {
			return nil, fmt.Errorf("initializing transactional id %s: %w", id, err)
		}
	}
	return clients[0], nil
}

// takenOverFor is far longer than a parked worker's retries can keep a tool from its one transaction.
const takenOverFor = 30 * time.Second

// RetryTakenOver calls do, which works under a partition's transactional id, and calls it again if a worker takes the
// id over: the worker of a parked partition does so at each retry, and then leaves the id alone if still parked. The
// pauses are random, so as not to stay in step with the worker.
func RetryTakenOver(ctx context.Context, do func() error) error {
	backoff := retry.WithCappedDuration(time.Second, retry.NewExponential(100*time.Millisecond))
	backoff = retry.WithMaxDuration(takenOverFor, retry.WithJitterPercent(50, backoff))
	return retry.Do(ctx, backoff, func(context.Context) error {
		err := do()
		if IsTakenOver(err) {
			return retry.RetryableError(fmt.Errorf("a processor keeps taking over; run this again: %w", err))
		}
		return err
	})
}

// IsTakenOver reports whether a transaction failed because another client initialized its id.
func IsTakenOver(err error) bool {
	return errors.Is(err, kerr.InvalidProducerEpoch) || errors.Is(err, kerr.ProducerFenced) ||
		errors.Is(err, kerr.InvalidTxnState) || errors.Is(err, kerr.ConcurrentTransactions)
}

// RefuseMembers fails if one of the groups has members. what names them in the error, for the operator to stop them.
func RefuseMembers(ctx context.Context, cl *kgo.Client, what string, groups ...string) error {
	described, err := kadm.NewClient(cl).DescribeGroups(ctx, groups...)
	if err != nil {
		return fmt.Errorf("checking for running %s: %w", what, err)
	}
	for _, g := range described.Sorted() {
		if g.Err != nil && !errors.Is(g.Err, kerr.GroupIDNotFound) {
			return fmt.Errorf("checking for running %s in group %s: %w", what, g.Group, g.Err)
		}
		if n := len(g.Members); n > 0 {
			return fmt.Errorf("group %s has %d members: stop all %s first (one that was killed is removed after its "+
				"session_timeout)", g.Group, n, what)
		}
	}
	return nil
}
