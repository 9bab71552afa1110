package stack

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// clusterTimeout bounds a wait for the cluster as a whole, beside the caller's context.
const clusterTimeout = 2 * time.Minute

// Reset deletes every topic but Kafka's own and every consumer group, and returns once no running node knows any of
// them. Groups that still have members, for which a member that died counts until its session times out, are waited
// for. Transactional ids stay known to Kafka, which has no way to delete them: their next producer is given a higher
// epoch.
func (k *Kafka) Reset(ctx context.Context) error {
	client, err := connect(k.Brokers()...)
	if err == nil {
		defer client.Close()
		err = eventually(ctx, clusterTimeout, func(ctx context.Context) error { return deleteAll(ctx, client) })
	}
	if err != nil {
		return fmt.Errorf("reset kafka: %w", err)
	}
	return nil
}

// deleteAll asks for everything to be deleted, and is nil when there was nothing left to delete on any broker.
func deleteAll(ctx context.Context, client *kgo.Client) error {
	admin := kadm.NewClient(client)
	groups, err := admin.ListGroups(ctx)
	if err != nil {
		return fmt.Errorf("list groups: %w", err)
	}
	topics, err := listTopicsEverywhere(ctx, client)
	if err != nil {
		return fmt.Errorf("list topics: %w", err)
	}
	if len(groups)+len(topics) == 0 {
		return nil
	}
	errs := []error{fmt.Errorf("left: topics [%s], groups [%s]", strings.Join(topics, " "),
		strings.Join(groups.Groups(), " "))}
	if len(groups) > 0 {
		deleted, err := admin.DeleteGroups(ctx, groups.Groups()...)
		errs = append(errs, err, deleted.Error())
	}
	if len(topics) > 0 {
		deleted, err := admin.DeleteTopics(ctx, topics...)
		errs = append(errs, err, deleted.Error())
	}
	return errors.Join(errs...)
}

// listTopicsEverywhere lists the topics that any broker knows: each learns of a deletion in its own time, and a topic
// made again too early would be confused with the old one.
func listTopicsEverywhere(ctx context.Context, client *kgo.Client) ([]string, error) {
	brokers, err := kadm.NewClient(client).ListBrokers(ctx)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, b := range brokers {
		metadata, err := requestMetadata(ctx, client.Broker(int(b.NodeID)), nil)
		if err != nil {
			return nil, err
		}
		for _, t := range metadata.Topics {
			if !t.IsInternal && t.Topic != nil {
				names = append(names, *t.Topic)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// WaitInSync returns once every partition has a leader and all its replicas in sync, on a cluster whose nodes all run:
// what a test waits for between two failures, lest the second one takes the last good copy.
func (k *Kafka) WaitInSync(ctx context.Context) error {
	err := k.waitNodes(ctx, nil, func(id int, m *kmsg.MetadataResponse) error {
		for _, t := range m.Topics {
			for _, p := range t.Partitions {
				if p.Leader < 0 || len(p.ISR) < len(p.Replicas) {
					return fmt.Errorf("node %d sees partition %s-%d with leader %d, replicas %v, in sync %v",
						id, *t.Topic, p.Partition, p.Leader, p.Replicas, p.ISR)
				}
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("wait for kafka's replicas to be in sync: %w", err)
	}
	return nil
}

// waitComplete returns once every node knows all nodes.
func (k *Kafka) waitComplete(ctx context.Context) error {
	err := k.waitNodes(ctx, []kmsg.MetadataRequestTopic{}, func(id int, m *kmsg.MetadataResponse) error {
		if len(m.Brokers) < len(k.nodes) {
			return fmt.Errorf("node %d knows %d of %d brokers", id, len(m.Brokers), len(k.nodes))
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("wait for kafka's nodes to find each other: %w", err)
	}
	return nil
}

// waitNodes waits until what each node, asked by itself, says of the topics is right.
func (k *Kafka) waitNodes(
	ctx context.Context, topics []kmsg.MetadataRequestTopic, check func(id int, m *kmsg.MetadataResponse) error,
) error {
	return eventually(ctx, clusterTimeout, func(ctx context.Context) error {
		for _, n := range k.nodes {
			err := n.alone(func(self *kgo.Broker) error {
				metadata, err := requestMetadata(ctx, self, topics)
				if err != nil {
					return fmt.Errorf("ask node %d: %w", n.id, err)
				}
				return check(n.id, metadata)
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// eventually tries until there is no error; the last one is returned when time is up.
func eventually(ctx context.Context, within time.Duration, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	last := errors.New("not tried yet")
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil {
			last = err // not the mere echo of our own deadline
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%w; last: %w", ctx.Err(), last)
		}
	}
}
