package stream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/IBM/sarama"
	"github.com/lovoo/goka"
	"github.com/twmb/franz-go/pkg/kadm"
)

// topicManager is goka's goka.TopicManager. It verifies and never creates: topics are
// made by `kudos topics apply`, with the settings that they need.
type topicManager struct {
	adm     *kadm.Client
	timeout time.Duration
}

var _ goka.TopicManager = (*topicManager)(nil)

func (m *topicManager) context() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), m.timeout) // goka gives none
}

// describe returns the topic as the cluster has it now.
func (m *topicManager) describe(topic string) (kadm.TopicDetail, string, error) {
	ctx, cancel := m.context()
	defer cancel()
	meta, err := m.adm.Metadata(ctx, topic)
	if err != nil {
		return kadm.TopicDetail{}, "", fmt.Errorf("looking up topic %s: %w", topic, err)
	}
	t := meta.Topics[topic]
	if t.Err != nil {
		return kadm.TopicDetail{}, "", fmt.Errorf("looking up topic %s (`kudos topics apply` creates it): %w", topic, t.Err)
	}
	return t, meta.Cluster, nil
}

// identify tells which log a topic is.
func (m *topicManager) identify(topic string) (LogID, error) {
	t, cluster, err := m.describe(topic)
	if err != nil {
		return LogID{}, err
	}
	return LogID{ClusterID: cluster, TopicID: t.ID}, nil
}

func (m *topicManager) ensure(topic string, partitions int) error {
	have, err := m.Partitions(topic)
	if err != nil {
		return err
	}
	if len(have) != partitions {
		return fmt.Errorf("topic %s has %d partitions, its input has %d: they must be the same, and can never be changed", topic, len(have), partitions)
	}
	return nil
}

func (m *topicManager) EnsureTableExists(topic string, npar int) error  { return m.ensure(topic, npar) }
func (m *topicManager) EnsureStreamExists(topic string, npar int) error { return m.ensure(topic, npar) }

func (m *topicManager) EnsureTopicExists(topic string, npar, _ int, _ map[string]string) error {
	return m.ensure(topic, npar)
}

func (m *topicManager) Partitions(topic string) ([]int32, error) {
	t, _, err := m.describe(topic)
	if err != nil {
		return nil, err
	}
	partitions := t.Partitions.Numbers()
	slices.Sort(partitions)
	return partitions, nil
}

// GetOffset returns the first offset of a partition, or its last stable one: recovery
// ends there, since what follows may never be committed.
func (m *topicManager) GetOffset(topic string, partition int32, at int64) (int64, error) {
	ctx, cancel := m.context()
	defer cancel()
	var list func(context.Context, ...string) (kadm.ListedOffsets, error)
	switch at {
	case sarama.OffsetOldest:
		list = m.adm.ListStartOffsets
	case sarama.OffsetNewest:
		list = m.adm.ListCommittedOffsets
	default:
		return 0, errors.New("only the oldest and the newest offset are known")
	}
	offsets, err := list(ctx, topic)
	if err != nil {
		return 0, fmt.Errorf("listing offsets of %s/%d: %w", topic, partition, err)
	}
	o, ok := offsets.Lookup(topic, partition)
	if !ok {
		return 0, fmt.Errorf("listing offsets of %s/%d: there is no such partition", topic, partition)
	}
	if o.Err != nil {
		return 0, fmt.Errorf("listing offsets of %s/%d: %w", topic, partition, o.Err)
	}
	return o.Offset, nil
}

// Close leaves the client to its owner.
func (m *topicManager) Close() error { return nil }
