package stream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"
	"github.com/lovoo/goka"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/stream/kafka"
)

// topicManager is goka's goka.TopicManager. It verifies and never creates: topics are
// made by `kudos topics apply`, with the settings that they need.
type topicManager struct {
	cl      *kgo.Client
	timeout time.Duration
}

var _ goka.TopicManager = (*topicManager)(nil)

func (m *topicManager) context() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), m.timeout) // goka gives none
}

// identify tells which log a topic is.
func (m *topicManager) identify(topic string) (kafka.LogID, error) {
	ctx, cancel := m.context()
	defer cancel()
	topics, err := kafka.LookUpTopics(ctx, m.cl, topic)
	if err != nil {
		return kafka.LogID{}, err
	}
	return kafka.LogID{ClusterID: topics.ClusterID, TopicID: topics.ByName[topic].ID}, nil
}

func (m *topicManager) ensure(topic string, partitions int) error {
	have, err := m.Partitions(topic)
	if err != nil {
		return err
	}
	if len(have) != partitions {
		return fmt.Errorf("topic %s has %d partitions, its input has %d: they must be the same (`kudos topics repartition` adds partitions to all of them)", topic, len(have), partitions)
	}
	return nil
}

func (m *topicManager) EnsureTableExists(topic string, npar int) error  { return m.ensure(topic, npar) }
func (m *topicManager) EnsureStreamExists(topic string, npar int) error { return m.ensure(topic, npar) }

func (m *topicManager) EnsureTopicExists(topic string, npar, _ int, _ map[string]string) error {
	return m.ensure(topic, npar)
}

func (m *topicManager) Partitions(topic string) ([]int32, error) {
	ctx, cancel := m.context()
	defer cancel()
	topics, err := kafka.LookUpTopics(ctx, m.cl, topic)
	if err != nil {
		return nil, err
	}
	partitions := make([]int32, topics.ByName[topic].Partitions)
	for i := range partitions {
		partitions[i] = int32(i)
	}
	return partitions, nil
}

// GetOffset returns the first offset of a partition, or its last stable one: recovery
// ends there, since what follows may never be committed.
func (m *topicManager) GetOffset(topic string, partition int32, at int64) (int64, error) {
	ctx, cancel := m.context()
	defer cancel()
	start, end, err := kafka.Bounds(ctx, m.cl, topic, partition)
	switch {
	case err != nil:
		return 0, err
	case at == sarama.OffsetOldest:
		return start, nil
	case at == sarama.OffsetNewest:
		return end, nil
	}
	return 0, errors.New("only the oldest and the newest offset are known")
}

// Close leaves the client to its owner.
func (m *topicManager) Close() error { return nil }
