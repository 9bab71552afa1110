package topics_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/dev/testkit"
	"kudos/ops/topics"
)

// warnings returns those of two brokers with these settings: "name=value …".
func warnings(t *testing.T, replicas int16, settings string, faults ...kfake.Fault) []string {
	configs := map[string]string{}
	for field := range strings.FieldsSeq(settings) {
		name, value, _ := strings.Cut(field, "=")
		configs[name] = value
	}
	broker, err := kfake.NewCluster(kfake.NumBrokers(2), kfake.BrokerConfigs(configs))
	require.NoError(t, err)
	defer broker.Close()
	broker.Fault(faults...)
	cl, err := kgo.NewClient(kgo.SeedBrokers(broker.ListenAddrs()...))
	require.NoError(t, err)
	defer cl.Close()
	roles := []time.Duration{10 * time.Second, 20 * time.Second}
	return topics.CheckBrokers(testkit.Context(t), kadm.NewClient(cl), roles, roles, replicas)
}

func TestEachSettingOfBrokersWithACostIsReported(t *testing.T) {
	t.Parallel()
	for setting, better := range map[string]string{
		"add.partitions.to.txn.retry.backoff.ms=20":       "1: a partition's next transaction waits that long",
		"add.partitions.to.txn.retry.backoff.max.ms=0":    "100:",
		"group.initial.rebalance.delay.ms=5000":           "3000:",
		"group.max.session.timeout.ms=19999":              "20000: Kafka rejects",
		"group.min.session.timeout.ms=10001":              "10000:",
		"log.cleaner.enable=false":                        "true: compacted topics grow",
		"log.flush.interval.messages=1":                   "1000:",
		"replica.fetch.min.bytes=2":                       "1:",
		"transaction.max.timeout.ms=19999":                "20000:",
		"transaction.partition.verification.enable=false": "true:",
		"unclean.leader.election.enable=true":             "false: lost offsets",
	} {
		name, value, _ := strings.Cut(setting, "=")
		lines := warnings(t, 1, setting)
		require.Len(t, lines, 1, setting)
		require.Contains(t, lines[0], "broker 0, 1: "+name+" is "+value+", better "+better)
	}
}

func TestGoodSettingsOfBrokersAreNotReported(t *testing.T) {
	t.Parallel()
	require.Empty(t, warnings(t, 1, ""))
	require.Empty(t, warnings(t, 2, `add.partitions.to.txn.retry.backoff.ms=1 min.insync.replicas=1
		add.partitions.to.txn.retry.backoff.max.ms=100 group.initial.rebalance.delay.ms=3000
		group.max.session.timeout.ms=20000 group.min.session.timeout.ms=10000 replica.fetch.min.bytes=1
		log.flush.interval.messages=9223372036854775807 log.cleaner.enable=true
		offsets.topic.replication.factor=2 transaction.state.log.min.isr=1 transaction.state.log.replication.factor=2
		transaction.max.timeout.ms=20000 unknown=1
		transaction.partition.verification.enable=true unclean.leader.election.enable=false`))
	require.Len(t, warnings(t, 3, ""), 1, "min.insync.replicas is 1 by default, better 2")
	require.Len(t, warnings(t, 3, `min.insync.replicas=2 offsets.topic.replication.factor=2
		transaction.state.log.min.isr=1 transaction.state.log.replication.factor=2`), 3)
}

func TestBrokersThatDoNotTellTheirSettings(t *testing.T) {
	t.Parallel()
	costly, describe := "replica.fetch.min.bytes=2", []kmsg.Key{kmsg.DescribeConfigs}
	lines := warnings(t, 1, costly, kfake.Fault{Keys: describe, Err: kerr.ClusterAuthorizationFailed, Count: -1})
	require.Len(t, lines, 1)
	require.Contains(t, lines[0], "CLUSTER_AUTHORIZATION_FAILED")
	lines = warnings(t, 1, costly, kfake.Fault{Keys: describe, Resource: "1", Err: kerr.InvalidRequest, Count: -1})
	require.Len(t, lines, 2)
	require.Contains(t, lines[0], "broker 0: replica.fetch.min.bytes")
	require.Contains(t, lines[1], "INVALID_REQUEST")
}
