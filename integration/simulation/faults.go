package simulation

import (
	"math/rand/v2"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"kudos/integration/crashdisk"
	"kudos/schema"
)

// fault is something that happens around the workers, as often as its weight in the plan.
type fault struct {
	name string
	do   func(*world) bool // false: there was nothing that it could happen to
	// mends: it ends what another fault began.
	mends bool
}

// faults in the order of plan.weights. The first two are no faults, and always happen.
var faults = []fault{
	{"events written", func(w *world) bool { w.write(1 + w.rng.IntN(5)); return true }, false},
	{"time passes", (*world).passTime, false},
	{"group: rebalance", (*world).rebalanceOne, false},
	{"group: lost membership noticed", (*world).noticeOne, false},
	{"process: crash", (*world).crashOne, false},
	{"process: start", func(w *world) bool { return w.startMissing(1) }, true},
	{"process: pause", func(w *world) bool { return w.setPaused(true) }, false},
	{"process: resume", func(w *world) bool { return w.setPaused(false) }, true},
	{"process: disk copied", (*world).snapshotOne, false},
	{"kafka: transaction timed out", func(w *world) bool { return w.kafka.timeOut(pick(w, w.kafka.coordinators...)) }, false},
	{"kafka: late markers", func(w *world) bool { return w.kafka.mark(pick(w, w.kafka.coordinators...)) }, false},
	{"kafka: late request", (*world).arriveLate, false},
	{"kafka: late offset", func(w *world) bool { return w.kafka.materialize(w.partition()) }, false},
	{"kafka: state table compacted", (*world).compactState, false},
	{"kafka: updates compacted", (*world).compactUpdates, false},
	{"kafka: start of likes deleted", (*world).trimLikes, false},
	{"kafka: leader elected", (*world).electOne, false},
	{"mysql: failover", func(w *world) bool { w.mysql.failover(w.rng.IntN(keptCommits + 1)); return true }, false},
	{"mysql: away", func(w *world) bool { return w.mysqlAway(true) }, false},
	{"mysql: back", func(w *world) bool { return w.mysqlAway(false) }, true},
	{"mysql: session killed", (*world).killSession, false},
	{"mysql: late COMMIT decided", (*world).decideLate, false},
}

// happen lets one thing happen.
func (w *world) happen() {
	n := w.rng.IntN(w.plan.weight)
	for i, weight := range w.plan.weights {
		if n -= weight; n < 0 {
			w.note("# %s", faults[i].name)
			if faults[i].do(w) {
				w.tally[faults[i].name]++
			}
			return
		}
	}
}

func (w *world) partition() int32 { return w.rng.Int32N(w.plan.partitions) }

func (w *world) passTime() bool {
	w.advance(pick(w, 10*time.Millisecond, 100*time.Millisecond, 1100*time.Millisecond, 1100*time.Millisecond,
		6*time.Second, 25*time.Second, 61*time.Second))
	for _, co := range w.kafka.coordinators {
		if co.txn != nil && now()-co.txn.began > 31_000 {
			w.kafka.timeOut(co)
		}
	}
	return true
}

func (w *world) rebalanceOne() bool {
	pick(w, w.groups...).wanted = true
	return true
}

func (w *world) noticeOne() bool {
	return len(w.processes) > 0 && pick(w, w.groups...).notice(pick(w, w.processes...))
}

func (w *world) crashOne() bool {
	if len(w.processes) == 0 {
		return false
	}
	w.crash(pick(w, w.processes...))
	return true
}

// crash ends a process in the middle of whatever it does. What it had not written to disk
// is lost, or also what the disk had not synced; or the disk is.
func (w *world) crash(p *process) {
	w.note("%s crashes", p.name)
	kept := 100
	if w.rng.IntN(2) == 0 {
		kept = 0
	}
	disk := copyDisk(p.disk, kept)
	switch {
	case w.rng.IntN(4) == 0:
		w.count("process: disk lost")
		disk = crashdisk.New()
	case p.old != nil && w.rng.IntN(2) == 0:
		w.count("process: disk restored from an old copy")
		disk = p.old
	}
	w.plan.disks = append(w.plan.disks, disk)
	w.halt(p)
}

// copyDisk is what is left of a disk after a crash: all of what had not been synced, or
// nothing of it. (The dice that the file system asks for have no say in either.)
func copyDisk(disk *crashdisk.Disk, unsynced int) *crashdisk.Disk {
	return disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: unsynced, RNG: rand.New(rand.NewPCG(0, 0))})
}

// halt ends a process at once.
func (w *world) halt(p *process) {
	p.dead = true
	for _, c := range append([]*conn(nil), w.mysql.conns...) {
		if c.proc == p && (w.calm || w.rng.IntN(3) > 0) { // else the server does not know yet
			c.broken = true
			if !contains(w.mysql.late, c) {
				c.leave()
			}
		}
	}
	for _, s := range p.sessions {
		if s != nil {
			s.stop()
		}
	}
	for _, a := range append([]*actor(nil), w.actors...) {
		if a.proc == p {
			w.let(a)
			if !a.done {
				w.fail("%s does not end with its process", a.name)
			}
		}
	}
	p.end()
}

func contains[T comparable](list []T, x T) bool {
	for _, y := range list {
		if x == y {
			return true
		}
	}
	return false
}

// startMissing starts processes in the place of those that are gone.
func (w *world) startMissing(n int) (any bool) {
	for ; n > 0 && len(w.processes) < w.plan.processes; n-- {
		disk := crashdisk.New()
		if k := len(w.plan.disks); k > 0 && !w.plan.wipe {
			disk, w.plan.disks = w.plan.disks[k-1], w.plan.disks[:k-1]
		}
		p := w.start(disk)
		w.note("%s starts", p.name)
		for _, g := range w.groups {
			g.wanted = true
		}
		any = true
	}
	return any
}

// setPaused has a process stand still, or go on.
func (w *world) setPaused(paused bool) bool {
	var fit []*process
	for _, p := range w.processes {
		if p.paused != paused {
			fit = append(fit, p)
		}
	}
	if len(fit) == 0 {
		return false
	}
	p := pick(w, fit...)
	p.paused = paused
	w.note("%s paused: %v", p.name, paused)
	return true
}

func (w *world) snapshotOne() bool {
	if len(w.processes) == 0 {
		return false
	}
	p := pick(w, w.processes...)
	p.old = copyDisk(p.disk, 100)
	return true
}

// arriveLate has a request arrive, or get lost, that its sender has given up.
func (w *world) arriveLate() bool {
	k := len(w.kafka.late)
	if k == 0 {
		return false
	}
	arrive := w.kafka.late[k-1]
	w.kafka.late = w.kafka.late[:k-1]
	if w.rng.IntN(4) > 0 {
		arrive()
		return true
	}
	return false
}

// electOne has another broker lead a partition, whose clock is another one.
func (w *world) electOne() bool {
	l := pick(w, w.kafka.logs...)
	l.elect(l.end())
	l.clock = w.rng.Int64N(4001) - 2000
	return true
}

func (w *world) compactState() bool {
	l := w.kafka.log(schema.TopicState, w.partition())
	return l.compact(w.rng.Int64N(l.end() + 1))
}

// compactUpdates keeps its distance from what may still be needed, as the compaction lag
// of 7 days does: by MySQL after a failover, or by a process that has stood still.
func (w *world) compactUpdates() bool {
	p := w.partition()
	below := w.mysql.floor(positionKey(p)).n[colOffset]
	for _, c := range w.claims() {
		if c.name() == updates(p) {
			below = min(below, max(0, c.drive.Status().Position.Offset))
		}
	}
	return w.kafka.log(schema.TopicUpdates, p).compact(below)
}

// trimLikes deletes the start of likes: only what has been folded.
func (w *world) trimLikes() bool {
	p := w.partition()
	progress, ok := w.progress(p)
	if !ok {
		return false
	}
	l := w.kafka.log(schema.TopicLikes, p)
	before := l.start
	l.start = max(l.start, w.rng.Int64N(progress.NextOffset+1))
	return l.start > before
}

// mysqlAway has the server go away or come back.
func (w *world) mysqlAway(away bool) bool {
	if w.mysql.away == away {
		return false
	}
	w.mysql.away = away
	if away {
		w.mysql.cut()
	}
	return true
}

func (w *world) killSession() bool {
	if len(w.mysql.conns) == 0 {
		return false
	}
	c := pick(w, w.mysql.conns...)
	if contains(w.mysql.late, c) {
		return false
	}
	c.breakOff()
	return true
}

func (w *world) decideLate() bool {
	if len(w.mysql.late) == 0 {
		return false
	}
	w.mysql.resolve(w.mysql.late[0], w.rng.IntN(2) == 0)
	return true
}
