// Package transactions finds the open transactions in kudos' topics, which hide new records from all consumers, and
// ends them.
package transactions

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/schema"
	"kudos/stream/kafka"
)

// MaxTimeout is the brokers' default of transaction.max.timeout.ms. By then a coordinator has ended a transaction.
const MaxTimeout = 15 * time.Minute

// Open is an open transaction.
type Open struct {
	ProducerID int64  `json:"producer_id,string"`
	ID         string `json:"transactional_id,omitempty"`
	// State is what the coordinator says, such as Ongoing. A transaction that no coordinator knows is Hanging, and
	// stays open for good, or Unknown as long as its coordinator may be moving.
	State      string    `json:"state"`
	Own        bool      `json:"of_kudos"`
	LastWrite  time.Time `json:"last_write"`
	Partitions []string  `json:"partitions"`

	in []kadm.DescribedProducer // Partitions
}

// States that no coordinator reports.
const Hanging, Unknown = "hanging", "unknown"

// String describes the transaction in one line.
func (o Open) String() string {
	owner := map[bool]string{true: "of kudos", false: "not of kudos"}[o.Own]
	return fmt.Sprintf("producer %d, transactional id %q (%s), %s, last write %s ago, in %s", o.ProducerID, o.ID, owner,
		o.State, time.Since(o.LastWrite).Round(time.Second), strings.Join(o.Partitions, " "))
}

// List returns the open transactions. One that no coordinator knows hangs once it is older than maxTimeout.
func List(ctx context.Context, cl *kgo.Client, maxTimeout time.Duration) ([]Open, error) {
	open, err := producers(ctx, cl)
	if err != nil {
		return nil, err
	}
	listed, err := kadm.NewClient(cl).ListTransactions(ctx, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("listing the coordinators' transactions: %w", err)
	}
	for i := range open {
		open[i].identify(listed, maxTimeout)
	}
	return open, nil
}

func producers(ctx context.Context, cl *kgo.Client) ([]Open, error) {
	topics := kadm.TopicsSet{}
	for _, t := range schema.Topics(1, 1) {
		topics.Add(t.Name) // all partitions
	}
	described, err := kadm.NewClient(cl).DescribeProducers(ctx, topics)
	described.EachPartition(func(p kadm.DescribedProducersPartition) { err = errors.Join(err, p.Err) })
	if err != nil {
		return nil, fmt.Errorf("describing the producers of the topics: %w", err)
	}
	open := []Open{}
	for _, at := range described.SortedProducers() {
		if at.CurrentTxnStartOffset < 0 {
			continue
		}
		i := slices.IndexFunc(open, func(o Open) bool { return o.ProducerID == at.ProducerID })
		if i < 0 {
			i, open = len(open), append(open, Open{ProducerID: at.ProducerID})
		}
		o := &open[i]
		o.in, o.Partitions = append(o.in, at), append(o.Partitions, fmt.Sprintf("%s/%d", at.Topic, at.Partition))
		o.LastWrite = time.UnixMilli(max(at.LastTimestamp, o.LastWrite.UnixMilli())).UTC()
	}
	return open, nil
}

func (o *Open) identify(listed kadm.ListedTransactions, maxTimeout time.Duration) {
	o.State = Unknown
	if time.Since(o.LastWrite) > maxTimeout {
		o.State = Hanging
	}
	for _, t := range listed {
		if t.ProducerID != o.ProducerID {
			continue
		}
		// A coordinator whose transaction is Empty or Complete… does not know that one is open.
		if o.ID = t.TxnID; t.State == "Ongoing" || strings.HasPrefix(t.State, "Prepare") {
			o.State = t.State
		}
	}
	// GroupTrendingLocal has the prefix of GroupTrending.
	o.Own = strings.HasPrefix(o.ID, schema.GroupFold+"-") || strings.HasPrefix(o.ID, schema.GroupTrending+"-")
}

// Abort ends a listed transaction; consumers then see what follows. force: also one of kudos, which its owner ends.
func Abort(ctx context.Context, cl *kgo.Client, opts kafka.Options, log *slog.Logger, o Open, force bool) (err error) {
	switch {
	case o.State == Unknown:
		err = fmt.Errorf("no coordinator knows it, but one may be moving: retry %s after its last write", MaxTimeout)
	case o.Own && !force: // a hanging one, too: its other partitions may have been committed
		err = errors.New("it is of kudos: the owner of its partition ends it; start one, or use --force")
	case o.State == Hanging:
		err = writeMarkers(ctx, cl, o)
	default:
		var fencing *kgo.Client
		if fencing, err = opts.NewFencingClient(ctx, log, []string{o.ID}); err == nil {
			fencing.Close()
		}
	}
	return err
}

// writeMarkers aborts a hanging transaction in each of its partitions, as its coordinator would.
func writeMarkers(ctx context.Context, cl *kgo.Client, o Open) error {
	now, err := producers(ctx, cl)
	if !slices.ContainsFunc(now, func(n Open) bool { return reflect.DeepEqual(n.in, o.in) }) {
		return errors.Join(err, errors.New("it has changed since it was listed: list it again"))
	}
	var markers []kadm.TxnMarkers
	for _, at := range o.in {
		topics := kadm.TopicsSet{}
		topics.Add(at.Topic, at.Partition)
		markers = append(markers, kadm.TxnMarkers{ProducerID: at.ProducerID, ProducerEpoch: at.ProducerEpoch,
			CoordinatorEpoch: max(0, at.CoordinatorEpoch), Topics: topics})
	}
	written, err := kadm.NewClient(cl).WriteTxnMarkers(ctx, markers...)
	written.EachPartition(func(p kadm.TxnMarkersPartitionResponse) { err = errors.Join(err, p.Err) })
	return err
}
