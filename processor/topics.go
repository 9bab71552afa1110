package processor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/schema"
	"kudos/stream"
)

// TopicsReport says, a line each, what ApplyTopics did or CheckTopics found wrong.
type TopicsReport struct {
	Lines []string `json:"lines"`
}

func (r *TopicsReport) add(format string, args ...any) {
	r.Lines = append(r.Lines, fmt.Sprintf(format, args...))
}

// ApplyTopics creates the topics that are missing, sets what is set otherwise, and
// writes the first progress record of each partition. It can be run at any time and
// any number of times; what cannot be changed (a partition count) is an error.
func ApplyTopics(ctx context.Context, kafka stream.KafkaOptions, partitions int32, replicationFactor int16, log *slog.Logger) (*TopicsReport, error) {
	cl, err := kafka.NewClient(log)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	if err := stream.RequireTransactionVersion2(ctx, cl); err != nil {
		return nil, refusal(err)
	}
	report := &TopicsReport{}
	a := &topicAdmin{cl: cl, adm: kadm.NewClient(cl), report: report}
	for _, t := range schema.Topics(partitions, replicationFactor) {
		if err := a.apply(ctx, t); err != nil {
			return report, err
		}
	}
	topics, err := stream.LookUpTopics(ctx, cl, schema.TopicLikes, schema.TopicState, schema.TopicUpdates)
	if err != nil {
		return report, err
	}
	for p := range partitions {
		if err := initProgress(ctx, kafka, topics, p, report, log); err != nil {
			return report, err
		}
	}
	return report, nil
}

// CheckTopics compares the topics with what they have to be. It changes nothing; an
// empty report means that all is well.
func CheckTopics(ctx context.Context, kafka stream.KafkaOptions, partitions int32, replicationFactor int16, log *slog.Logger) (*TopicsReport, error) {
	cl, err := kafka.NewClient(log)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	report := &TopicsReport{}
	if err := stream.RequireTransactionVersion2(ctx, cl); err != nil {
		if park := (*stream.ParkError)(nil); !errors.As(err, &park) {
			return nil, err
		}
		report.add("%v", refusal(err))
	}
	a := &topicAdmin{cl: cl, adm: kadm.NewClient(cl), report: report}
	for _, t := range schema.Topics(partitions, replicationFactor) {
		if err := a.check(ctx, t); err != nil {
			return report, err
		}
	}
	return report, nil
}

func refusal(err error) error {
	var park *stream.ParkError
	if errors.As(err, &park) {
		return fmt.Errorf("%s; run: %s", park.Reason, park.Remedy)
	}
	return err
}

type topicAdmin struct {
	cl     *kgo.Client
	adm    *kadm.Client
	report *TopicsReport
}

func (a *topicAdmin) apply(ctx context.Context, want schema.Topic) error {
	have, found, err := a.look(ctx, want.Name)
	if err != nil {
		return err
	}
	if !found {
		configs := map[string]*string{}
		for k, v := range want.Configs {
			configs[k] = kadm.StringPtr(v)
		}
		if _, err := a.adm.CreateTopic(ctx, want.Partitions, want.ReplicationFactor, configs, want.Name); err != nil {
			return fmt.Errorf("creating topic %s: %w", want.Name, err)
		}
		a.report.add("created %s with %d partitions, replication factor %d", want.Name, want.Partitions, want.ReplicationFactor)
		return a.waitFor(ctx, want.Name)
	}
	if have.partitions != want.Partitions {
		return fmt.Errorf("topic %s has %d partitions, not %d; a partition count is never changed, since it decides where a post lives: set topics.partitions to %d", want.Name, have.partitions, want.Partitions, have.partitions)
	}
	var alter []kadm.AlterConfig
	for _, k := range slices.Sorted(maps.Keys(want.Configs)) {
		if have.configs[k] != want.Configs[k] {
			a.report.add("set %s of %s to %s (was %q)", k, want.Name, want.Configs[k], have.configs[k])
			alter = append(alter, kadm.AlterConfig{Op: kadm.SetConfig, Name: k, Value: kadm.StringPtr(want.Configs[k])})
		}
	}
	if len(alter) == 0 {
		return nil
	}
	responses, err := a.adm.AlterTopicConfigs(ctx, alter, want.Name)
	for _, r := range responses {
		err = errors.Join(err, r.Err)
	}
	if err != nil {
		return fmt.Errorf("setting up topic %s: %w", want.Name, err)
	}
	return nil
}

// waitFor waits until all partitions of a new topic have a leader.
func (a *topicAdmin) waitFor(ctx context.Context, name string) error {
	for {
		topics, err := stream.LookUpTopics(ctx, a.cl, name)
		if err == nil && topics.ByName[name].HasLeaders() {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the partitions of %s to have leaders: %w", name, ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (a *topicAdmin) check(ctx context.Context, want schema.Topic) error {
	have, found, err := a.look(ctx, want.Name)
	if err != nil {
		return err
	}
	if !found {
		a.report.add("topic %s is missing; run: kudos topics apply", want.Name)
		return nil
	}
	if have.partitions != want.Partitions {
		a.report.add("topic %s has %d partitions, topics.partitions says %d", want.Name, have.partitions, want.Partitions)
	}
	if have.replicas != int(want.ReplicationFactor) {
		a.report.add("topic %s has replication factor %d, not %d; reassign its partitions with kafka-reassign-partitions.sh", want.Name, have.replicas, want.ReplicationFactor)
	}
	for _, k := range slices.Sorted(maps.Keys(want.Configs)) {
		if have.configs[k] != want.Configs[k] {
			a.report.add("%s of %s is %q, not %s; run: kudos topics apply", k, want.Name, have.configs[k], want.Configs[k])
		}
	}
	return nil
}

type topicSettings struct {
	partitions int32
	replicas   int
	configs    map[string]string
}

func (a *topicAdmin) look(ctx context.Context, name string) (s topicSettings, found bool, err error) {
	topics, err := stream.LookUpTopics(ctx, a.cl, name)
	if errors.Is(err, kerr.UnknownTopicOrPartition) {
		return s, false, nil
	}
	if err != nil {
		return s, false, err
	}
	info := topics.ByName[name]
	s = topicSettings{partitions: info.Partitions, replicas: info.Replicas, configs: map[string]string{}}
	configs, err := a.adm.DescribeTopicConfigs(ctx, name)
	if err != nil {
		return s, false, fmt.Errorf("reading the settings of topic %s: %w", name, err)
	}
	for _, r := range configs {
		if r.Err != nil {
			return s, false, fmt.Errorf("reading the settings of topic %s: %w", name, r.Err)
		}
		for _, c := range r.Configs {
			s.configs[c.Key] = c.MaybeValue()
		}
	}
	return s, true, nil
}

// initProgress writes a partition's first progress record, if its state table never
// had anything. Under the partition's transactional id: that fences a processor which
// would write at the same time, and whoever else is here.
func initProgress(ctx context.Context, kafka stream.KafkaOptions, topics stream.Topics, partition int32, report *TopicsReport, log *slog.Logger) error {
	cl, err := kafka.NewClient(log,
		kgo.TransactionalID(schema.FoldTransactionalID(partition)),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RecordDeliveryTimeout(kafka.RequestTimeout))
	if err != nil {
		return err
	}
	defer cl.Close()
	// Looked at twice: a running processor is fenced only if there may be need.
	if empty, err := neverWritten(ctx, cl, schema.TopicState, partition); err != nil || !empty {
		return err
	}
	if _, _, err := cl.ProducerID(ctx); err != nil {
		return fmt.Errorf("initialising transactional id of partition %d: %w", partition, err)
	}
	if empty, err := neverWritten(ctx, cl, schema.TopicState, partition); err != nil || !empty {
		return err
	}
	if empty, err := neverWritten(ctx, cl, schema.TopicUpdates, partition); err != nil {
		return err
	} else if !empty {
		return fmt.Errorf("%s/%d has records but %s/%d has none: the state table was lost; delete %s too to fold all of %s anew", schema.TopicUpdates, partition, schema.TopicState, partition, schema.TopicUpdates, schema.TopicLikes)
	}
	start, _, err := stream.Bounds(ctx, cl, schema.TopicLikes, partition)
	if err != nil {
		return err
	}
	likes := topics.ByName[schema.TopicLikes]
	progress := schema.Progress{
		NextOffset: start, LeaderEpoch: -1, ClusterID: topics.ClusterID, Partitions: likes.Partitions,
		SourceID: likes.ID, StateID: topics.ByName[schema.TopicState].ID, UpdatesID: topics.ByName[schema.TopicUpdates].ID,
	}
	if err := cl.BeginTransaction(); err != nil {
		return fmt.Errorf("beginning the transaction of partition %d: %w", partition, err)
	}
	rec := &kgo.Record{Topic: schema.TopicState, Partition: partition, Key: []byte(schema.StateProgressKey), Value: schema.AppendProgress(nil, &progress)}
	if err := cl.ProduceSync(ctx, rec).FirstErr(); err != nil {
		return fmt.Errorf("writing the first progress record of partition %d: %w", partition, err)
	}
	if err := cl.EndTransaction(ctx, kgo.TryCommit); err != nil {
		return fmt.Errorf("committing the first progress record of partition %d: %w", partition, err)
	}
	report.add("partition %s starts at offset %d of %s", strconv.Itoa(int(partition)), start, schema.TopicLikes)
	return nil
}

func neverWritten(ctx context.Context, cl *kgo.Client, topic string, partition int32) (bool, error) {
	_, end, err := stream.Bounds(ctx, cl, topic, partition)
	return end == 0, err
}
