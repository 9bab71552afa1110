package stack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/bench/child"
)

// transactionVersion is the finalized feature level that makes transactions safe against late messages of an earlier
// one (KIP-890).
const transactionVersion = 2

// log4j2Properties sends the log to standard output, which is the node's log file, so that a crash of the JVM stands in
// the same place. The line-by-line listing of every configuration would bury the rest.
const log4j2Properties = `status = warn
appender.stdout.type = Console
appender.stdout.name = stdout
appender.stdout.direct = true
appender.stdout.layout.type = PatternLayout
appender.stdout.layout.pattern = %d{HH:mm:ss.SSS} %p [%t] %c{1}: %m%n
rootLogger.level = info
rootLogger.appenderRef.stdout.ref = stdout
logger.configuration.name = org.apache.kafka.common.config.AbstractConfig
logger.configuration.level = warn
`

// authorizerProperties has the log tell what was allowed to whom; without it, it tells only what was not.
const authorizerProperties = `logger.authorizer.name = kafka.authorizer.logger
logger.authorizer.level = debug
`

// kafkaNode is one broker and controller. Its directory holds the configuration, the log and, under data, what it stores.
type kafkaNode struct {
	*Server
	id          int
	dir         string
	directoryID string
	clusterID   string
	size        int // nodes in the cluster
	broker      port
	controller  port
	// With a front, the node's second listener and the address that its clients are told.
	fronted       bool
	behind, front port
	// With an authority, the listener whose clients it vouches for.
	authority *Authority
	secure    port
	jvm       javaCommand
}

func (n *kafkaNode) writeConfiguration(controllers []string, extra map[string]string) error {
	if err := os.Mkdir(n.dir, 0o755); err != nil {
		return err
	}
	logging := log4j2Properties
	if n.authority != nil {
		logging += authorizerProperties
	}
	if err := os.WriteFile(filepath.Join(n.dir, "log4j2.properties"), []byte(logging), 0o644); err != nil {
		return err
	}
	properties := n.properties(controllers)
	if err := n.addSecure(properties); err != nil {
		return err
	}
	maps.Copy(properties, extra)
	var text bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		fmt.Fprintf(&text, "%s=%s\n", name, properties[name])
	}
	return os.WriteFile(filepath.Join(n.dir, "server.properties"), text.Bytes(), 0o644)
}

// properties is the node's server.properties: production's rules of replication as far as the number of nodes allows,
// and small enough for several on a laptop.
func (n *kafkaNode) properties(controllers []string) map[string]string {
	replicas, inSync := n.size, max(1, n.size-1)
	properties := map[string]string{
		"process.roles":                            "broker,controller",
		"node.id":                                  strconv.Itoa(n.id),
		"controller.quorum.bootstrap.servers":      strings.Join(controllers, ","),
		"controller.listener.names":                "CONTROLLER",
		"listeners":                                "PLAINTEXT://" + n.broker.address() + ",CONTROLLER://" + n.controller.address(),
		"listener.security.protocol.map":           "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
		"log.dirs":                                 "data", // in the working directory
		"auto.create.topics.enable":                "false",
		"unclean.leader.election.enable":           "false",
		"default.replication.factor":               strconv.Itoa(replicas),
		"min.insync.replicas":                      strconv.Itoa(inSync),
		"offsets.topic.replication.factor":         strconv.Itoa(replicas),
		"transaction.state.log.replication.factor": strconv.Itoa(replicas),
		"transaction.state.log.min.isr":            strconv.Itoa(inSync),
		// 50 partitions each by default: most of the time that the first group or transaction takes.
		"offsets.topic.num.partitions":         "5",
		"transaction.state.log.num.partitions": "5",
		// A broker that was killed is let in again only after its old session has run out: 9 s by default. Much less, and
		// a broker on a busy machine misses its heartbeats.
		"broker.session.timeout.ms": "6000",
		// A group's first member waits 3 s for others by default.
		"group.initial.rebalance.delay.ms": "0",
		// The broker sizes these for a machine of its own; the cleaner's buffer is a quarter of our heap by default.
		"log.cleaner.dedupe.buffer.size": strconv.Itoa(16 << 20),
		"num.network.threads":            "2",
		"num.io.threads":                 "4",
	}
	if n.fronted {
		properties["listeners"] += ",FRONTED://" + n.behind.address()
		properties["advertised.listeners"] = "PLAINTEXT://" + n.broker.address() + ",FRONTED://" + n.front.address()
		properties["listener.security.protocol.map"] += ",FRONTED:PLAINTEXT"
		properties["inter.broker.listener.name"] = "PLAINTEXT"
	}
	return properties
}

// format writes the node's identity and the features that the cluster begins with, as kafka-storage does.
func (n *kafkaNode) format(ctx context.Context, initialControllers string) error {
	return run(ctx, child.Command{
		Name: fmt.Sprintf("kafka-storage format of node %d", n.id),
		Path: n.jvm.path,
		Args: n.jvm.args("kafka.tools.StorageTool", "format", "--cluster-id", n.clusterID,
			"--initial-controllers", initialControllers, "--config", "server.properties"),
		Dir: n.dir,
		Log: filepath.Join(n.dir, "format.log"),
	})
}

func (n *kafkaNode) newServer(o KafkaOptions) *Server {
	return &Server{
		command: child.Command{
			Name: fmt.Sprintf("kafka node %d", n.id),
			Path: n.jvm.path,
			Args: n.jvm.args("kafka.Kafka", "server.properties"),
			Dir:  n.dir,
			Log:  filepath.Join(n.dir, "server.log"),
		},
		probe:        n.answers,
		startTimeout: o.StartTimeout,
		stopTimeout:  o.StopTimeout,
		log:          o.Log,
	}
}

// answers asks this node, and no other, for its features and for the cluster as it sees it. A node that lists itself has
// been let in by the controller, with all its partitions recovered.
func (n *kafkaNode) answers(ctx context.Context) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(n.broker.address()), kgo.DisableClientMetrics())
	if err != nil {
		return err
	}
	defer client.Close()
	self := client.SeedBrokers()[0]

	features := kmsg.NewPtrApiVersionsRequest()
	features.ClientSoftwareName, features.ClientSoftwareVersion = "kudos-stack", "1" // neither may be empty
	versions, err := features.RequestWith(ctx, self)
	if err != nil {
		return err
	}
	if err := kerr.ErrorForCode(versions.ErrorCode); err != nil {
		return err
	}
	if level := finalized(versions, "transaction.version"); level < transactionVersion {
		return fmt.Errorf("transaction.version is finalized at %d, not yet %d", level, transactionVersion)
	}
	metadata, err := requestMetadata(ctx, self, []kmsg.MetadataRequestTopic{})
	if err != nil {
		return err
	}
	if metadata.ClusterID == nil || *metadata.ClusterID != n.clusterID {
		return errors.New("another cluster answers on this port")
	}
	if !slices.ContainsFunc(metadata.Brokers, func(b kmsg.MetadataResponseBroker) bool { return int(b.NodeID) == n.id }) {
		return errors.New("the controller has not let this broker in yet")
	}
	return nil
}

func finalized(versions *kmsg.ApiVersionsResponse, feature string) int16 {
	for _, f := range versions.FinalizedFeatures {
		if f.Name == feature {
			return f.MaxVersionLevel
		}
	}
	return 0
}

// requestMetadata asks one broker what it knows; topics nil means all of them, empty none.
func requestMetadata(ctx context.Context, broker *kgo.Broker, topics []kmsg.MetadataRequestTopic) (*kmsg.MetadataResponse, error) {
	request := kmsg.NewPtrMetadataRequest()
	request.Topics = topics
	return request.RequestWith(ctx, broker)
}
