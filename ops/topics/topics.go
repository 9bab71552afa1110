// Package topics creates and checks the topics, writes each partition's first progress record, and bounds its regions
// (`kudos topics`).
package topics

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/ops/await"
	"kudos/processor/fold/table"
	"kudos/schema"
	"kudos/stream/kafka"
)

// Report lists what Apply did or Check found wrong, one per line.
type Report struct {
	Lines    []string `json:"lines"`
	Warnings []string `json:"warnings,omitempty"` // of CheckBrokers
}

func (r *Report) add(format string, args ...any) {
	r.Lines = append(r.Lines, fmt.Sprintf(format, args...))
}

// Apply creates missing topics, corrects settings that differ, and writes the first progress record of each partition.
// It accepts a longer retention. It is idempotent. A different number of partitions is an error (`kudos topics
// repartition` adds partitions).
func Apply(ctx context.Context, cluster kafka.Options, o Options, log *slog.Logger) (*Report, error) {
	layout := o.Layout()
	cl, err := cluster.NewClient(log)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	if err := kafka.RequireTransactionVersion2(ctx, cl); err != nil {
		return nil, withAction(err)
	}
	have, _, err := layoutOf(ctx, cl)
	if err != nil {
		return nil, err
	}
	first := firstProgress{kafka: cluster, log: log, cl: cl, common: schema.Progress{
		Partitions: layout.Partitions, UserBuckets: layout.UserBuckets(), Alternating: true, Regions: o.RegionRules(),
		Voids: true}}
	if have != nil {
		if have.Migrating || have.Partitions != layout.Partitions || have.UserBuckets != layout.UserBuckets() {
			return nil, layoutError(have, layout)
		}
		first.common.Layouts, first.common.Alternating = have.Layouts, have.Alternating
		if have.Regions == "" && !o.FixRegions || o.KeepRegions {
			first.common.Regions = have.Regions.Everywhere()
		}
	}
	report := &Report{Lines: []string{}} // encodes as [], not null
	for _, t := range schema.Topics(layout.Partitions, o.ReplicationFactor) {
		if err := apply(ctx, cl, t, report); err != nil {
			return report, err
		}
	}
	first.topics, err = kafka.LookUpTopics(ctx, cl, schema.TopicLikes, schema.TopicState, schema.TopicUpdates,
		schema.TopicCounts)
	if err != nil {
		return report, err
	}
	for first.partition = range layout.Partitions {
		if err := first.write(ctx, report); err != nil {
			return report, err
		}
		if err := first.setRegions(ctx, report); err != nil {
			return report, err
		}
	}
	return report, nil
}

// layoutOf returns a progress record with the current layout, preferring an unfinished repartition's; nil if none yet.
// partitions is the number of partitions of the state table, 0 if it does not exist.
func layoutOf(ctx context.Context, cl *kgo.Client) (layout *schema.Progress, partitions int32, err error) {
	topics, err := kafka.LookUpTopics(ctx, cl, schema.TopicState)
	if errors.Is(err, kerr.UnknownTopicOrPartition) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	state := topics.ByName[schema.TopicState]
	for p := range state.Partitions {
		progress, err := table.LastProgress(ctx, cl, p)
		if err != nil {
			return nil, 0, err
		}
		if progress != nil && progress.StateID == state.ID && (layout == nil || progress.Migrating) {
			layout = progress
		}
	}
	return layout, state.Partitions, nil
}

// layoutError says why topics cannot be set up for another layout, or not yet.
func layoutError(have *schema.Progress, layout schema.Layout) error {
	want := layout.Partitions
	switch {
	case have.Migrating:
		return fmt.Errorf("a repartition to %d partitions has not ended; finish it first: %s",
			have.Partitions, table.ActionRepartition)
	case have.Partitions == want:
		return fmt.Errorf("the state table has the user buckets [%s], but topics.user_buckets is [%s]: "+
			"they determine the partition of a reaction; to change them, run `%s`, or revert topics.user_buckets",
			have.UserBuckets, layout.UserBuckets(), table.ActionRepartition)
	case have.Partitions < want:
		return fmt.Errorf("the state table has %d partitions, not %d, and the partition count determines where a post "+
			"is stored: to add partitions, run `%s`; or set topics.partitions to %d",
			have.Partitions, want, table.ActionRepartition, have.Partitions)
	}
	return fmt.Errorf("the state table has %d partitions, not %d, and Kafka cannot remove any: "+
		"set topics.partitions to %d", have.Partitions, want, have.Partitions)
}

// Check compares the topics with the required setup, and changes nothing. The report is empty if nothing is wrong.
func Check(ctx context.Context, cluster kafka.Options, o Options, log *slog.Logger) (*Report, error) {
	cl, err := cluster.NewClient(log)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	report := &Report{Lines: []string{}} // encodes as [], not null
	if err := kafka.RequireTransactionVersion2(ctx, cl); err != nil {
		if _, setup := errors.AsType[*kafka.SetupError](err); !setup {
			return nil, err
		}
		report.add("%v", withAction(err))
	}
	for _, t := range schema.Topics(o.Partitions, o.ReplicationFactor) {
		if err := check(ctx, cl, t, report); err != nil {
			return report, err
		}
	}
	return report, checkProgress(ctx, cl, o, report)
}

// checkProgress reports partitions of the state table without records (`topics apply` was interrupted, or it is lost),
// and other regions than those of the settings.
func checkProgress(ctx context.Context, cl *kgo.Client, o Options, report *Report) error {
	layout, partitions, err := layoutOf(ctx, cl)
	if err != nil {
		return err
	}
	if layout != nil && layout.Migrating {
		report.add("a repartition to %d partitions has not ended; run: %s", layout.Partitions, table.ActionRepartition)
		return nil
	}
	for p := range partitions { // a missing topic is already reported
		empty, err := table.IsEmpty(ctx, cl, schema.TopicState, p)
		if err != nil {
			return err
		}
		if empty {
			report.add(table.NoProgress+"; run: kudos topics apply", p)
			continue
		}
		progress, err := table.LastProgress(ctx, cl, p)
		if err != nil {
			return err
		}
		checkRegions(p, progress, o.RegionRules(), report)
	}
	return nil
}

func withAction(err error) error {
	if setup, ok := errors.AsType[*kafka.SetupError](err); ok {
		return fmt.Errorf("%w; run: %s", setup, setup.Action)
	}
	return err
}

func apply(ctx context.Context, cl *kgo.Client, want schema.Topic, report *Report) error {
	have, configs, err := look(ctx, cl, want.Name)
	if err != nil {
		return err
	}
	if have.Partitions == 0 {
		return create(ctx, cl, want, report)
	}
	if wrongPartitions(have, want) {
		if want.Name == schema.TopicExclusions {
			return fmt.Errorf("topic %s has %d partitions but must have one: list the excluded posts "+
				"(kudos ranker exclusions), delete the topic, and exclude them again", want.Name, have.Partitions)
		}
		return fmt.Errorf("topic %s has %d partitions, not %d; Kafka cannot remove any: set topics.partitions to %d",
			want.Name, have.Partitions, want.Partitions, have.Partitions)
	}
	var alter []kadm.AlterConfig
	for _, k := range wrongConfigs(configs, want) {
		report.add("set %s of %s to %s (was %q)", k, want.Name, want.Configs[k], configs[k])
		alter = append(alter, kadm.AlterConfig{Op: kadm.SetConfig, Name: k, Value: kadm.StringPtr(want.Configs[k])})
	}
	if len(alter) == 0 {
		return nil
	}
	responses, err := kadm.NewClient(cl).AlterTopicConfigs(ctx, alter, want.Name)
	for _, r := range responses {
		err = errors.Join(err, r.Err)
	}
	if err != nil {
		return fmt.Errorf("setting up topic %s: %w", want.Name, err)
	}
	return nil
}

// create creates a topic and waits until all of its partitions have a leader.
func create(ctx context.Context, cl *kgo.Client, want schema.Topic, report *Report) error {
	configs := map[string]*string{}
	for k, v := range want.Configs {
		configs[k] = kadm.StringPtr(v)
	}
	_, err := kadm.NewClient(cl).CreateTopic(ctx, want.Partitions, want.ReplicationFactor, configs, want.Name)
	if err != nil {
		return fmt.Errorf("creating topic %s: %w", want.Name, err)
	}
	report.add("created %s with %d partitions, replication factor %d",
		want.Name, want.Partitions, want.ReplicationFactor)
	return AwaitLeaders(ctx, cl, want.Name, want.Partitions)
}

// AwaitLeaders waits until a topic has this number of partitions, each with a leader.
func AwaitLeaders(ctx context.Context, cl *kgo.Client, name string, partitions int32) error {
	return await.Until(ctx, "the partitions of "+name+" to have leaders", func(ctx context.Context) (bool, error) {
		topics, err := kafka.LookUpTopics(ctx, cl, name)
		t := topics.ByName[name]
		return err == nil && t.Partitions == partitions && t.HasLeaders(), nil
	})
}

func check(ctx context.Context, cl *kgo.Client, want schema.Topic, report *Report) error {
	have, configs, err := look(ctx, cl, want.Name)
	if err != nil {
		return err
	}
	if have.Partitions == 0 {
		report.add("topic %s is missing; run: kudos topics apply", want.Name)
		return nil
	}
	if wrongPartitions(have, want) {
		hint := ""
		if have.Partitions < want.Partitions && !schema.KeepsPartitions(want.Name) {
			hint = "; to add partitions, run: " + table.ActionRepartition
		}
		report.add("topic %s has %d partitions but must have %d%s", want.Name, have.Partitions, want.Partitions, hint)
	}
	if have.Replicas != int(want.ReplicationFactor) {
		report.add("topic %s has replication factor %d, not %d; reassign its partitions with "+
			"kafka-reassign-partitions.sh", want.Name, have.Replicas, want.ReplicationFactor)
	}
	for _, k := range wrongConfigs(configs, want) {
		report.add("%s of %s is %q, not %s; run: kudos topics apply", k, want.Name, configs[k], want.Configs[k])
	}
	return nil
}

// look returns a topic and its settings; a missing topic has 0 partitions.
func look(ctx context.Context, cl *kgo.Client, name string) (kafka.TopicInfo, map[string]string, error) {
	topics, err := kafka.LookUpTopics(ctx, cl, name)
	if errors.Is(err, kerr.UnknownTopicOrPartition) {
		return kafka.TopicInfo{}, nil, nil
	}
	if err != nil {
		return kafka.TopicInfo{}, nil, err
	}
	configs, err := kafka.TopicConfigs(ctx, cl, name)
	return topics.ByName[name], configs, err
}

// wrongPartitions accepts fewer partitions for the ranking topics, which do not grow with the others.
func wrongPartitions(have kafka.TopicInfo, want schema.Topic) bool {
	keepsFewer := schema.KeepsPartitions(want.Name) && want.Name != schema.TopicExclusions
	return have.Partitions != want.Partitions && !(keepsFewer && have.Partitions < want.Partitions)
}

func wrongConfigs(have map[string]string, want schema.Topic) (keys []string) {
	for _, k := range slices.Sorted(maps.Keys(want.Configs)) {
		if !want.Accepts(k, have[k]) {
			keys = append(keys, k)
		}
	}
	return keys
}
