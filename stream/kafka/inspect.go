package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Position is where to resume in a partition: the next offset to read, and the leader epoch of the record before it
// (-1: not known). By the epoch Kafka detects that the log was truncated and written again since.
type Position struct {
	Offset int64 `json:"offset"`
	Epoch  int32 `json:"leader_epoch"`
	// Metadata is stored with a committed offset.
	Metadata string `json:"-"`
}

// LogID identifies one log permanently: a recreated topic, or one of the same name in another cluster, has another.
type LogID struct {
	ClusterID string
	TopicID   [16]byte
}

// Topics is the cluster's id and the metadata of some topics.
type Topics struct {
	ClusterID string
	ByName    map[string]TopicInfo
}

// TopicInfo identifies a topic's log and describes its partitions.
type TopicInfo struct {
	ID         [16]byte
	Partitions int32
	Leaders    []int32 // broker ids by partition, -1 where there is no leader
	Epochs     []int32 // leader epochs by partition, -1 where there is no leader
	Replicas   int     // the replication factor, the lowest of all partitions
}

// HasLeaders reports whether all partitions have a leader.
func (t TopicInfo) HasLeaders() bool { return t.Partitions > 0 && !slices.Contains(t.Leaders, -1) }

// LookUpTopics returns the metadata of topics. A missing topic is a SetupError that wraps kerr.UnknownTopicOrPartition.
// It asks the brokers each time: the client's cached metadata may be seconds old, and of a topic deleted since.
func LookUpTopics(ctx context.Context, cl kmsg.Requestor, names ...string) (Topics, error) {
	req := kmsg.NewPtrMetadataRequest()
	for _, name := range names {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = kmsg.StringPtr(name)
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return Topics{}, fmt.Errorf("looking up topics: %w", err)
	}
	topics := Topics{ByName: map[string]TopicInfo{}}
	if resp.ClusterID != nil {
		topics.ClusterID = *resp.ClusterID
	}
	for _, t := range resp.Topics {
		err := kerr.ErrorForCode(t.ErrorCode)
		switch {
		case errors.Is(err, kerr.UnknownTopicOrPartition):
			return Topics{}, &SetupError{Action: "kudos topics apply",
				Err: fmt.Errorf("there is no topic %s: %w", *t.Topic, err)}
		case err != nil:
			return Topics{}, fmt.Errorf("looking up topic %s: %w", *t.Topic, err)
		}
		none := slices.Repeat([]int32{-1}, len(t.Partitions))
		info := TopicInfo{ID: t.TopicID, Partitions: int32(len(none)), Leaders: none, Epochs: slices.Clone(none)}
		for _, p := range t.Partitions {
			if int(p.Partition) < len(info.Leaders) && p.ErrorCode == 0 {
				info.Leaders[p.Partition], info.Epochs[p.Partition] = p.Leader, p.LeaderEpoch
			}
			if info.Replicas == 0 || len(p.Replicas) < info.Replicas {
				info.Replicas = len(p.Replicas)
			}
		}
		topics.ByName[*t.Topic] = info
	}
	return topics, nil
}

// TopicConfigs returns the settings of a topic, including those that it inherits from the broker.
func TopicConfigs(ctx context.Context, cl *kgo.Client, topic string) (map[string]string, error) {
	described, err := kadm.NewClient(cl).DescribeTopicConfigs(ctx, topic)
	var resource kadm.ResourceConfig
	if err == nil {
		resource, err = described.On(topic, nil)
	}
	if err := errors.Join(err, resource.Err); err != nil {
		return nil, fmt.Errorf("reading the settings of topic %s: %w", topic, err)
	}
	configs := make(map[string]string, len(resource.Configs))
	for _, c := range resource.Configs {
		configs[c.Key] = c.MaybeValue()
	}
	return configs, nil
}

// Bounds returns a partition's first offset and its last stable offset, which is the end for read_committed consumers.
func Bounds(ctx context.Context, cl kmsg.Requestor, topic string, partition int32) (start, end int64, err error) {
	if start, err = listOffset(ctx, cl, topic, partition, earliestOffset); err != nil {
		return 0, 0, err
	}
	end, err = listOffset(ctx, cl, topic, partition, latestOffset)
	return start, end, err
}

const earliestOffset, latestOffset = -2, -1 // timestamps by which ListOffsets returns the first offset and the end

const listPatience = 30 * time.Second // longer than a new leader takes to know its end

// listOffset returns an offset as read_committed consumers see it: the end is the last stable offset. It asks for one
// partition only: a request for the whole topic fails when any of its brokers is unavailable. It retries while there is
// no leader, or the leader does not know its end yet; the client itself does not.
func listOffset(ctx context.Context, cl kmsg.Requestor, topic string, partition int32, at int64) (int64, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	req.IsolationLevel = 1 // read_committed
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewListOffsetsRequestTopicPartition()
	rp.Partition, rp.Timestamp = partition, at
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	ctx, cancel := context.WithTimeout(ctx, listPatience)
	defer cancel()
	for {
		offset, err := listed(req.RequestWith(ctx, cl))
		switch {
		case err == nil:
			return offset, nil
		case !errors.Is(err, kerr.OffsetNotAvailable) && !errors.Is(err, kerr.LeaderNotAvailable),
			!Sleep(ctx, fetchRetryMin):
			return 0, fmt.Errorf("listing offsets of %s/%d: %w", topic, partition, err)
		}
	}
}

// ListEnds returns high watermarks, and then last stable offsets: a transaction that ends in between is not open.
func ListEnds(ctx context.Context, cl *kgo.Client, topics ...string) (high, stable kadm.ListedOffsets, err error) {
	adm := kadm.NewClient(cl)
	high, err = adm.ListEndOffsets(ctx, topics...)
	stable, stableErr := adm.ListCommittedOffsets(ctx, topics...)
	return high, stable, errors.Join(err, stableErr)
}

// Sleep waits for d, and reports whether it did: ctx may end first.
func Sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

func listed(resp *kmsg.ListOffsetsResponse, err error) (int64, error) {
	if err != nil {
		return 0, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return 0, kerr.UnknownTopicOrPartition
	}
	p := resp.Topics[0].Partitions[0]
	return p.Offset, kerr.ErrorForCode(p.ErrorCode)
}

// EpochEnd returns the offset after the last record of a leader epoch, or below zero if the leader does not know it.
func EpochEnd(ctx context.Context, cl kmsg.Requestor, topic string, partition, epoch int32) (int64, error) {
	req := kmsg.NewPtrOffsetForLeaderEpochRequest()
	req.ReplicaID = -1
	rt := kmsg.NewOffsetForLeaderEpochRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
	rp.Partition, rp.LeaderEpoch = partition, epoch
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(ctx, cl)
	switch {
	case err != nil:
	case len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1:
		err = kerr.UnknownTopicOrPartition
	default:
		err = kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
	}
	if err != nil {
		return 0, fmt.Errorf("fetching the end of leader epoch %d of %s/%d: %w", epoch, topic, partition, err)
	}
	return resp.Topics[0].Partitions[0].EndOffset, nil
}

// CommittedOffset is Committed without leader epoch and metadata.
func CommittedOffset(ctx context.Context, cl kmsg.Requestor, group, topic string, partition int32,
) (offset int64, ok bool, err error) {
	at, ok, err := Committed(ctx, cl, group, topic, partition)
	return at.Offset, ok, err
}

// Committed returns a group's committed position; ok is false if there is none (it may have expired). It waits, with a
// bound, for an open transaction that includes an offset and for a coordinator that is being created or moved.
func Committed(ctx context.Context, cl kmsg.Requestor, group, topic string, partition int32,
) (at Position, ok bool, err error) {
	info, err := LookUpTopics(ctx, cl, topic)
	if err != nil {
		return at, false, err
	}
	req := kmsg.NewPtrOffsetFetchRequest()
	req.RequireStable = true
	rg := kmsg.NewOffsetFetchRequestGroup()
	rg.Group = group
	rt := kmsg.NewOffsetFetchRequestGroupTopic()
	rt.Topic, rt.TopicID, rt.Partitions = topic, info.ByName[topic].ID, []int32{partition}
	rg.Topics = append(rg.Topics, rt)
	req.Groups = append(req.Groups, rg)
	ctx, cancel := context.WithTimeout(ctx, committedTimeout)
	defer cancel()
	for {
		at, err = committedAnswer(req.RequestWith(ctx, cl))
		switch {
		case errors.Is(err, kerr.GroupIDNotFound):
			return Position{}, false, nil
		case kerr.IsRetriable(err) && Sleep(ctx, 20*time.Millisecond):
			continue
		case err != nil:
			return Position{}, false, fmt.Errorf("fetching the committed offset of group %s in %s/%d: %w", group, topic,
				partition, err)
		}
		return at, at.Offset >= 0, nil
	}
}

const committedTimeout = time.Minute // longer than Kafka leaves a dead owner's transaction open

func committedAnswer(resp *kmsg.OffsetFetchResponse, err error) (Position, error) {
	if err != nil {
		return Position{}, err
	}
	if len(resp.Groups) != 1 {
		return Position{}, kerr.GroupIDNotFound
	}
	g := resp.Groups[0]
	if err := kerr.ErrorForCode(g.ErrorCode); err != nil {
		return Position{}, err
	}
	if len(g.Topics) != 1 || len(g.Topics[0].Partitions) != 1 {
		return Position{Offset: -1}, nil
	}
	p := g.Topics[0].Partitions[0]
	at := Position{Offset: p.Offset, Epoch: p.LeaderEpoch}
	if p.Metadata != nil {
		at.Metadata = *p.Metadata
	}
	return at, kerr.ErrorForCode(p.ErrorCode)
}

// RequireTransactionVersion2 returns a SetupError if the cluster's transaction.version is below 2: there, a
// transactional offset commit cannot be tied to the producer alone.
func RequireTransactionVersion2(ctx context.Context, cl kmsg.Requestor) error {
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = "kudos", "1"
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return fmt.Errorf("asking the brokers for their versions: %w", err)
	}
	for _, f := range resp.FinalizedFeatures {
		if f.Name == "transaction.version" && f.MaxVersionLevel >= 2 {
			return nil
		}
	}
	return &SetupError{Err: errors.New("the cluster's transaction.version is below 2"),
		Action: "kafka-features.sh --bootstrap-server HOST:PORT upgrade --feature transaction.version=2 (Apache " +
			"Kafka 4.0 or later)"}
}
