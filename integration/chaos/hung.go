package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
)

// Kafka 4.2.1 can hang a group coordinator. If its partition of __consumer_offsets has a leader, loses it and has it
// again while the first load still runs, as when all brokers return at once, two loads end in one state machine. It
// notices that it is "out of sync with the underlying log", reloads, times out, and from then on answers all members of
// its groups with NOT_COORDINATOR, although every broker names it as their coordinator.
//
// No client can do anything about that: an operator restarts the broker. So if members are still missing after the time
// that they need, and a broker has logged it, the run restarts that broker and reports it, apart from differences.

var outOfSync = regexp.MustCompile(
	`CoordinatorRuntime: .*__consumer_offsets-\d+ is out of sync with the underlying log`)

// hangs counts the times that a broker noticed it, in its log.
func hangs(log []byte) int { return len(outOfSync.FindAll(log, -1)) }

// restartHung restarts the brokers whose group coordinator hangs since the last call, and says which.
func (r *run) restartHung(ctx context.Context) (said []string, err error) {
	members := slices.Concat(r.sys.processors, r.sys.readers, r.sys.followers)
	if !slices.ContainsFunc(members, func(u *unit) bool { return strings.Contains(u.LogTail(), "NOT_COORDINATOR") }) {
		return nil, nil
	}
	for id, node := range r.sys.kafka.Nodes() {
		log, err := os.ReadFile(node.LogPath())
		if err != nil {
			return said, err
		}
		n := hangs(log)
		if n <= r.hangs[id] {
			continue
		}
		r.hangs[id] = n
		r.opts.Log.Error("a group coordinator hangs in Kafka; restarting its broker", "broker", node)
		said = append(said, fmt.Sprintf("a coordinator of %v", node))
		if err := errors.Join(node.Stop(), node.Start(ctx)); err != nil {
			return said, err
		}
	}
	if len(said) == 0 {
		return nil, nil
	}
	return said, r.sys.inSync(ctx)
}
