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

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/bench/child"
)

// transactionVersion is the finalized feature level that protects from late messages of earlier transactions (KIP-890).
const transactionVersion = 2

// log4j2Properties logs to standard output, which is the node's log file, so that a crash of the JVM appears in the
// same file. The line-by-line dumps of every configuration are off: they would drown out the rest.
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

// authorizerProperties logs what is allowed to whom; by default only denials are logged.
const authorizerProperties = `logger.authorizer.name = kafka.authorizer.logger
logger.authorizer.level = debug
`

// kafkaNode is one broker and controller. Its directory has the configuration, the log and, under data, its storage.
type kafkaNode struct {
	*Server
	cluster            *Kafka
	id                 int
	dir, directoryID   string
	broker, controller *Reservation
	secure             *Reservation // listener for the authority's clients; nil without an authority
	// The node's second listener and its advertised address; nil without a front.
	behind, front *Reservation
}

func (n *kafkaNode) writeConfiguration() error {
	if err := os.Mkdir(n.dir, 0o755); err != nil {
		return err
	}
	logging := log4j2Properties
	properties := n.properties()
	if n.secure != nil {
		logging += authorizerProperties
		if err := n.addSecure(properties); err != nil {
			return err
		}
	}
	maps.Copy(properties, n.cluster.options.ExtraProperties)
	var text bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		fmt.Fprintf(&text, "%s=%s\n", name, properties[name])
	}
	return errors.Join(os.WriteFile(filepath.Join(n.dir, "log4j2.properties"), []byte(logging), 0o644),
		os.WriteFile(filepath.Join(n.dir, "server.properties"), text.Bytes(), 0o644))
}

// properties is the server.properties: replication as in production, if nodes suffice, and small enough for a laptop.
func (n *kafkaNode) properties() map[string]string {
	replicas := n.cluster.options.Nodes
	inSync, plain := max(1, replicas-1), "PLAINTEXT://"+n.broker.Address()
	controllers := ofNodes(n.cluster, func(n *kafkaNode) string { return n.controller.Address() })
	properties := map[string]string{
		"process.roles":                            "broker,controller",
		"node.id":                                  strconv.Itoa(n.id),
		"controller.quorum.bootstrap.servers":      strings.Join(controllers, ","),
		"controller.listener.names":                "CONTROLLER",
		"listeners":                                plain + ",CONTROLLER://" + n.controller.Address(),
		"listener.security.protocol.map":           "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
		"log.dirs":                                 "data", // in the working directory
		"auto.create.topics.enable":                "false",
		"unclean.leader.election.enable":           "false",
		"default.replication.factor":               strconv.Itoa(replicas),
		"min.insync.replicas":                      strconv.Itoa(inSync),
		"offsets.topic.replication.factor":         strconv.Itoa(replicas),
		"transaction.state.log.replication.factor": strconv.Itoa(replicas),
		"transaction.state.log.min.isr":            strconv.Itoa(inSync),
		// The default of 50 partitions each is most of the start-up time of the first group or transaction.
		"offsets.topic.num.partitions":         "5",
		"transaction.state.log.num.partitions": "5",
		// A killed broker can register only after its session (9 s by default). Less fails on a busy machine.
		"broker.session.timeout.ms": "6000",
		// By default a group's first member waits 3 s for others.
		"group.initial.rebalance.delay.ms": "0",
		// The defaults assume a dedicated machine; the cleaner's buffer would take a quarter of the heap.
		"log.cleaner.dedupe.buffer.size": strconv.Itoa(16 << 20),
		"num.network.threads":            "2",
		"num.io.threads":                 "4",
	}
	if n.front != nil {
		properties["listeners"] += ",FRONTED://" + n.behind.Address()
		properties["advertised.listeners"] = plain + ",FRONTED://" + n.front.Address()
		properties["listener.security.protocol.map"] += ",FRONTED:PLAINTEXT"
		properties["inter.broker.listener.name"] = "PLAINTEXT"
	}
	return properties
}

func (n *kafkaNode) format(ctx context.Context, initialControllers string) error {
	return run(ctx, n.javaCommand(fmt.Sprintf("kafka-storage format of node %d", n.id), "format.log",
		"kafka.tools.StorageTool", "format", "--cluster-id", n.cluster.clusterID,
		"--initial-controllers", initialControllers, "--config", "server.properties"))
}

// quickJava are options of a Java program that starts fast and uses little memory.
func quickJava(heap string) []string {
	return []string{
		"-Xmx" + heap,
		// Use the quick compiler only. A Kafka node then starts with 2 s of CPU instead of 3.3, and the optimizing one
		// does not pay off in the minutes of a test: some 1.2 million records a second either way, with less CPU
		// without it.
		"-XX:TieredStopAtLevel=1",
		"-XX:+UseSerialGC", // the fastest to start and the smallest; pauses are short with such a heap
		"-XX:-UsePerfData", // no statistics file in the system's temporary directory
		"-XX:+ExitOnOutOfMemoryError",
	}
}

func (n *kafkaNode) javaCommand(name, log, class string, args ...string) child.Command {
	heap := "512m"
	if n.cluster.options.Nodes > 1 {
		heap = "384m"
	}
	flags := append(quickJava(heap), "-Djava.awt.headless=true", "-Dlog4j2.configurationFile=log4j2.properties",
		"-cp", n.cluster.classpath, class)
	return child.Command{Name: name, Path: n.cluster.java, Args: append(flags, args...), Dir: n.dir,
		Log: filepath.Join(n.dir, log)}
}

func (n *kafkaNode) alone(do func(*kgo.Broker) error) error {
	client, err := connect(n.broker.Address())
	if err != nil {
		return err
	}
	defer client.Close()
	return do(client.SeedBrokers()[0])
}

// answers asks this node, and no other, for its features and its view of the cluster. A node that lists itself has been
// registered by the controller, and has recovered all its partitions.
func (n *kafkaNode) answers(ctx context.Context) error {
	return n.alone(func(self *kgo.Broker) error {
		features := kmsg.NewPtrApiVersionsRequest()
		features.ClientSoftwareName, features.ClientSoftwareVersion = "kudos-stack", "1" // neither may be empty
		versions, err := features.RequestWith(ctx, self)
		if err != nil {
			return err
		}
		if err := kerr.ErrorForCode(versions.ErrorCode); err != nil {
			return err
		}
		if !slices.ContainsFunc(versions.FinalizedFeatures, func(f kmsg.ApiVersionsResponseFinalizedFeature) bool {
			return f.Name == "transaction.version" && f.MaxVersionLevel >= transactionVersion
		}) {
			return fmt.Errorf("transaction.version is not yet finalized at %d", transactionVersion)
		}
		metadata, err := requestMetadata(ctx, self, []kmsg.MetadataRequestTopic{})
		if err != nil {
			return err
		}
		if metadata.ClusterID == nil || *metadata.ClusterID != n.cluster.clusterID {
			return errors.New("another cluster listens on this port")
		}
		if !slices.ContainsFunc(metadata.Brokers, func(b kmsg.MetadataResponseBroker) bool {
			return int(b.NodeID) == n.id
		}) {
			return errors.New("the controller has not registered this broker yet")
		}
		return nil
	})
}

func connect(brokers ...string) (*kgo.Client, error) {
	return kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.DisableClientMetrics())
}

func requestMetadata(
	ctx context.Context, broker *kgo.Broker, topics []kmsg.MetadataRequestTopic,
) (*kmsg.MetadataResponse, error) {
	request := kmsg.NewPtrMetadataRequest()
	request.Topics = topics
	return request.RequestWith(ctx, broker)
}

// addSecure gives a node a listener for SASL clients with certificates of the authority, which may do only what ACLs
// allow. The plain listener stays, for setting up the cluster: all its clients are super users.
func (n *kafkaNode) addSecure(properties map[string]string) error {
	own, err := n.cluster.options.Secure.Issue(fmt.Sprintf("kafka-%d", n.id))
	if err != nil {
		return fmt.Errorf("issue a certificate: %w", err)
	}
	properties["listeners"] += ",SECURE://" + n.secure.Address()
	properties["listener.security.protocol.map"] += ",SECURE:SASL_SSL"
	properties["inter.broker.listener.name"] = "PLAINTEXT"
	properties["authorizer.class.name"] = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
	properties["allow.everyone.if.no.acl.found"] = "false"
	properties["super.users"] = "User:ANONYMOUS"
	const scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
	for name, value := range map[string]string{
		"ssl.keystore.type":              "PEM",
		"ssl.keystore.location":          own.Both,
		"ssl.truststore.type":            "PEM",
		"ssl.truststore.location":        n.cluster.options.Secure.CA(),
		"ssl.client.auth":                "required",
		"sasl.enabled.mechanisms":        "SCRAM-SHA-256,SCRAM-SHA-512",
		"scram-sha-256.sasl.jaas.config": scram,
		"scram-sha-512.sasl.jaas.config": scram,
	} {
		properties["listener.name.secure."+name] = value // in lower case, unlike the listener's name
	}
	return nil
}

// Secure are the addresses of the secure listeners, if the cluster was started with Secure.
func (k *Kafka) Secure() []string {
	return ofNodes(k, func(n *kafkaNode) string { return n.secure.Address() })
}

// AddUsers creates users for SCRAM-SHA-512 with their passwords. It takes a moment until they can log in.
func (k *Kafka) AddUsers(ctx context.Context, passwords map[string]string) error {
	client, err := connect(k.Brokers()...)
	if err != nil {
		return fmt.Errorf("add users: %w", err)
	}
	defer client.Close()
	var users []kadm.UpsertSCRAM
	for name, password := range passwords {
		users = append(users, kadm.UpsertSCRAM{User: name, Mechanism: kadm.ScramSha512, Iterations: 4096,
			Password: password})
	}
	altered, err := kadm.NewClient(client).AlterUserSCRAMs(ctx, nil, users)
	if err := errors.Join(err, altered.Error()); err != nil {
		return fmt.Errorf("add users: %w", err)
	}
	return nil
}
