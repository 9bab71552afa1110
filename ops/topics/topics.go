// Package topics creates and checks the topics of kudos, and writes the first progress record of each partition:
// `kudos topics apply`, `kudos topics check`.
package topics

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/processor/fold/table"
	"kudos/schema"
	"kudos/stream/kafka"
)

// Report says, a line each, what Apply did or Check found wrong.
type Report struct {
	Lines []string `json:"lines"`
}

func (r *Report) add(format string, args ...any) {
	r.Lines = append(r.Lines, fmt.Sprintf(format, args...))
}

// Apply creates the topics that are missing, sets what is set otherwise, and
// writes the first progress record of each partition. A longer retention is left alone.
// It can be run at any time and any number of times; another partition count is an error
// (`kudos topics repartition` adds partitions).
func Apply(ctx context.Context, cluster kafka.Options, layout schema.Layout, replicationFactor int16, log *slog.Logger) (*Report, error) {
	cl, err := cluster.NewClient(log)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	if err := kafka.RequireTransactionVersion2(ctx, cl); err != nil {
		return nil, refusal(err)
	}
	report := &Report{}
	have, err := layoutOf(ctx, cl)
	if err != nil {
		return nil, err
	}
	if have != nil && (have.Moving || have.Partitions != layout.Partitions || have.UserBuckets != layout.UserBuckets()) {
		return nil, layoutError(have, layout)
	}
	a := &topicAdmin{cl: cl, adm: kadm.NewClient(cl), report: report}
	for _, t := range schema.Topics(layout.Partitions, replicationFactor) {
		if err := a.apply(ctx, t); err != nil {
			return report, err
		}
	}
	topics, err := kafka.LookUpTopics(ctx, cl, schema.TopicLikes, schema.TopicState, schema.TopicUpdates)
	if err != nil {
		return report, err
	}
	for p := range layout.Partitions {
		first := firstProgress{kafka: cluster, log: log, topics: topics, layout: layout, partition: p}
		if have != nil {
			first.layouts = have.Layouts
		}
		if err := first.write(ctx, report); err != nil {
			return report, err
		}
	}
	return report, nil
}

// layoutOf is a progress record of the layout by which the state table is folded, that of a repartition under way
// before any other; nil: there is none yet.
func layoutOf(ctx context.Context, cl *kgo.Client) (layout *schema.Progress, err error) {
	topics, err := kafka.LookUpTopics(ctx, cl, schema.TopicState)
	if errors.Is(err, kerr.UnknownTopicOrPartition) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for p := range topics.ByName[schema.TopicState].Partitions {
		progress, err := table.LastProgress(ctx, cl, p)
		if err != nil {
			return nil, err
		}
		if progress != nil && progress.StateID == topics.ByName[schema.TopicState].ID && (layout == nil || progress.Moving) {
			layout = progress
		}
	}
	return layout, nil
}

// layoutError says why topics are not to be set up for another number of partitions, or not now.
func layoutError(have *schema.Progress, layout schema.Layout) error {
	want := layout.Partitions
	switch {
	case have.Moving:
		return fmt.Errorf("a repartition to %d partitions has not ended; finish it first: %s", have.Partitions, table.ActionRepartition)
	case have.Partitions == want:
		return fmt.Errorf("the state table has the user buckets [%s], and topics.user_buckets are [%s]: they decide where a reaction lives; to change them, run `%s`, or set topics.user_buckets back", have.UserBuckets, layout.UserBuckets(), table.ActionRepartition)
	case have.Partitions < want:
		return fmt.Errorf("the state table has %d partitions, not %d, and a partition count decides where a post lives: to add partitions, run `%s`; or set topics.partitions to %d", have.Partitions, want, table.ActionRepartition, have.Partitions)
	}
	return fmt.Errorf("the state table has %d partitions, not %d, and Kafka takes none away: set topics.partitions to %d", have.Partitions, want, have.Partitions)
}

// Check compares the topics with what they have to be. It changes nothing; an
// empty report means that all is well.
func Check(ctx context.Context, cluster kafka.Options, layout schema.Layout, replicationFactor int16, log *slog.Logger) (*Report, error) {
	cl, err := cluster.NewClient(log)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	report := &Report{}
	if err := kafka.RequireTransactionVersion2(ctx, cl); err != nil {
		if setup := (*kafka.SetupError)(nil); !errors.As(err, &setup) {
			return nil, err
		}
		report.add("%v", refusal(err))
	}
	a := &topicAdmin{cl: cl, adm: kadm.NewClient(cl), report: report}
	for _, t := range schema.Topics(layout.Partitions, replicationFactor) {
		if err := a.check(ctx, t); err != nil {
			return report, err
		}
	}
	return report, checkProgress(ctx, cl, cluster, report, log)
}

// checkProgress looks for partitions of the state table that have nothing, not even a
// first progress record: `topics apply` was stopped halfway, or the table was lost.
func checkProgress(ctx context.Context, cl *kgo.Client, cluster kafka.Options, report *Report, log *slog.Logger) error {
	topics, err := kafka.LookUpTopics(ctx, cl, schema.TopicState)
	if errors.Is(err, kerr.UnknownTopicOrPartition) {
		return nil // told already
	}
	if err != nil {
		return err
	}
	if layout, err := layoutOf(ctx, cl); err != nil {
		return err
	} else if layout != nil && layout.Moving {
		report.add("a repartition to %d partitions has not ended; run: %s", layout.Partitions, table.ActionRepartition)
		return nil
	}
	for p := range topics.ByName[schema.TopicState].Partitions {
		first := firstProgress{kafka: cluster, log: log, partition: p}
		empty, err := first.isEmpty(ctx, schema.TopicState)
		if err != nil {
			return err
		}
		if empty {
			report.add(table.NoProgress+"; run: kudos topics apply", p)
		}
	}
	return nil
}

func refusal(err error) error {
	var setup *kafka.SetupError
	if errors.As(err, &setup) {
		return fmt.Errorf("%w; run: %s", setup, setup.Remedy)
	}
	return err
}

type topicAdmin struct {
	cl     *kgo.Client
	adm    *kadm.Client
	report *Report
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
	if have.partitions != want.Partitions && !keepsFewer(want, have.partitions) {
		if want.Name == schema.TopicExclusions {
			return fmt.Errorf("topic %s has %d partitions, and must have one: read what is excluded (kudos ranker exclusions), delete it, and exclude the posts anew", want.Name, have.partitions)
		}
		if have.partitions < want.Partitions {
			return fmt.Errorf("topic %s has %d partitions, not %d; a partition count decides where a post lives: to add partitions, run `%s`; or set topics.partitions to %d", want.Name, have.partitions, want.Partitions, table.ActionRepartition, have.partitions)
		}
		return fmt.Errorf("topic %s has %d partitions, not %d, and Kafka takes none away: set topics.partitions to %d", want.Name, have.partitions, want.Partitions, have.partitions)
	}
	var alter []kadm.AlterConfig
	for _, k := range slices.Sorted(maps.Keys(want.Configs)) {
		if !want.Accepts(k, have.configs[k]) {
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

// keepsFewer: the topics of rankings may have fewer partitions than the others have by now.
func keepsFewer(want schema.Topic, have int32) bool {
	return schema.KeepsPartitions(want.Name) && want.Name != schema.TopicExclusions && have < want.Partitions
}

// waitFor waits until all partitions of a new topic have a leader.
func (a *topicAdmin) waitFor(ctx context.Context, name string) error {
	for {
		topics, err := kafka.LookUpTopics(ctx, a.cl, name)
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
	if have.partitions != want.Partitions && !keepsFewer(want, have.partitions) {
		line := fmt.Sprintf("topic %s has %d partitions, it must have %d", want.Name, have.partitions, want.Partitions)
		if have.partitions < want.Partitions && !schema.KeepsPartitions(want.Name) {
			line += "; to add partitions, run: " + table.ActionRepartition
		}
		a.report.add("%s", line)
	}
	if have.replicas != int(want.ReplicationFactor) {
		a.report.add("topic %s has replication factor %d, not %d; reassign its partitions with kafka-reassign-partitions.sh", want.Name, have.replicas, want.ReplicationFactor)
	}
	for _, k := range slices.Sorted(maps.Keys(want.Configs)) {
		if !want.Accepts(k, have.configs[k]) {
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
	topics, err := kafka.LookUpTopics(ctx, a.cl, name)
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
