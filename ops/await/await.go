// Package await waits for changes that Kafka acknowledges before it shows them.
package await

import (
	"context"
	"fmt"
	"time"

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
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w; run this again", what, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Visible waits until what was committed to a partition, up to the offset last, can be read. Kafka acknowledges a
// commit before its markers are in the logs, and read_committed consumers stop before them.
func Visible(ctx context.Context, cl kmsg.Requestor, topic string, partition int32, last int64) error {
	what := fmt.Sprintf("the transaction on %s/%d to become readable", topic, partition)
	return Until(ctx, what, func(ctx context.Context) (bool, error) {
		_, end, err := kafka.Bounds(ctx, cl, topic, partition)
		return end > last, err
	})
}
