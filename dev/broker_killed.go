//go:build !nodev

package dev

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/twmb/franz-go/pkg/kadm"

	"kudos/stream/kafka"
)

// EndKilledTransactions writes abort markers for the transactions that were open when the
// broker was killed. To be called before anybody else writes. kfake counts their records
// as aborted when it loads them, but does not write that down: after another kill it would
// take them for a part of the next transaction of the same id, and of its commit.
func EndKilledTransactions(ctx context.Context, kafka kafka.Options, log *slog.Logger) error {
	cl, err := kafka.NewClient(log)
	if err != nil {
		return err
	}
	defer cl.Close()
	admin := kadm.NewClient(cl)
	topics, err := admin.ListTopics(ctx)
	if err != nil {
		return fmt.Errorf("listing topics: %w", err)
	}
	transactions, err := admin.DescribeTransactions(ctx) // all
	if err != nil {
		return fmt.Errorf("listing transactional ids: %w", err)
	}
	var markers []kadm.TxnMarkers
	for _, t := range transactions.Sorted() {
		if t.Err != nil {
			return fmt.Errorf("transactional id %s: %w", t.TxnID, t.Err)
		}
		// Where nothing of it is open, a marker ends nothing.
		markers = append(markers, kadm.TxnMarkers{
			ProducerID: t.ProducerID, ProducerEpoch: t.ProducerEpoch, Topics: topics.TopicsSet(),
		})
	}
	if len(markers) == 0 {
		return nil
	}
	written, err := admin.WriteTxnMarkers(ctx, markers...)
	if err != nil {
		return fmt.Errorf("writing abort markers: %w", err)
	}
	var errs []error
	written.EachPartition(func(p kadm.TxnMarkersPartitionResponse) {
		if p.Err != nil {
			errs = append(errs, fmt.Errorf("writing an abort marker to %s/%d: %w", p.Topic, p.Partition, p.Err))
		}
	})
	return errors.Join(errs...)
}
