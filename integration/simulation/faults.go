package simulation

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"kudos/integration/crashdisk"
	"kudos/schema"
)

// fault is something that can happen to the workers, with a frequency by its weight in the plan.
type fault struct {
	name string
	draw func(*world) []line // draws what happens; nil: impossible now
	do   func(*world, line) bool
	ends bool // it ends another fault
}

// faults are in the order of plan.weights. The first two are not faults, and always occur.
var faults = []fault{
	{"events written", func(w *world) []line { return w.drawEvents(1 + w.rng.IntN(5)) }, nil, false},
	{"time passes", (*world).drawTimePasses, (*world).passTime, false},
	{"group: rebalance", (*world).drawRebalance, (*world).wantRebalance, false},
	{"group: lost membership noticed", (*world).drawNotice, ofProcess((*world).noticeLoss), false},
	{"process: crash", (*world).drawCrash, ofProcess((*world).crash), false},
	{"process: start", always, func(w *world, _ line) bool { return w.startMissing(1) }, true},
	{"process: pause", drawProcess(running), ofProcess(setPaused(true)), false},
	{"process: resume", drawProcess(paused), ofProcess(setPaused(false)), true},
	{"process: disk copied", drawProcess(anyOne), ofProcess((*world).copyOf), false},
	{"kafka: transaction timed out", (*world).drawCoordinator, ofCoordinator((*cluster).timeOut), false},
	{"kafka: late markers", (*world).drawCoordinator, ofCoordinator((*cluster).mark), false},
	{"kafka: transactional id expired", (*world).drawCoordinator, ofCoordinator((*cluster).expire), false},
	{"kafka: late request", (*world).drawLateRequest, (*world).arriveLate, false},
	{"kafka: late offset", drawPartition(likes), (*world).lateOffset, false},
	{"kafka: state table compacted", (*world).drawCompaction, ofLog((*world).compactState), false},
	{"kafka: updates compacted", drawPartition(updates), ofLog((*world).compactUpdates), false},
	{"kafka: start of likes deleted", (*world).drawTrim, ofLog((*world).trimLikes), false},
	{"kafka: leader elected", (*world).drawElection, ofLog((*world).elect), false},
	{"mysql: failover", (*world).drawFailover, (*world).failOver, false},
	{"mysql: unavailable", always, mysqlUnavailable(true), false},
	{"mysql: available again", always, mysqlUnavailable(false), true},
	{"mysql: session killed", (*world).drawSession, (*world).killSession, false},
	{"mysql: late COMMIT decided", (*world).drawLateCommit, (*world).decideLate, false},
}

func (w *world) passTime(l line) bool {
	w.advance(time.Duration(l.n) * time.Millisecond)
	w.kafka.timeOutOld()
	return true
}

func (w *world) wantRebalance(l line) bool { w.group(l.who).wanted = true; return true }

func ofProcess(do func(*world, *process, line) bool) func(*world, line) bool {
	return func(w *world, l line) bool { p := w.inSlot(l.who); return p != nil && do(w, p, l) }
}

func (w *world) noticeLoss(p *process, l line) bool { return w.group(l.how).notice(p) }

// What a crash does to the disk. By default no write is lost.
const (
	diskUnsynced = "unsynced data lost"
	diskLost     = "disk lost"
	diskOld      = "disk restored from an old copy"
)

func (w *world) crash(p *process, l line) bool {
	w.note("%s crashes", p.name)
	var disk *crashdisk.Disk
	switch {
	case l.how == diskLost:
		w.count("process: disk lost")
		disk = crashdisk.New()
	case l.how == diskOld && p.old != nil:
		w.count("process: disk restored from an old copy")
		disk = p.old
	case l.how == diskUnsynced:
		disk = copyDisk(p.disk, 0)
	default:
		disk = copyDisk(p.disk, 100)
	}
	w.plan.disks = append(w.plan.disks, disk)
	w.halt(p)
	return true
}

// copyDisk returns the disk after a crash, with all unsynced data (100 %) or none (0 %); RNG affects neither.
func copyDisk(disk *crashdisk.Disk, unsynced int) *crashdisk.Disk {
	return disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: unsynced, RNG: rand.New(rand.NewPCG(0, 0))})
}

func (w *world) halt(p *process) {
	p.dead = true
	for _, c := range slices.Clone(w.mysql.conns) {
		unaware := decision{who: w.asked(), what: "mysql: has not noticed the crash"}
		if c.proc == p && (w.calm || !w.decide(unaware, func() bool { return w.rng.IntN(3) == 0 })) {
			c.broken = true
			if !slices.Contains(w.mysql.late, c) {
				c.leave()
			}
		}
	}
	for _, s := range p.sessions {
		if s != nil {
			s.stop()
		}
	}
	for _, a := range slices.Clone(w.actors) {
		if a.proc == p {
			w.let(a)
			if !a.done {
				w.fail("%s does not end with its process", a.name)
			}
		}
	}
	p.end()
}

func (w *world) startMissing(n int) (any bool) {
	for ; n > 0 && len(w.processes) < w.plan.processes; n-- {
		disk := crashdisk.New()
		if k := len(w.plan.disks); k > 0 && !w.plan.wipe {
			disk, w.plan.disks = w.plan.disks[k-1], w.plan.disks[:k-1]
		}
		w.note("%s starts", w.start(disk).name)
		for _, g := range w.groups {
			g.wanted = true
		}
		any = true
	}
	return any
}

func setPaused(paused bool) func(*world, *process, line) bool {
	return func(w *world, p *process, _ line) bool {
		if p.paused == paused {
			return false
		}
		p.paused = paused
		w.note("%s paused: %v", p.name, paused)
		return true
	}
}

func (w *world) copyOf(p *process, _ line) bool { p.old = copyDisk(p.disk, 100); return true }

func ofCoordinator(do func(*cluster, *coordinator) bool) func(*world, line) bool {
	return func(w *world, l line) bool {
		co := w.kafka.coordinatorNamed(l.who)
		return co != nil && do(w.kafka, co)
	}
}

// lateOffset makes a partition's last committed offset visible to readers.
func (w *world) lateOffset(l line) bool {
	p := partitionOf(l)
	return p < w.plan.partitions && w.kafka.materialize(p)
}

func (w *world) failOver(l line) bool { w.mysql.failover(int(l.n)); return true }

// arriveLate delivers, or drops, a late request whose sender has given up on it.
func (w *world) arriveLate(l line) bool {
	k := len(w.kafka.late)
	if k == 0 {
		return false
	}
	arrive := w.kafka.late[k-1]
	w.kafka.late = w.kafka.late[:k-1]
	if l.how == howLost {
		return false
	}
	arrive()
	return true
}

func ofLog(do func(*world, *partitionLog, line) bool) func(*world, line) bool {
	return func(w *world, l line) bool {
		log := w.kafka.named(l.who)
		return log != nil && do(w, log, l)
	}
}

func (w *world) elect(log *partitionLog, l line) bool {
	log.elect(log.end())
	log.clock = l.n
	return true
}

func (w *world) compactState(log *partitionLog, l line) bool { return log.compact(min(l.n, log.end())) }

// compactUpdates keeps what MySQL after a failover, or a process after a pause, may need, like a 7-day compaction lag.
func (w *world) compactUpdates(log *partitionLog, l line) bool {
	below := w.mysql.floor(positionKey(partitionOf(l))).number(colOffset)
	for _, c := range w.claims() {
		if c.name() == l.who {
			below = min(below, max(0, c.stream.Status().Position.Offset))
		}
	}
	return log.compact(below)
}

// trimLikes deletes the start of likes, but only what has been folded.
func (w *world) trimLikes(log *partitionLog, l line) bool {
	progress, ok := w.progress(partitionOf(l))
	before := log.start
	if ok {
		log.start = max(log.start, min(l.n, progress.NextOffset))
	}
	return log.start > before
}

func mysqlUnavailable(away bool) func(*world, line) bool {
	return func(w *world, _ line) bool {
		if w.mysql.away == away {
			return false
		}
		w.mysql.away = away
		if away {
			w.mysql.cut()
		}
		return true
	}
}

func (w *world) killSession(l line) bool {
	if l.n >= int64(len(w.mysql.conns)) {
		return false
	}
	c := w.mysql.conns[l.n]
	if slices.Contains(w.mysql.late, c) {
		return false
	}
	c.breakOff()
	return true
}

func (w *world) decideLate(l line) bool {
	if len(w.mysql.late) == 0 {
		return false
	}
	w.mysql.resolve(w.mysql.late[0], l.how != howLost)
	return true
}

// The draw functions choose what happens next from what is possible. A line contains all that is needed to repeat it.

const howLost = "lost"

func (w *world) drawFault() []line {
	n := w.rng.IntN(w.plan.weight)
	for i, weight := range w.plan.weights {
		if n -= weight; n >= 0 {
			continue
		}
		lines := faults[i].draw(w)
		for j := range lines {
			lines[j].verb = cmp.Or(lines[j].verb, faults[i].name)
		}
		return lines
	}
	return nil
}

func always(*world) []line { return only(line{}) }

func (w *world) partition() int32 { return w.rng.Int32N(w.plan.partitions) }

func partitionOf(l line) (p int32) {
	_, _ = fmt.Sscanf(l.who[strings.LastIndexByte(l.who, '/')+1:], "%d", &p)
	return p
}

func drawPartition(name func(int32) string) func(*world) []line {
	return func(w *world) []line { return only(line{who: name(w.partition())}) }
}

func (w *world) drawTimePasses() []line {
	return only(line{n: pick(w, 10*time.Millisecond, 100*time.Millisecond, 1100*time.Millisecond, 1100*time.Millisecond,
		6*time.Second, 25*time.Second, 61*time.Second).Milliseconds()})
}

func (w *world) drawRebalance() []line { return only(line{who: pick(w, w.groups...).name}) }

func drawProcess(fits func(*process) bool) func(*world) []line {
	return func(w *world) []line {
		list := slices.DeleteFunc(slices.Clone(w.processes), func(p *process) bool { return !fits(p) })
		if len(list) == 0 {
			return nil
		}
		return only(line{who: pick(w, list...).ref()})
	}
}

func anyOne(*process) bool    { return true }
func running(p *process) bool { return !p.paused }
func paused(p *process) bool  { return p.paused }

func (w *world) drawNotice() []line {
	if len(w.processes) == 0 {
		return nil
	}
	g := pick(w, w.groups...)
	return only(line{who: pick(w, w.processes...).ref(), how: g.name})
}

func (w *world) drawCrash() []line {
	if len(w.processes) == 0 {
		return nil
	}
	p := pick(w, w.processes...)
	l := line{who: p.ref()}
	if w.rng.IntN(2) == 0 {
		l.how = diskUnsynced
	}
	switch {
	case w.rng.IntN(4) == 0:
		l.how = diskLost
	case p.old != nil && w.rng.IntN(2) == 0:
		l.how = diskOld
	}
	return only(l)
}

func (w *world) drawCoordinator() []line { return only(line{who: pick(w, w.kafka.coordinators...).id}) }

func (w *world) drawLateRequest() []line {
	if len(w.kafka.late) == 0 {
		return nil
	}
	return only(line{how: pick(w, howLost, "", "", "")})
}

func (w *world) drawLateCommit() []line {
	if len(w.mysql.late) == 0 {
		return nil
	}
	return only(line{how: pick(w, "", howLost)})
}

func (w *world) drawCompaction() []line {
	l := w.kafka.log(schema.TopicState, w.partition())
	return only(line{who: l.name, n: w.rng.Int64N(l.end() + 1)})
}

func (w *world) drawTrim() []line {
	p := w.partition()
	progress, ok := w.progress(p)
	if !ok {
		return nil
	}
	return only(line{who: likes(p), n: w.rng.Int64N(progress.NextOffset + 1)})
}

func (w *world) drawElection() []line {
	l := pick(w, w.kafka.logs...)
	return only(line{who: l.name, n: w.rng.Int64N(4001) - 2000})
}

func (w *world) drawFailover() []line { return only(line{n: int64(w.rng.IntN(keptCommits + 1))}) }

func (w *world) drawSession() []line {
	if len(w.mysql.conns) == 0 {
		return nil
	}
	return only(line{n: int64(w.rng.IntN(len(w.mysql.conns)))})
}
