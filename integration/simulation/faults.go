package simulation

import (
	"math/rand/v2"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"kudos/schema"
)

// fault is something that happens around the workers, as often as its weight in the plan.
type fault struct {
	name string
	do   func(*world)
}

// faults in the order of plan.weights. The first two are no faults, and always happen.
var faults = []fault{
	{"events", func(w *world) { w.write(1 + w.rng.IntN(5)) }},
	{"time", (*world).passTime},
	{"rebalance", func(w *world) { pick(w, w.groups...).wanted = true }},
	{"notice", (*world).noticeOne},
	{"crash", (*world).crashOne},
	{"start", func(w *world) { w.startMissing(1) }},
	{"pause", func(w *world) { w.setPaused(true) }},
	{"resume", func(w *world) { w.setPaused(false) }},
	{"snapshot", (*world).snapshotOne},
	{"transaction timeout", func(w *world) { w.kafka.timeOut(pick(w, w.kafka.coordinators...)) }},
	{"markers", func(w *world) { w.kafka.mark(pick(w, w.kafka.coordinators...)) }},
	{"late requests", (*world).arriveLate},
	{"late offsets", func(w *world) { w.kafka.materialize(w.partition()) }},
	{"compaction of the state table", (*world).compactState},
	{"compaction of updates", (*world).compactUpdates},
	{"retention of likes", (*world).trimLikes},
	{"election", func(w *world) { l := pick(w, w.kafka.logs...); l.elect(l.end()) }},
	{"mysql failover", func(w *world) { w.mysql.failover(w.rng.IntN(keptCommits + 1)) }},
	{"mysql away", func(w *world) { w.mysql.away = true; w.mysql.cut() }},
	{"mysql back", func(w *world) { w.mysql.away = false }},
	{"mysql session killed", (*world).killSession},
	{"late commit", (*world).decideLate},
}

// happen lets one thing happen.
func (w *world) happen() {
	n := w.rng.IntN(w.plan.weight)
	for i, weight := range w.plan.weights {
		if n -= weight; n < 0 {
			w.note("# %s", faults[i].name)
			w.tally[faults[i].name]++
			faults[i].do(w)
			return
		}
	}
}

func (w *world) partition() int32 { return w.rng.Int32N(w.plan.partitions) }

func (w *world) passTime() {
	w.advance(pick(w, 10*time.Millisecond, 100*time.Millisecond, 1100*time.Millisecond, 1100*time.Millisecond,
		6*time.Second, 25*time.Second, 61*time.Second))
	for _, co := range w.kafka.coordinators {
		if co.txn != nil && now()-co.txn.began > 31_000 {
			w.kafka.timeOut(co)
		}
	}
}

func (w *world) noticeOne() {
	if len(w.processes) > 0 {
		pick(w, w.groups...).notice(pick(w, w.processes...))
	}
}

func (w *world) crashOne() {
	if len(w.processes) > 0 {
		w.crash(pick(w, w.processes...))
	}
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
		disk = vfs.NewCrashableMem()
	case p.old != nil && w.rng.IntN(2) == 0:
		disk = p.old // restored from a backup
	}
	w.plan.disks = append(w.plan.disks, disk)
	w.halt(p)
}

// copyDisk is what is left of a disk after a crash: all of what had not been synced, or
// nothing of it. (The dice that the file system asks for have no say in either.)
func copyDisk(disk *vfs.MemFS, unsynced int) *vfs.MemFS {
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
func (w *world) startMissing(n int) {
	for ; n > 0 && len(w.processes) < w.plan.processes; n-- {
		disk := vfs.NewCrashableMem()
		if k := len(w.plan.disks); k > 0 && !w.plan.wipe {
			disk, w.plan.disks = w.plan.disks[k-1], w.plan.disks[:k-1]
		}
		p := w.start(disk)
		w.note("%s starts", p.name)
		for _, g := range w.groups {
			g.wanted = true
		}
	}
}

// setPaused has a process stand still, or go on.
func (w *world) setPaused(paused bool) {
	var fit []*process
	for _, p := range w.processes {
		if p.paused != paused {
			fit = append(fit, p)
		}
	}
	if len(fit) > 0 {
		p := pick(w, fit...)
		p.paused = paused
		w.note("%s paused: %v", p.name, paused)
	}
}

func (w *world) snapshotOne() {
	if len(w.processes) > 0 {
		p := pick(w, w.processes...)
		p.old = copyDisk(p.disk, 100)
	}
}

// arriveLate has a request arrive, or get lost, that its sender has given up.
func (w *world) arriveLate() {
	if k := len(w.kafka.late); k > 0 {
		arrive := w.kafka.late[k-1]
		w.kafka.late = w.kafka.late[:k-1]
		if w.rng.IntN(4) > 0 {
			w.count("kafka: late commit arrives")
			arrive()
		}
	}
}

func (w *world) compactState() {
	l := w.kafka.log(schema.TopicState, w.partition())
	l.compact(w.rng.Int64N(l.end() + 1))
}

// compactUpdates keeps its distance from what may still be needed, as the compaction lag
// of 7 days does.
func (w *world) compactUpdates() {
	p := w.partition()
	w.kafka.log(schema.TopicUpdates, p).compact(w.mysql.floor(positionKey(p)).n[colOffset])
}

// trimLikes deletes the start of likes: only what has been folded.
func (w *world) trimLikes() {
	p := w.partition()
	if progress, ok := w.progress(p); ok {
		l := w.kafka.log(schema.TopicLikes, p)
		l.start = max(l.start, w.rng.Int64N(progress.NextOffset+1))
	}
}

func (w *world) killSession() {
	if len(w.mysql.conns) > 0 {
		if c := pick(w, w.mysql.conns...); !contains(w.mysql.late, c) {
			c.breakOff()
		}
	}
}

func (w *world) decideLate() {
	if len(w.mysql.late) > 0 {
		w.mysql.resolve(w.mysql.late[0], w.rng.IntN(2) == 0)
	}
}
