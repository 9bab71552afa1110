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

// clusterTimeout bounds a wait for the whole cluster, in addition to the caller's context.
const clusterTimeout = 2 * time.Minute

// Reset deletes every consumer group and every topic except Kafka's own, and returns once no running node knows any of
// them. It waits for groups that still have members; a dead member counts until its session expires. Transactional ids
// remain, since Kafka cannot delete them: their next producer gets a higher epoch.
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

// deleteAll deletes everything, and returns nil once nothing was left to delete on any broker.
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
	errs := []error{fmt.Errorf("remaining: topics [%s], groups [%s]", strings.Join(topics, " "),
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

// listTopicsEverywhere asks every broker: until all know of a deletion, a recreated topic is taken for the old one.
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

// WaitInSync returns once every partition has a leader and all its replicas are in sync; all nodes must run. A test
// calls it between two failures, so that the second one does not destroy the last good replica.
func (k *Kafka) WaitInSync(ctx context.Context) error {
	return k.waitNodes(ctx, "replicas to be in sync", nil, func(id int, m *kmsg.MetadataResponse) error {
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
}

func (k *Kafka) waitComplete(ctx context.Context) error {
	none := []kmsg.MetadataRequestTopic{}
	return k.waitNodes(ctx, "nodes to find each other", none, func(id int, m *kmsg.MetadataResponse) error {
		if len(m.Brokers) < len(k.nodes) {
			return fmt.Errorf("node %d knows %d of %d brokers", id, len(m.Brokers), len(k.nodes))
		}
		return nil
	})
}

// waitNodes waits until check accepts what each node, asked individually, says about the topics.
func (k *Kafka) waitNodes(
	ctx context.Context, what string, topics []kmsg.MetadataRequestTopic,
	check func(id int, m *kmsg.MetadataResponse) error,
) error {
	err := eventually(ctx, clusterTimeout, func(ctx context.Context) error {
		for _, n := range k.nodes {
			err := n.alone(func(self *kgo.Broker) error {
				metadata, err := requestMetadata(ctx, self, topics)
				if err != nil {
					return fmt.Errorf("request metadata from node %d: %w", n.id, err)
				}
				return check(n.id, metadata)
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("wait for kafka's %s: %w", what, err)
	}
	return nil
}

// eventually retries until there is no error; after the timeout it returns the last one.
func eventually(ctx context.Context, within time.Duration, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	last := errors.New("not tried yet")
	for tick := time.Tick(probeEvery); ; {
		err := try(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil {
			last = err // skip errors that the deadline itself caused
		}
		select {
		case <-tick:
		case <-ctx.Done():
			return fmt.Errorf("%w; last error: %w", ctx.Err(), last)
		}
	}
}
