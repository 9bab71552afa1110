package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

type kind struct {
	name string
	lane lane // faults of one lane strike sequentially, those of different lanes concurrently
	// strike injects the fault and undoes it. An error of missed means that the fault could not be injected.
	strike   func(context.Context, *fault) error
	what     string             // for the report
	possible func(*system) bool // whether this machine supports the kind; nil: every machine does
}

type lane int

const (
	laneProcessors lane = iota
	laneReaders
	laneFollowers // rankers and the archive
	laneBrokers
	laneDatabase
	laneNetwork
	laneLoad
)

type fault struct {
	kind   *kind
	number int // seeds random
	random *rand.Rand
	sys    *system
	load   *load

	victim string           // for the log
	shown  map[string]int64 // evidence of effects, counted by description
	err    error            // of strike
}

// errMissed means that a fault could not be injected; it is tried again later.
var errMissed = errors.New("the fault could not be injected")

func missed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errMissed, fmt.Sprintf(format, args...))
}

func (f *fault) between(low, high time.Duration) time.Duration {
	return low + time.Duration(f.random.Int64N(int64(high-low)))
}

func (f *fault) on(format string, args ...any) {
	f.victim = fmt.Sprintf(format, args...)
	f.sys.log.Info("fault", "kind", f.kind.name, "number", f.number, "on", f.victim)
}

// away says that a server which every partition needs is away, until back is called.
func (f *fault) away() (back func()) { return f.sys.watch.struck(f.kind.name, 1) }

func (f *fault) show(what string, n int64) { f.shown[what] += n }

var allKinds = []*kind{
	{"processor-kill", laneProcessors, onOne("processor", killOne), "SIGKILL of a processor", nil},
	{"processor-kill-all", laneProcessors, killAll("processor"), "SIGKILL of all processors at once", nil},
	{"processor-pause", laneProcessors, onOne("processor", pauseOne),
		"SIGSTOP of a processor, within and beyond its session timeout", nil},
	{"processor-stop", laneProcessors, onOne("processor", stopOne), "SIGTERM of a working processor", nil},
	{"processor-zombie", laneProcessors, onOne("processor", zombie),
		"SIGSTOP within a transaction until the partition has a new owner; what it sends late must be rejected", nil},
	{"rebalance-storm", laneProcessors, rebalanceStorm, "processors that join, leave and die in quick succession", nil},
	{"processor-upgrade", laneProcessors, upgrade, "all processors replaced, one after the other", nil},
	{"standby-takeover", laneProcessors, onOne("processor", killFollowed),
		"SIGKILL of a processor whose partitions have standby replicas", nil},
	{"repartition", laneLoad, repartition, "`kudos topics repartition` while events and other faults arrive", nil},
	{"void", laneLoad, voidUsers, "`kudos void users` and `kudos unvoid users` while events and other faults arrive",
		canVoid},
	{"state-disk-full", laneProcessors, onOne("processor", fillDisk),
		"no space left for the local state while stores are closed and opened", hasDisks},
	{"state-corrupted", laneProcessors, onOne("processor", corruptState),
		"local state overwritten or truncated, of a stopped or running processor", nil},
	{"state-deleted", laneProcessors, onOne("processor", deleteState),
		"some or all local state deleted, of a dead or running processor", nil},
	{"reader-kill", laneReaders, onOne("reader", killOne), "SIGKILL of a reader", nil},
	{"reader-kill-all", laneReaders, killAll("reader"), "SIGKILL of all readers at once", nil},
	{"reader-pause", laneReaders, onOne("reader", pauseOne),
		"SIGSTOP of a reader, within and beyond its session timeout", nil},
	{"reader-stop", laneReaders, onOne("reader", stopOne), "SIGTERM of a reader", nil},
	{"reader-disk-lost", laneReaders, onOne("reader", loseDisk),
		"all local state of a reader deleted while it is down", nil},
	{"reader-state-corrupted", laneReaders, onOne("reader", corruptState),
		"local state of a reader overwritten or truncated while it is down", nil},
	{"reader-state-deleted", laneReaders, onOne("reader", deleteSome),
		"some local state of a reader deleted while it is down", nil},
	{"ranker-kill", laneFollowers, onOne("ranker", killOne), "SIGKILL of a ranker", nil},
	{"ranker-pause", laneFollowers, onOne("ranker", pauseOne),
		"SIGSTOP of a ranker, within and beyond its session timeout", nil},
	{"ranker-disk-lost", laneFollowers, onOne("ranker", loseDisk),
		"all local state of a ranker deleted while it is down", nil},
	{"archive-kill", laneFollowers, onOne("archive", killOne), "SIGKILL of the archive", nil},
	{"producer-kill", laneLoad, onOne("producer", killProducer), "SIGKILL of the HTTP producer", nil},

	{"broker-kill-leader", laneBrokers, brokerFault(killNode, leader),
		"SIGKILL of the broker that leads a partition of likes", nil},
	{"broker-kill-coordinator", laneBrokers, brokerFault(killNode, coordinator),
		"SIGKILL of a transaction coordinator", nil},
	{"broker-kill-controller", laneBrokers, brokerFault(killNode, controller), "SIGKILL of the active controller", nil},
	{"broker-kill-all", laneBrokers, killAllBrokers, "SIGKILL of all brokers at once", nil},
	{"broker-pause-leader", laneBrokers, brokerFault(pauseNode, leader),
		"SIGSTOP of the broker that leads a partition of likes", nil},
	{"broker-pause-coordinator", laneBrokers, brokerFault(pauseNode, coordinator),
		"SIGSTOP of a transaction coordinator", nil},
	{"broker-pause-controller", laneBrokers, brokerFault(pauseNode, controller),
		"SIGSTOP of the active controller", nil},
	{"broker-pause-all", laneBrokers, pauseAllBrokers, "SIGSTOP of all brokers at once", nil},

	{"mysql-kill", laneDatabase, killMySQL, "SIGKILL of the MariaDB primary", nil},
	{"mysql-pause", laneDatabase, pauseMySQL, "SIGSTOP of the MariaDB primary", nil},
	{"mysql-failover", laneDatabase, failover, "failover to a replica that lacks the last transactions", nil},
	{"mysql-locks", laneDatabase, lockRows, "row locks held on counts or on positions", nil},
	{"mysql-reply-lost", laneDatabase, loseReplies, "the response to COMMIT lost after the server committed", nil},
	{"mysql-latency", laneDatabase, mysqlNetwork(latency), "latency between processors and MariaDB", hasSockets},
	{"mysql-reset", laneDatabase, mysqlNetwork(reset),
		"connections to MariaDB reset, or cut in the middle of a packet", hasSockets},
	{"mysql-silence", laneDatabase, mysqlNetwork(silence),
		"bytes to or from MariaDB lost, connections left open", hasSockets},

	{"kafka-latency", laneNetwork, kafkaNetwork(latency), "latency between processors and brokers", hasSockets},
	{"kafka-reset", laneNetwork, kafkaNetwork(reset),
		"connections to brokers reset, or cut in the middle of a message", hasSockets},
	{"kafka-silence", laneNetwork, kafkaNetwork(silence),
		"bytes to or from brokers lost, connections left open", hasSockets},

	{"events-poison", laneLoad, loadFault("invalid events", 200, 2000, (*generator).malformed),
		"a burst of invalid events", nil},
	{"events-oversized", laneLoad, loadFault("oversized records", 20, 80, (*generator).oversized),
		"a burst of records too large for an event, some even for a dead letter", nil},
	{"events-misrouted", laneLoad, loadFault("misrouted events", 500, 3000, (*generator).astray,
		kgo.RecordPartitioner(kgo.ManualPartitioner())), "a burst of events in the wrong partition", nil},
	{"events-future", laneLoad, loadFault("future-dated events", 200, 2000, (*generator).future),
		"a burst of events dated in the future", nil},
}

// Kinds returns the names of all kinds of fault.
func Kinds() []string {
	var names []string
	for _, k := range allKinds {
		names = append(names, k.name)
	}
	return names
}

// deck deals all kinds of fault in random order, then all again: each comes about equally often, even with few faults.
type deck struct {
	random      *rand.Rand
	kinds, left []*kind
	dealt       int
}

func newDeck(seed uint64, kinds []*kind) *deck {
	return &deck{random: rand.New(rand.NewPCG(seed, 0)), kinds: kinds}
}

func (d *deck) deal(n int) []*fault {
	var faults []*fault
	for range n {
		if len(d.left) == 0 {
			d.left = append(d.left, d.kinds...)
			d.random.Shuffle(len(d.left), func(i, j int) { d.left[i], d.left[j] = d.left[j], d.left[i] })
		}
		k := d.left[0]
		d.left = d.left[1:]
		faults = append(faults, &fault{kind: k, number: d.dealt, shown: map[string]int64{},
			random: rand.New(rand.NewPCG(d.random.Uint64(), d.random.Uint64()))})
		d.dealt++
	}
	return faults
}

func (d *deck) giveBack(k *kind) {
	d.left = append(d.left, k)
	i := d.random.IntN(len(d.left))
	last := len(d.left) - 1
	d.left[i], d.left[last] = d.left[last], d.left[i]
}
