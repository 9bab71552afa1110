package chaos

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// This file is the faults that operators cause on purpose, and the takeover by standby replicas.

// upgrade replaces all processors, one after the other, by the other version if there is one.
func upgrade(ctx context.Context, f *fault) error {
	f.on("all processors, one after the other")
	for _, u := range f.sys.processors {
		if err := u.replace(ctx); err != nil {
			return err
		}
		f.show("processors replaced in rolling upgrades", 1)
	}
	return nil
}

func (u *unit) replace(ctx context.Context) error {
	u.held.Lock()
	defer u.held.Unlock()
	if err := u.Stop(); err != nil {
		return missed("stopping %v: %v", u, err)
	}
	u.Server, u.other = u.other, u.Server
	if err := u.Start(ctx); err != nil {
		return err
	}
	if err := u.awaitWork(ctx, atWorkTimeout); err != nil {
		return missed("%v", err)
	}
	return nil
}

var following = regexp.MustCompile(`(?m)^kudos_standby_copies\{.*state="following".* (\d+)$`)

// killFollowed kills a processor while the others have replicas of its partitions.
func killFollowed(ctx context.Context, f *fault, u *unit) error {
	replicas := 0
	for _, other := range f.sys.processors {
		_, metrics := other.get(ctx, "/metrics")
		for _, line := range following.FindAllStringSubmatch(metrics, -1) {
			n, _ := strconv.Atoi(line[1])
			replicas += n
		}
	}
	if replicas < int(f.sys.opts.Partitions) {
		return missed("%d replicas follow", replicas)
	}
	f.show("standby replicas that followed when a processor was killed", int64(replicas))
	return killOne(ctx, f, u)
}

// repartition changes the user buckets of posts without reactions: all partitions stop for a new layout and resume, but
// nothing moves, so that the oracle need not know when. It is run again until it succeeds.
func repartition(ctx context.Context, f *fault) error {
	buckets := fmt.Sprintf("%d:%d", neverLiked+1+f.random.Uint64N(1000), 2+f.random.IntN(15))
	f.on("user buckets %s", buckets)
	defer f.away()() // counting pauses meanwhile
	for {
		err := f.sys.kudos(ctx, "topics", "repartition", "--yes", "--set", "topics.replication_factor=3",
			"--set", fmt.Sprintf("topics.partitions=%d", f.sys.opts.Partitions), "--set", "topics.user_buckets="+buckets,
			"--brokers", strings.Join(f.sys.network.brokerList(), ","), "--mysql-dsn", f.sys.dsn())
		f.show("runs of kudos topics repartition, with failed ones", 1)
		if err == nil {
			f.show("changes of the partition layout", 1)
			return nil
		}
		if e := wait(ctx, time.Second); e != nil {
			return fmt.Errorf("%w: %w", e, err)
		}
	}
}
