package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"kudos/schema"
)

// atWorkTimeout bounds the wait for a started process's partitions: without any, a fault would hardly affect it.
const atWorkTimeout = 25 * time.Second

// onOne strikes a process that has partitions, and locks out other faults meanwhile.
func onOne(role string, strike func(context.Context, *fault, *unit) error) func(context.Context, *fault) error {
	return func(ctx context.Context, f *fault) error {
		units := f.sys.of(role)
		u := units[f.random.IntN(len(units))]
		u.held.Lock()
		defer u.held.Unlock()
		if err := u.awaitWork(ctx, atWorkTimeout); err != nil {
			return missed("%v", err)
		}
		return strike(ctx, f, u)
	}
}

func killOne(ctx context.Context, f *fault, u *unit) error {
	f.on("%v", u)
	if err := u.Kill(); err != nil {
		return missed("%v", err)
	}
	f.show(u.role+"s killed while working", 1)
	return errors.Join(wait(ctx, f.between(0, 4*time.Second)), u.Start(ctx))
}

func killAll(role string) func(context.Context, *fault) error {
	return func(ctx context.Context, f *fault) error {
		units := f.sys.of(role)
		f.on("all %ss", role)
		if role == "processor" {
			defer f.away()()
		}
		for _, u := range units {
			u.held.Lock()
			defer u.held.Unlock()
		}
		var errs []error
		struck := int64(0)
		for _, u := range units {
			if !u.Running() {
				continue
			}
			if u.atWork() {
				struck++
			}
			errs = append(errs, u.Kill())
		}
		f.show(role+"s killed while working", struck)
		errs = append(errs, wait(ctx, f.between(0, 2*time.Second)))
		for _, u := range units {
			errs = append(errs, u.restore(ctx))
		}
		if err := errors.Join(errs...); err != nil {
			return err
		}
		if struck == 0 {
			return missed("none was working")
		}
		return nil
	}
}

func pauseOne(ctx context.Context, f *fault, u *unit) error {
	d := f.between(200*time.Millisecond, 3*sessionTimeout)
	f.on("%v for %v", u, d.Round(time.Millisecond))
	if err := u.Pause(); err != nil {
		return missed("%v", err)
	}
	size := u.logSize()
	if err := errors.Join(wait(ctx, d), u.Resume()); err != nil {
		return err
	}
	if u.role != "processor" {
		f.show(u.role+"s paused while working", 1)
		return nil
	}
	if d > sessionTimeout && u.tells(ctx, size, fencedSoon, gaveUp, assigned) == nil {
		f.show("paused processors that lost their partitions", 1)
	}
	return nil
}

func stopOne(ctx context.Context, f *fault, u *unit) error {
	f.on("%v", u)
	if err := u.Stop(); err != nil {
		return fmt.Errorf("stopping a %s: %w", u.role, err)
	}
	return errors.Join(wait(ctx, f.between(0, 2*time.Second)), u.Start(ctx))
}

func rebalanceStorm(ctx context.Context, f *fault) error {
	n := 2 + f.random.IntN(4)
	f.on("%d starts and stops of guests", n)
	assignments := f.sys.assignments()
	var errs []error
	for range n {
		u := f.sys.guests[f.random.IntN(len(f.sys.guests))]
		switch {
		case !u.Running():
			errs = append(errs, u.Start(ctx))
		case f.random.IntN(2) == 0:
			errs = append(errs, u.Kill())
		default:
			errs = append(errs, u.Stop())
		}
		errs = append(errs, wait(ctx, f.between(100*time.Millisecond, 2500*time.Millisecond)))
	}
	for _, u := range f.sys.guests {
		if u.Running() {
			errs = append(errs, u.Stop())
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	moved := func() bool { return f.sys.assignments() > assignments }
	if err := waitUntil(ctx, atWorkTimeout, "partitions to be reassigned", moved); err != nil {
		return missed("%v", err)
	}
	f.show("partition assignments in rebalance storms", int64(f.sys.assignments()-assignments))
	return nil
}

func (s *system) assignments() (n int) {
	for _, u := range slices.Concat(s.processors, s.guests) {
		n += strings.Count(u.logSince(0), assigned)
	}
	return n
}

const (
	zombieTries = 20
	fencedSoon  = 20 * time.Second // bounds the time until a resumed zombie gives up its partition
	gaveUp      = `"event":"partition_fenced"`
)

// zombie pauses a processor within a transaction until another owns the transaction's partition, and resumes it: what
// it then sends must be rejected. Often the group tells it first that it is no member, and it sends nothing.
func zombie(ctx context.Context, f *fault, u *unit) error {
	var id string
	for try := 0; id == ""; try++ {
		if try == zombieTries {
			return missed("no transaction was open whenever the processor was paused")
		}
		if err := u.Server.Pause(); err != nil { // not counted as one that is struck, yet
			return missed("%v", err)
		}
		var err error
		if id, err = f.sys.openFor(ctx, 250*time.Millisecond); err != nil || id == "" {
			if err := errors.Join(u.Resume(),
				wait(ctx, f.between(20*time.Millisecond, 150*time.Millisecond))); err != nil {
				return err
			}
		}
	}
	u.hit()
	f.on("%v within a transaction of %s", u, id)
	size := u.logSize()
	before, err := f.sys.epoch(ctx, id)
	if err == nil {
		err = waitUntil(ctx, 30*time.Second, "a new owner", func() bool {
			now, err := f.sys.epoch(ctx, id)
			return err == nil && now != before
		})
	}
	if err == nil {
		err = wait(ctx, f.between(0, 2*time.Second))
	}
	if e := u.Resume(); e != nil {
		return e
	}
	if err != nil {
		return missed("%v", err)
	}
	f.show("processors paused within a transaction until its partition had a new owner", 1)
	inIt := "in a transaction of " + id
	rejected := func() bool {
		for line := range strings.Lines(u.logSince(size)) {
			if strings.Contains(line, gaveUp) &&
				(strings.Contains(line, inIt+":") || strings.Contains(line, "committing a transaction of "+id+":")) {
				f.sys.log.Info("zombie rejected", "server", u.String(), "its log", strings.TrimSpace(line))
				return true
			}
		}
		return false
	}
	if waitUntil(ctx, sessionTimeout, "the zombie to be rejected", rejected) == nil {
		f.show("late commits rejected", 1)
	}
	return nil
}

// epoch returns what changes when a transactional id gets a new owner.
func (s *system) epoch(ctx context.Context, id string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	described, err := s.admin.DescribeTransactions(ctx, id)
	if err != nil {
		return "", err
	}
	t := described[id]
	return fmt.Sprint(t.ProducerID, t.ProducerEpoch), t.Err
}

// openFor finds a transaction of the fold that stays open for a duration, "" if there is none.
func (s *system) openFor(ctx context.Context, d time.Duration) (string, error) {
	first, err := s.open(ctx)
	if err != nil || len(first) == 0 {
		return "", err
	}
	if err := wait(ctx, d); err != nil {
		return "", err
	}
	second, err := s.open(ctx)
	for id, since := range second {
		if first[id] == since {
			return id, err
		}
	}
	return "", err
}

func (s *system) open(ctx context.Context) (map[string]int64, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var ids []string
	for p := range s.opts.Partitions {
		ids = append(ids, schema.FoldTransactionalIDs(p)...)
	}
	described, err := s.admin.DescribeTransactions(ctx, ids...)
	if err != nil {
		return nil, err
	}
	since := map[string]int64{}
	described.Each(func(t kadm.DescribedTransaction) {
		if t.Err == nil && t.State == "Ongoing" {
			since[t.TxnID] = t.StartTimestamp
		}
	})
	return since, nil
}

// upgrade replaces all processors, one after the other, by the other version if there is one.
func upgrade(ctx context.Context, f *fault) (err error) {
	f.on("all processors, one after the other")
	for _, u := range f.sys.processors {
		u.held.Lock()
		if e := u.Stop(); e != nil {
			err = missed("%v", e)
		}
		u.Server, u.other = u.other, u.Server
		err = errors.Join(err, u.Start(ctx), u.awaitWork(ctx, strikeTimeout))
		u.held.Unlock()
		f.show("processors replaced in rolling upgrades", 1)
	}
	return err
}

var following = regexp.MustCompile(`(?m)^kudos_standby_copies\{.*state="following".* [1-9]`)

// killFollowed kills a processor while the others have replicas of its partitions.
func killFollowed(ctx context.Context, f *fault, u *unit) error {
	for _, other := range f.sys.processors {
		if _, metrics := other.get("/metrics"); other != u && !following.MatchString(metrics) {
			return missed("%v follows no partition", other)
		}
	}
	f.show("processors killed while the others had standby replicas", 1)
	return killOne(ctx, f, u)
}

// repartition changes the user buckets of posts without reactions: all partitions stop for a new layout and resume, but
// nothing moves, so that the oracle need not know when. It is run again until it succeeds.
func repartition(ctx context.Context, f *fault) error {
	buckets := fmt.Sprintf("%d:%d", neverLiked+1+f.random.Uint64N(1000), 2+f.random.IntN(15))
	f.on("user buckets %s", buckets)
	defer f.away()() // counting pauses meanwhile
	err := f.command(ctx, "runs of kudos topics repartition", "topics", "repartition", "--yes",
		"--set", "topics.replication_factor=3", "--set", fmt.Sprintf("topics.partitions=%d", f.sys.opts.Partitions),
		"--set", "topics.user_buckets="+buckets, "--mysql-dsn", f.sys.dsn())
	if err == nil {
		f.sys.buckets = buckets
	}
	return err
}

// command runs a command of kudos until it succeeds.
func (f *fault) command(ctx context.Context, what string, args ...string) error {
	args = append(args, "--brokers", strings.Join(f.sys.network.brokerList(), ","))
	for tries := int64(1); ; tries++ {
		err := f.sys.kudos(ctx, args...)
		if err == nil {
			f.show(what, tries)
			return nil
		}
		if e := wait(ctx, time.Second); e != nil {
			return fmt.Errorf("%w: %w", e, err)
		}
	}
}

// canVoid: the other version of rolling upgrades may refuse states with voided users.
func canVoid(s *system) bool { return s.opts.Previous == "" }

// voidUsers voids some users, and lets half of them count again.
func voidUsers(ctx context.Context, f *fault) error {
	users := f.random.Perm(shape().Users)[:2+f.random.IntN(40)]
	f.on("%d users", len(users))
	file := filepath.Join(f.sys.opts.Dir, "bots.txt")
	for _, command := range []string{"void", "unvoid"} {
		var list strings.Builder
		for _, user := range users {
			fmt.Fprintln(&list, 1+user)
		}
		if err := os.WriteFile(file, []byte(list.String()), 0o600); err != nil {
			return err
		}
		err := f.command(ctx, "runs of kudos "+command, command, "users", file, "--timeout", "1m",
			"--set", "topics.user_buckets="+f.sys.buckets)
		if err != nil {
			return err
		}
		users = users[:len(users)/2]
	}
	return nil
}
