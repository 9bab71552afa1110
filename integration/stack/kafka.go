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
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// KafkaOptions configure a cluster. The zero value is one node with the defaults below.
type KafkaOptions struct {
	// Dir is where the data directory is created; Close removes it. Default: the system's temporary directory.
	Dir   string
	Keep  bool // data and logs after Close
	Nodes int  // 1 or 3, each is broker and controller; default: 1
	Disks bool // each node's data is on its own Disk
	// Fronted gives each node a second listener, with the address of a proxy as its advertised listener: see Fronts.
	Fronted bool
	// Secure gives each node another listener, for clients with certificates of this authority, SCRAM authentication
	// and ACLs: see Kafka.Secure. It cannot be combined with Fronted.
	Secure *Authority
	// ExtraProperties are added to each node's server.properties and override this package's settings.
	ExtraProperties map[string]string
	Log             *slog.Logger // of starts and ends; default: none
}

// Validate returns an error if the options are invalid.
func (o KafkaOptions) Validate() error {
	switch {
	case o.Nodes != 0 && o.Nodes != 1 && o.Nodes != 3:
		return fmt.Errorf("kafka: nodes is %d, must be 1 or 3", o.Nodes)
	case o.Secure != nil && o.Fronted:
		return errors.New("kafka: Secure and Fronted cannot be combined")
	}
	for name, value := range o.ExtraProperties {
		if strings.ContainsAny(name+value, "\n\r\\") {
			return fmt.Errorf("kafka: extra property %q: line breaks and backslashes are not supported", name)
		}
	}
	return nil
}

// Kafka is a cluster with its own ids, ports and data.
type Kafka struct {
	options        KafkaOptions
	clusterID, dir string
	java           string // path of the program
	classpath      string
	nodes          []*kafkaNode
}

// StartKafka formats and starts a new, empty cluster. It returns once every node answers, knows all others and has
// finalized transaction.version 2. ctx bounds the start only. Missing jars are downloaded.
func StartKafka(ctx context.Context, o KafkaOptions) (_ *Kafka, err error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o.Nodes, o.Log = max(1, o.Nodes), orSilent(o.Log)
	k := &Kafka{options: o, clusterID: kafkaUUID()}
	if k.java, err = findJava(ctx); err != nil {
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
	k.classpath = filepath.Join(jarDir, "*")
	begin := time.Now()
	if k.dir, err = makeDir(o.Dir, "kudos-kafka-"); err != nil {
		return nil, fmt.Errorf("start kafka: %w", err)
	}
	defer CloseOnError(&err, k.Close)
	if err := k.prepare(); err != nil {
		return nil, fmt.Errorf("prepare kafka in %s: %w", k.dir, err)
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

func (k *Kafka) prepare() error {
	var errs []error
	reserve := func(wanted bool) *Reservation {
		if !wanted {
			return nil
		}
		r, err := Reserve()
		errs = append(errs, err)
		return r
	}
	for id := range k.options.Nodes {
		k.nodes = append(k.nodes, &kafkaNode{
			cluster: k, id: id, dir: filepath.Join(k.dir, fmt.Sprintf("node-%d", id)), directoryID: kafkaUUID(),
			broker: reserve(true), controller: reserve(true), secure: reserve(k.options.Secure != nil),
			behind: reserve(k.options.Fronted), front: reserve(k.options.Fronted),
		})
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, n := range k.nodes {
		if err := n.writeConfiguration(); err != nil {
			return err
		}
		name := fmt.Sprintf("kafka node %d", n.id)
		n.Server = &Server{command: n.javaCommand(name, "server.log", "kafka.Kafka", "server.properties"),
			probe: n.answers, log: k.options.Log}
		if k.options.Disks {
			var err error
			if n.disk, err = NewDisk(filepath.Join(n.dir, "data")); err != nil {
				return err
			}
		}
	}
	return nil
}

func ofNodes[T any](k *Kafka, of func(*kafkaNode) T) []T {
	var list []T
	for _, n := range k.nodes {
		list = append(list, of(n))
	}
	return list
}

// initialControllers is the first voter set of the metadata quorum, in the format of kafka-storage (KIP-853).
func (k *Kafka) initialControllers() string {
	return strings.Join(ofNodes(k, func(n *kafkaNode) string {
		return fmt.Sprintf("%d@%s:%s", n.id, n.controller.Address(), n.directoryID)
	}), ",")
}

// eachNode runs do for all nodes concurrently: one node of three answers only if another one runs too.
func (k *Kafka) eachNode(do func(*kafkaNode) error) error {
	var group errgroup.Group
	for _, n := range k.nodes {
		group.Go(func() error { return do(n) })
	}
	return group.Wait()
}

// Start starts every node that is down, and returns once all of them answer.
func (k *Kafka) Start(ctx context.Context) error {
	return k.eachNode(func(n *kafkaNode) error {
		if n.Running() {
			return nil
		}
		return n.Start(ctx)
	})
}

// Kill kills every running node, like Server.Kill.
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
	return ofNodes(k, func(n *kafkaNode) string { return n.broker.Address() })
}

// Front is where to run a proxy: it listens on Address, which is free, and forwards to Behind, the broker's second
// listener. Its clients see only the addresses of the fronts.
type Front struct {
	Node            int
	Address, Behind string
}

// Fronts are the proxy addresses of a cluster that was started with Fronted.
func (k *Kafka) Fronts() []Front {
	return ofNodes(k, func(n *kafkaNode) Front {
		return Front{Node: n.id, Address: n.front.Address(), Behind: n.behind.Address()}
	})
}

// Node returns the node with that broker id; ids start at 0.
func (k *Kafka) Node(id int) *Server { return k.nodes[id].Server }

// Nodes returns all nodes, ordered by broker id.
func (k *Kafka) Nodes() []*Server { return ofNodes(k, func(n *kafkaNode) *Server { return n.Server }) }

// ClusterID is the cluster's unique id.
func (k *Kafka) ClusterID() string { return k.clusterID }

// Dir is the directory of data and logs: node-<id>/data and node-<id>/server.log.
func (k *Kafka) Dir() string { return k.dir }

// Close kills all nodes and removes their data. It may be called more than once.
func (k *Kafka) Close() error {
	var errs []error
	for _, n := range k.nodes {
		if n.Server != nil {
			errs = append(errs, n.end())
		}
		for _, port := range []*Reservation{n.broker, n.controller, n.secure, n.behind, n.front} {
			errs = append(errs, port.Release())
		}
	}
	if !k.options.Keep {
		errs = append(errs, os.RemoveAll(k.dir))
	}
	return errors.Join(errs...)
}

// kafkaUUID returns a random id in Kafka's format: 16 bytes in URL-safe base64.
func kafkaUUID() string {
	for {
		var id [16]byte
		rand.Read(id[:]) // never fails (crypto/rand)
		// With a leading dash it would be taken for a command-line option.
		if text := base64.RawURLEncoding.EncodeToString(id[:]); text[0] != '-' {
			return text
		}
	}
}

// javaRelease is the oldest Java release that Kafka 4 brokers support.
const javaRelease = 17

func findJava(ctx context.Context) (string, error) {
	java := filepath.Join(os.Getenv("JAVA_HOME"), "bin", "java")
	if os.Getenv("JAVA_HOME") == "" {
		var err error
		if java, err = find("java", "Java"); err != nil {
			return "", err
		}
	}
	out, err := exec.CommandContext(ctx, java, "-version").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("read the version of %s: %w", java, err)
	}
	_, version, _ := strings.Cut(string(out), `version "`)
	var release int
	_, _ = fmt.Sscanf(version, "%d", &release) // zero if unknown
	if release < javaRelease {
		return "", fmt.Errorf("java %d or later is required by Kafka, but %s is %q; %s",
			javaRelease, java, strings.TrimSpace(string(out)), installHint)
	}
	return java, nil
}
