package stream

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"

	"kudos/dev/testkit"
)

// failingHandler is goka with partitions whose ConsumeClaim fails; the others end with the session.
type failingHandler struct {
	sarama.ConsumerGroupHandler
	failing map[int32]error
}

func (h failingHandler) ConsumeClaim(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
	if err := h.failing[c.Partition()]; err != nil {
		return err
	}
	<-s.Context().Done()
	return nil
}

// TestRegressConsumeClaimError: an error of ConsumeClaim ended the process with an index out of
// range, because all goroutines shared one index.
func TestRegressConsumeClaimError(t *testing.T) {
	t.Parallel()
	errBroken := errors.New("broken")
	for name, failing := range map[string]map[int32]error{
		"first": {0: errBroken}, "middle": {1: errBroken}, "last": {2: errBroken},
		"all": {0: errBroken, 1: errBroken, 2: errBroken},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			c.Topic(input, 3)
			opts := &ProcessorOptions{TickInterval: time.Hour, ParkInterval: time.Hour, watchInterval: time.Hour}
			s := &session{cl: c.Client(), opts: opts, topic: input, partitions: map[int32]*Partition{}}
			s.ctx, s.cancel = context.WithCancelCause(testkit.Context(t))
			for p := range int32(3) {
				s.partitions[p] = newPartition(Assignment{Topic: input, Partition: p}, newLab(t).worker, opts, nil, selfDriven{}, testkit.Log())
			}
			err := s.consume(gokaDriver{failingHandler{failing: failing}})
			require.ErrorIs(t, err, errBroken)
			for p := range int32(3) {
				of := fmt.Sprintf("consuming %s/%d: broken", input, p)
				if failing[p] != nil {
					require.ErrorContains(t, err, of)
				} else {
					require.NotContains(t, err.Error(), of)
				}
			}
			require.ErrorIs(t, context.Cause(s.ctx), errEndedItself)
		})
	}
}
