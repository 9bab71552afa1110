// Package await waits for changes that Kafka acknowledges before it shows them.
package await

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/stream/kafka"
)

// Until polls condition until it is true or fails, for at most 1 min.
func Until(ctx context.Context, what string, condition func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		if ok, err := condition(ctx); ok || err != nil {
			return err
		}
		if !kafka.Sleep(ctx, 20*time.Millisecond) {
			return fmt.Errorf("waiting for %s: %w; run this again", what, ctx.Err())
		}
	}
}

// Visible waits until committed records, at most one of each partition, can be read. Kafka acknowledges a commit before
// its markers are in the logs, and read_committed consumers stop before them.
func Visible(ctx context.Context, cl kmsg.Requestor, records ...*kgo.Record) error {
	for _, rec := range records {
		what := fmt.Sprintf("the transaction on %s/%d to become readable", rec.Topic, rec.Partition)
		err := Until(ctx, what, func(ctx context.Context) (bool, error) {
			_, end, err := kafka.Bounds(ctx, cl, rec.Topic, rec.Partition)
			return end > rec.Offset, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
