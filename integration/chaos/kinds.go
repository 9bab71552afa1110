package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// kind is a kind of fault.
type kind struct {
	name string
	what string // for the report
	// lane: faults of one lane strike one after the other, those of different lanes at the same time.
	lane lane
	// strike does it, and undoes it. An error of missed is a fault that did not come about.
	strike func(context.Context, *fault) error
	// possible is nil, or says whether this machine can do it.
	possible func(*system) bool
}

type lane string

const (
	laneProcessors lane = "processors"
	laneBrokers    lane = "brokers"
	laneDatabase   lane = "database"
	laneNetwork    lane = "network"
	laneLoad       lane = "load"
)

// fault is one fault of a kind.
type fault struct {
	kind   *kind
	number int // seeds random
	random *rand.Rand
	sys    *system
	load   *load

	victim string           // for the log
	shown  map[string]int64 // evidence, by what it is evidence of
}

// errMissed is a fault that could not be brought about, and is tried again later.
var errMissed = errors.New("the fault did not come about")

func missed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errMissed, fmt.Sprintf(format, args...))
}

// between is a random time.
func (f *fault) between(low, high time.Duration) time.Duration {
	return low + time.Duration(f.random.Int64N(int64(high-low)))
}

// on names the victim.
func (f *fault) on(format string, args ...any) {
	f.victim = fmt.Sprintf(format, args...)
	f.sys.log.Info("fault", "kind", f.kind.name, "number", f.number, "on", f.victim)
}

// show adds evidence.
func (f *fault) show(what string, n int64) {
	if f.shown == nil {
		f.shown = map[string]int64{}
	}
	f.shown[what] += n
}

// allKinds are all kinds of fault.
func allKinds() []kind {
	return []kind{
		{name: "processor-kill", lane: laneProcessors, strike: killProcessor, what: "SIGKILL of a processor"},
		{name: "processor-kill-all", lane: laneProcessors, strike: killAllProcessors, what: "SIGKILL of all processors at once"},
		{name: "processor-pause", lane: laneProcessors, strike: pauseProcessor, what: "SIGSTOP of a processor, within and beyond its session timeout"},
		{name: "processor-stop", lane: laneProcessors, strike: stopProcessor, what: "SIGTERM of a processor in the middle of its work"},
		{name: "processor-zombie", lane: laneProcessors, strike: zombie, what: "SIGSTOP within a transaction until the partition has a new owner; the late commit must be refused"},
		{name: "rebalance-storm", lane: laneProcessors, strike: rebalanceStorm, what: "processors that join, leave and die in quick succession"},
		{name: "state-disk-full", lane: laneProcessors, strike: fillDisk, possible: hasDisks, what: "no space left for the local state, with stores closed and opened meanwhile"},
		{name: "state-corrupted", lane: laneProcessors, strike: corruptState, what: "bytes of the local state overwritten or cut off, of a stopped or running processor"},
		{name: "state-deleted", lane: laneProcessors, strike: deleteState, what: "local state deleted, all or some of it, of a dead or running processor"},
		{name: "producer-kill", lane: laneLoad, strike: killProducer, what: "SIGKILL of the HTTP producer"},

		{name: "broker-kill-leader", lane: laneBrokers, strike: brokerFault(killNode, leader), what: "SIGKILL of the broker that leads a partition of likes"},
		{name: "broker-kill-coordinator", lane: laneBrokers, strike: brokerFault(killNode, coordinator), what: "SIGKILL of a transaction coordinator"},
		{name: "broker-kill-controller", lane: laneBrokers, strike: brokerFault(killNode, controller), what: "SIGKILL of the active controller"},
		{name: "broker-kill-all", lane: laneBrokers, strike: killAllBrokers, what: "SIGKILL of all brokers at once"},
		{name: "broker-pause-leader", lane: laneBrokers, strike: brokerFault(pauseNode, leader), what: "SIGSTOP of the broker that leads a partition of likes"},
		{name: "broker-pause-coordinator", lane: laneBrokers, strike: brokerFault(pauseNode, coordinator), what: "SIGSTOP of a transaction coordinator"},
		{name: "broker-pause-controller", lane: laneBrokers, strike: brokerFault(pauseNode, controller), what: "SIGSTOP of the active controller"},
		{name: "broker-pause-all", lane: laneBrokers, strike: pauseAllBrokers, what: "SIGSTOP of all brokers at once"},

		{name: "mysql-kill", lane: laneDatabase, strike: killMySQL, what: "SIGKILL of the MariaDB primary"},
		{name: "mysql-pause", lane: laneDatabase, strike: pauseMySQL, what: "SIGSTOP of the MariaDB primary"},
		{name: "mysql-failover", lane: laneDatabase, strike: failover, what: "failover to a replica that misses the last transactions"},
		{name: "mysql-locks", lane: laneDatabase, strike: lockRows, what: "locks held on count rows, or on positions"},
		{name: "mysql-reply-lost", lane: laneDatabase, strike: loseReplies, what: "the reply lost exactly at COMMIT, after the server committed"},
		{name: "mysql-latency", lane: laneDatabase, possible: hasSockets, strike: mysqlNetwork(latency), what: "latency between processors and MariaDB"},
		{name: "mysql-reset", lane: laneDatabase, possible: hasSockets, strike: mysqlNetwork(reset), what: "connections to MariaDB reset, or cut in the middle of a packet"},
		{name: "mysql-silence", lane: laneDatabase, possible: hasSockets, strike: mysqlNetwork(silence), what: "bytes to or from MariaDB lost, connections left open"},

		{name: "kafka-latency", lane: laneNetwork, possible: hasSockets, strike: kafkaNetwork(latency), what: "latency between processors and brokers"},
		{name: "kafka-reset", lane: laneNetwork, possible: hasSockets, strike: kafkaNetwork(reset), what: "connections to brokers reset, or cut in the middle of a message"},
		{name: "kafka-silence", lane: laneNetwork, possible: hasSockets, strike: kafkaNetwork(silence), what: "bytes to or from brokers lost, connections left open"},

		{name: "events-poison", lane: laneLoad, strike: loadFault(poisonEvents), what: "a burst of records that can be no events"},
		{name: "events-oversized", lane: laneLoad, strike: loadFault(oversizedEvents), what: "a burst of records too large for an event, some for a dead letter"},
		{name: "events-misrouted", lane: laneLoad, strike: loadFault(misroutedEvents), what: "a burst of events in wrong partitions"},
		{name: "events-future", lane: laneLoad, strike: loadFault(futureEvents), what: "a burst of events with times that have not come"},
	}
}

// Kinds are the names of all kinds of fault.
func Kinds() []string {
	var names []string
	for _, k := range allKinds() {
		names = append(names, k.name)
	}
	return names
}
