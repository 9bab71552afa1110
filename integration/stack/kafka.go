package stack

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// KafkaOptions describe a cluster. The zero value is one node with the defaults below.
type KafkaOptions struct {
	// Dir is where the cluster makes its data directory, which Close removes. Default: the system's temporary directory.
	Dir string
	// Keep leaves the data and logs in place after Close.
	Keep bool
	// Nodes is 1 or 3, each of them broker and controller. Default: 1.
	Nodes int
	// Heap is each node's maximal Java heap, as in -Xmx. Default: 512m for one node, 384m for three.
	Heap string
	// Fronted gives each node a second listener, whose clients are told to come by way of another address: see Fronts.
	Fronted bool
	// Secure gives each node another listener, for clients with certificates of this authority, who log in by SCRAM and may
	// do what ACLs allow: see Kafka.Secure. Not together with Fronted.
	Secure *Authority
	// ExtraProperties are added to each node's server.properties and win over what this package sets.
	ExtraProperties map[string]string
	// StartTimeout and StopTimeout bound Start and Stop of a node. Defaults: DefaultStartTimeout, DefaultStopTimeout.
	StartTimeout, StopTimeout time.Duration
	// Log tells of starts and ends. Default: nothing.
	Log *slog.Logger
}

var heapSize = regexp.MustCompile(`^[1-9][0-9]*[kmg]$`)

// Validate says what is wrong with the options.
func (o KafkaOptions) Validate() error {
	switch {
	case o.Nodes != 0 && o.Nodes != 1 && o.Nodes != 3:
		return fmt.Errorf("kafka: nodes %d: give 1 or 3", o.Nodes)
	case o.Heap != "" && !heapSize.MatchString(o.Heap):
		return fmt.Errorf("kafka: heap %q: give a size as -Xmx takes it, such as 512m", o.Heap)
	case o.Secure != nil && o.Fronted:
		return errors.New("kafka: a secure cluster has no fronts")
	case o.StartTimeout < 0 || o.StopTimeout < 0:
		return fmt.Errorf("kafka: start timeout %v, stop timeout %v: neither may be negative", o.StartTimeout, o.StopTimeout)
	}
	for name, value := range o.ExtraProperties {
		if strings.ContainsAny(name+value, "\n\r\\") {
			return fmt.Errorf("kafka: extra property %q: line breaks and backslashes are not supported", name)
		}
	}
	return nil
}

func (o KafkaOptions) withDefaults() KafkaOptions {
	if o.Nodes == 0 {
		o.Nodes = 1
	}
	if o.Heap == "" {
		o.Heap = "512m"
		if o.Nodes > 1 {
			o.Heap = "384m"
		}
	}
	if o.StartTimeout == 0 {
		o.StartTimeout = DefaultStartTimeout
	}
	if o.StopTimeout == 0 {
		o.StopTimeout = DefaultStopTimeout
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// Kafka is a cluster with ids, ports and data of its own.
type Kafka struct {
	clusterID string
	dir       string
	keep      bool
	nodes     []*kafkaNode
}

// StartKafka formats and starts a new, empty cluster, and returns once every node answers, knows all the others and has
// transaction.version 2 finalized. ctx bounds the start only. Jars that this machine does not have yet are fetched.
func StartKafka(ctx context.Context, options KafkaOptions) (_ *Kafka, err error) {
	if err := options.Validate(); err != nil {
		return nil, err
	}
	o := options.withDefaults()
	java, err := findJava(ctx)
	if err != nil {
		return nil, err
	}
	jars, err := kafkaArtifact()
	if err != nil {
		return nil, err
	}
	jarDir, err := jars.fetch(ctx, o.Log)
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	dir, err := makeDir(o.Dir, "kudos-kafka-")
	if err != nil {
		return nil, fmt.Errorf("start kafka: %w", err)
	}
	k := &Kafka{clusterID: kafkaUUID(), dir: dir, keep: o.Keep}
	defer func() {
		if err != nil {
			err = errors.Join(err, k.Close())
		}
	}()
	jvm := javaCommand{path: java, classpath: filepath.Join(jarDir, "*"), heap: o.Heap}
	if err := k.prepare(o, jvm); err != nil {
		return nil, fmt.Errorf("prepare kafka in %s: %w", dir, err)
	}
	if err := k.eachNode(func(n *kafkaNode) error { return n.format(ctx, k.initialControllers()) }); err != nil {
		return nil, fmt.Errorf("format kafka: %w", err)
	}
	if err := k.Start(ctx); err != nil {
		return nil, err
	}
	if err := k.waitComplete(ctx); err != nil {
		return nil, err
	}
	o.Log.Info("kafka is up", "brokers", k.Brokers(), "took", time.Since(begin).Round(time.Millisecond))
	return k, nil
}

// prepare gives each node its ports, directory and configuration.
func (k *Kafka) prepare(o KafkaOptions, jvm javaCommand) error {
	for id := range o.Nodes {
		n := &kafkaNode{id: id, dir: filepath.Join(k.dir, fmt.Sprintf("node-%d", id)), directoryID: kafkaUUID(), clusterID: k.clusterID, size: o.Nodes, jvm: jvm}
		k.nodes = append(k.nodes, n)
		var err error
		if n.broker, err = reservePort(); err != nil {
			return err
		}
		if n.controller, err = reservePort(); err != nil {
			return err
		}
		if n.authority = o.Secure; n.authority != nil {
			if n.secure, err = reservePort(); err != nil {
				return err
			}
		}
		if !o.Fronted {
			continue
		}
		n.fronted = true
		if n.behind, err = reservePort(); err != nil {
			return err
		}
		if n.front, err = reservePort(); err != nil {
			return err
		}
	}
	for _, n := range k.nodes {
		if err := n.writeConfiguration(k.controllers(), o.ExtraProperties); err != nil {
			return err
		}
		n.Server = n.newServer(o)
	}
	return nil
}

// controllers are the addresses that the nodes find each other by.
func (k *Kafka) controllers() []string {
	var addresses []string
	for _, n := range k.nodes {
		addresses = append(addresses, n.controller.address())
	}
	return addresses
}

// initialControllers is the first voter set of the metadata quorum, as kafka-storage takes it (KIP-853).
func (k *Kafka) initialControllers() string {
	var voters []string
	for _, n := range k.nodes {
		voters = append(voters, fmt.Sprintf("%d@%s:%s", n.id, n.controller.address(), n.directoryID))
	}
	return strings.Join(voters, ",")
}

// eachNode does something to all nodes at once: a node of three answers only when another one runs, too.
func (k *Kafka) eachNode(do func(*kafkaNode) error) error {
	var group errgroup.Group
	for _, n := range k.nodes {
		group.Go(func() error { return do(n) })
	}
	return group.Wait()
}

// Start starts every node that is down and returns once each of them answers.
func (k *Kafka) Start(ctx context.Context) error {
	return k.eachNode(func(n *kafkaNode) error {
		if n.Running() {
			return nil
		}
		return n.Start(ctx)
	})
}

// Kill kills every node that runs, as Server.Kill does.
func (k *Kafka) Kill() error {
	return k.eachNode(func(n *kafkaNode) error {
		if !n.Running() {
			return nil
		}
		return n.Kill()
	})
}

// Brokers are the addresses of all nodes, for a client's bootstrap list.
func (k *Kafka) Brokers() []string {
	var addresses []string
	for _, n := range k.nodes {
		addresses = append(addresses, n.broker.address())
	}
	return addresses
}

// Front is where a proxy is to stand: it listens at Address, which is free, and brings what comes to the broker's second
// listener, Behind. Clients that come through it are told of the other brokers' fronts, and of nothing else.
type Front struct {
	Node            int
	Address, Behind string
}

// Fronts are the places for proxies in front of a cluster that was started with Fronted.
func (k *Kafka) Fronts() []Front {
	var fronts []Front
	for _, n := range k.nodes {
		if n.fronted {
			fronts = append(fronts, Front{Node: n.id, Address: n.front.address(), Behind: n.behind.address()})
		}
	}
	return fronts
}

// Node is the node with that broker id; ids count from 0.
func (k *Kafka) Node(id int) *Server { return k.nodes[id].Server }

// Nodes are all nodes, ordered by broker id.
func (k *Kafka) Nodes() []*Server {
	var servers []*Server
	for _, n := range k.nodes {
		servers = append(servers, n.Server)
	}
	return servers
}

// ClusterID is the id that this cluster, and no other, was formatted with.
func (k *Kafka) ClusterID() string { return k.clusterID }

// Dir is where data and logs are: node-<id>/data and node-<id>/server.log.
func (k *Kafka) Dir() string { return k.dir }

// Close kills all nodes and removes their data. It may be called more than once.
func (k *Kafka) Close() error {
	var errs []error
	for _, n := range k.nodes {
		if n.Server != nil {
			n.end()
		}
		errs = append(errs, n.broker.release(), n.controller.release(), n.behind.release(), n.front.release(), n.secure.release())
	}
	if !k.keep {
		errs = append(errs, os.RemoveAll(k.dir))
	}
	return errors.Join(errs...)
}

// kafkaUUID is a random id in Kafka's form: 16 bytes in URL-safe base64.
func kafkaUUID() string {
	for {
		var id [16]byte
		rand.Read(id[:]) // never fails (crypto/rand)
		// One that begins with a dash would be taken for an option on a command line.
		if text := base64.RawURLEncoding.EncodeToString(id[:]); text[0] != '-' {
			return text
		}
	}
}

// javaCommand is how a Java program of Kafka is run.
type javaCommand struct {
	path      string
	classpath string
	heap      string
}

func (j javaCommand) args(class string, args ...string) []string {
	flags := []string{
		"-Xmx" + j.heap,
		// The quick compiler only. A node starts with 2 s of CPU instead of 3.3, and in the minutes that a test lasts the
		// optimizing one does not earn its cost: some 1.2 million records a second either way, for less CPU without it.
		"-XX:TieredStopAtLevel=1",
		"-XX:+UseSerialGC", // cheapest to start and smallest, and pauses of such a heap are short
		"-XX:-UsePerfData", // no statistics file in the system's temporary directory
		"-XX:+ExitOnOutOfMemoryError",
		"-Djava.awt.headless=true",
		"-Dlog4j2.configurationFile=log4j2.properties",
		"-cp", j.classpath,
	}
	return slices.Concat(flags, []string{class}, args)
}

// javaRelease is the oldest Java that Kafka 4 brokers run on.
const javaRelease = 17

// findJava returns the java to use: JAVA_HOME's, else the one in PATH.
func findJava(ctx context.Context) (string, error) {
	java := filepath.Join(os.Getenv("JAVA_HOME"), "bin", "java")
	if os.Getenv("JAVA_HOME") == "" {
		var err error
		if java, err = exec.LookPath("java"); err != nil {
			return "", fmt.Errorf("find Java: %w; %s", err, installHint)
		}
	}
	out, err := exec.CommandContext(ctx, java, "-version").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("ask %s for its version: %w", java, err)
	}
	_, version, _ := strings.Cut(string(out), `version "`)
	var release int
	_, _ = fmt.Sscanf(version, "%d", &release) // zero if it does not say
	if release < javaRelease {
		return "", fmt.Errorf("java %d or later is what Kafka needs, %s says %q; %s", javaRelease, java, strings.TrimSpace(string(out)), installHint)
	}
	return java, nil
}
