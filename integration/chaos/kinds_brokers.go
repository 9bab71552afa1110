package chaos

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/integration/stack"
	"kudos/schema"
)

const inSyncTimeout = 2 * time.Minute

// part is a role that a node can have: its name, and which node has it for a partition of likes.
type part struct {
	what   string
	holder func(ctx context.Context, s *system, partition int32) (node int32, err error)
}

var (
	leader      = part{"leaderships", leaderOf}
	coordinator = part{"transaction coordinators", coordinatorOf}
	controller  = part{"controllers", controllerOf}
)

func brokerFault(do func(context.Context, *fault, *stack.Server) error, has part) func(context.Context, *fault) error {
	return func(ctx context.Context, f *fault) error {
		partition := f.random.Int32N(f.sys.opts.Partitions)
		node, err := f.sys.ask(ctx, has, partition)
		if err != nil {
			return missed("cannot look up the broker with this role: %v", err)
		}
		if node < 0 || int(node) >= len(f.sys.kafka.Nodes()) {
			return missed("no broker has this role")
		}
		if err := do(ctx, f, f.sys.kafka.Node(int(node))); err != nil {
			return err
		}
		if now, err := f.sys.ask(ctx, has, partition); err == nil && now != node {
			f.show(has.what+" moved to another broker", 1)
		}
		return f.sys.inSync(ctx)
	}
}

func (s *system) ask(ctx context.Context, has part, partition int32) (int32, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	return has.holder(ctx, s, partition)
}

func (s *system) inSync(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, inSyncTimeout)
	defer cancel()
	return s.kafka.WaitInSync(ctx)
}

func leaderOf(ctx context.Context, s *system, partition int32) (int32, error) {
	topics, err := s.admin.ListTopics(ctx, schema.TopicLikes)
	if err != nil {
		return 0, err
	}
	p := topics[schema.TopicLikes].Partitions[partition]
	return p.Leader, p.Err
}

func coordinatorOf(ctx context.Context, s *system, partition int32) (int32, error) {
	id := schema.FoldTransactionalIDs(partition)[0]
	c := s.admin.FindTxnCoordinators(ctx, id)[id]
	return c.NodeID, c.Err
}

// controllerOf asks for the leader of the metadata quorum: the controller that clients see may be any broker.
func controllerOf(ctx context.Context, s *system, _ int32) (int32, error) {
	req := kmsg.NewPtrDescribeQuorumRequest()
	req.Topics = []kmsg.DescribeQuorumRequestTopic{{Topic: "__cluster_metadata",
		Partitions: []kmsg.DescribeQuorumRequestTopicPartition{{Partition: 0}}}}
	resp, err := req.RequestWith(ctx, s.client)
	if err != nil {
		return 0, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return 0, errors.New("the quorum names no leader")
	}
	p := resp.Topics[0].Partitions[0]
	return p.LeaderID, errors.Join(kerr.ErrorForCode(resp.ErrorCode), kerr.ErrorForCode(p.ErrorCode))
}

func killNode(ctx context.Context, f *fault, node *stack.Server) error {
	f.on("%v", node)
	defer f.away()()
	if err := node.Kill(); err != nil {
		return err
	}
	// See torn.go. If all brokers are killed, no other can take over, and tearing is left to chance.
	err := waitUntil(ctx, inSyncTimeout, "other brokers to take over from "+node.String(),
		func() bool { return !f.sys.leads(ctx, node) })
	return errors.Join(err, wait(ctx, f.between(0, 2*time.Second)), node.Start(ctx))
}

// leads reports whether a node leads any partition, according to the others. It is true if they cannot be asked.
func (s *system) leads(ctx context.Context, node *stack.Server) bool {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	topics, err := s.admin.ListTopicsWithInternal(ctx)
	if err != nil {
		return true
	}
	found := false
	topics.EachPartition(func(p kadm.PartitionDetail) {
		found = found || p.Leader < 0 || s.kafka.Node(int(p.Leader)) == node
	})
	return found
}

// pauseNode pauses a node, shorter or longer than its broker session; when that expires, others replace it.
func pauseNode(ctx context.Context, f *fault, node *stack.Server) error {
	d := f.between(500*time.Millisecond, 9*time.Second)
	f.on("%v for %v", node, d.Round(time.Millisecond))
	defer f.away()()
	return pause(ctx, d, node)
}

func killAllBrokers(ctx context.Context, f *fault) error {
	f.on("all brokers")
	defer f.away()()
	if err := f.sys.kafka.Kill(); err != nil {
		return err
	}
	if err := errors.Join(wait(ctx, f.between(0, 2*time.Second)), f.sys.kafka.Start(ctx)); err != nil {
		return err
	}
	return f.sys.inSync(ctx)
}

func pauseAllBrokers(ctx context.Context, f *fault) error {
	d := f.between(500*time.Millisecond, 5*time.Second)
	f.on("all brokers for %v", d.Round(time.Millisecond))
	defer f.away()()
	if err := pause(ctx, d, f.sys.kafka.Nodes()...); err != nil {
		return err
	}
	return f.sys.inSync(ctx)
}
