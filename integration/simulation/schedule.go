package simulation

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"kudos/integration/crashdisk"
	"kudos/schema"
	"kudos/stream"
)

// plan is what a seed determines up front.
type plan struct {
	partitions          int32
	posts, users        int
	processes, maxBatch int
	steps               int // of the storm
	peace               int // one in this many steps is a fault
	began               int64
	// Per thousand: lost requests or responses, commits with an unknown outcome, misrouted events, invalid records.
	lost, unclear, misplaced, poison int
	weights                          []int // of faults
	weight                           int   // sum of weights
	damage                           *damage
	wipe                             bool              // processes start with an empty disk
	disks                            []*crashdisk.Disk // of crashed processes
	rest                             []line            // of a script: damage, and the lines after it
}

const untaken = "script: decision that never came up"

// Tally counts what happened in schedules, by name.
type Tally map[string]int

// Run runs the schedule of a seed and returns its script and its violation, if any. It must be called in a bubble of
// testing/synctest, whose time it advances. trace gets a line for each step; it may be nil.
func Run(seed uint64, trace func(format string, args ...any)) (Tally, *Script, error) {
	w := newWorld(trace)
	w.rng = rand.New(rand.NewPCG(seed, 0x6b75646f73))
	w.makePlan()
	w.planReader(seed)
	w.script = Script{Partitions: w.plan.partitions, Processes: w.plan.processes, MaxBatch: w.plan.maxBatch}
	w.run(func() {
		if w.reading > 0 {
			w.perform(line{verb: readerFaults[0].name})
		}
		for _, l := range w.drawEvents(1 + w.rng.IntN(8)) {
			w.perform(l)
		}
		w.storm()
	})
	return w.tally, &w.script, w.failure
}

// Run runs a script; like Run for a seed.
func (s *Script) Run(trace func(format string, args ...any)) (Tally, error) {
	w := newWorld(trace)
	w.plan = plan{partitions: s.Partitions, processes: s.Processes, maxBatch: s.MaxBatch, began: now()}
	w.run(func() {
		if w.plan.rest = w.play(s.lines); len(w.plan.rest) > 0 {
			w.plan.damage = damageNamed(w.plan.rest[0].how)
		}
	})
	for _, list := range w.armed {
		w.tally[untaken] += len(list)
	}
	return w.tally, w.failure
}

func newWorld(trace func(format string, args ...any)) *world {
	w := &world{
		trace: trace, back: make(chan struct{}), log: slog.New(slog.DiscardHandler),
		lives: map[int]int{}, excused: map[string]bool{}, tally: Tally{},
		recorder: recorder{passed: map[decision]int64{}, armed: map[string][]line{}, owners: map[string][][]string{}},
	}
	if trace != nil {
		w.log = slog.New(slog.NewTextHandler(traceWriter{w}, &slog.HandlerOptions{ReplaceAttr: withoutTime}))
	}
	return w
}

func (w *world) run(storm func()) {
	w.setUp()
	storm()
	w.subside()
	w.drain()
	if w.failure == nil && w.plan.damage != nil {
		w.suffer()
	}
	if w.failure == nil {
		w.checkAll()
	}
	w.tearDown()
}

type traceWriter struct{ w *world }

func (t traceWriter) Write(b []byte) (int, error) {
	t.w.note("log: %s", b[:len(b)-1])
	return len(b), nil
}

func withoutTime(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}

func (w *world) makePlan() {
	p := &w.plan
	p.partitions = 1 + w.rng.Int32N(2)
	p.posts, p.users = 1+w.rng.IntN(3), 1+w.rng.IntN(3)
	p.processes = 1 + w.rng.IntN(3)
	p.maxBatch = pick(w, 1, 2, 3, 7, 50_000)
	p.steps, p.peace = 100+w.rng.IntN(1000), pick(w, 5, 10, 20, 50)
	p.began = now()
	p.lost = pick(w, 0, 5, 20, 60)
	p.unclear = pick(w, 0, 20, 100, 300)
	p.misplaced, p.poison = pick(w, 0, 100, 400), pick(w, 0, 50)
	p.weights, p.weight = []int{12, 6}, 12+6
	for _, f := range faults[2:] {
		n := pick(w, 0, 0, 1, 2, 4)
		if f.ends { // otherwise there is mostly nothing left to hit
			n = pick(w, 1, 2, 4, 8)
		}
		p.weights = append(p.weights, n)
		p.weight += n
	}
	if w.rng.IntN(8) == 0 {
		p.damage = pick(w, damages...)
	}
}

// setUp creates topics with their first progress records, as `kudos topics apply` does, and starts the processes.
func (w *world) setUp() {
	w.kafka = newCluster(w, w.plan.partitions)
	w.mysql = &database{w: w, rows: map[string]row{}, locks: map[string]*conn{}}
	for p := range w.plan.partitions {
		progress := schema.Progress{LeaderEpoch: -1, ClusterID: w.kafka.id, Partitions: w.plan.partitions,
			SourceID: w.kafka.topics[schema.TopicLikes].id, StateID: w.kafka.topics[schema.TopicState].id,
			UpdatesID: w.kafka.topics[schema.TopicUpdates].id, Alternating: p == 0,
			Voids: true}
		if p == 0 {
			progress.Regions = regionsOf0
		}
		first := entry{key: []byte(schema.StateProgressKey), value: schema.AppendProgress(nil, &progress)}
		w.kafka.log(schema.TopicState, p).append(first)
		if p > 0 { // that of partition 0 is completed, as after an upgrade
			w.kafka.log(schema.TopicCounts, p).append(first)
		}
	}
	w.groups = []*group{{w: w, index: 0, name: schema.GroupFold, topic: schema.TopicLikes},
		{w: w, index: 1, name: schema.GroupApply, topic: schema.TopicUpdates}}
	w.startMissing(w.plan.processes)
}

func (w *world) storm() {
	for range w.plan.steps {
		if w.failure != nil {
			return
		}
		clear(w.passed)
		w.settle()
		lines := w.drawStep()
		if len(lines) == 0 || lines[0].verb == verbEvent {
			w.perform(line{verb: verbSettle})
		}
		for _, l := range lines {
			w.perform(l)
		}
		for _, l := range w.drawReader() {
			clear(w.passed)
			w.perform(l)
		}
	}
}

func (w *world) drawStep() []line {
	switch {
	case w.rng.IntN(w.plan.peace) == 0:
		return w.drawFault()
	case w.rng.IntN(4) == 0:
		if claims := w.claims(); len(claims) > 0 {
			return only(line{verb: verbPoll, who: pick(w, claims...).actor.ref})
		}
	default:
		if a := w.runnable(); a != nil {
			return only(line{verb: verbRun, who: a.ref, n: 1})
		}
	}
	return nil
}

func only[T any](x T) []T { return []T{x} }

func (w *world) settle() {
	for _, g := range w.groups {
		g.settle()
	}
}

func (w *world) claims() []*claim {
	var list []*claim
	for _, p := range w.processes {
		for _, s := range p.sessions {
			if s != nil {
				list = append(list, s.claims...)
			}
		}
	}
	return list
}

// subside ends the faults: late decisions are made, and unavailable parts recover.
func (w *world) subside() {
	w.note("# calm")
	w.calm = true
	clear(w.passed)
	for _, p := range w.processes {
		p.paused = false
	}
	lost := func(what string, draw func() bool) (l line) {
		if w.decide(decision{who: w.asked(), what: what}, draw) {
			l.how = howLost
		}
		return l
	}
	for len(w.kafka.late) > 0 {
		w.arriveLate(lost("kafka: late request lost", func() bool { return w.rng.IntN(4) == 0 }))
	}
	for len(w.mysql.late) > 0 {
		w.decideLate(lost("mysql: late COMMIT lost", func() bool { return w.rng.IntN(2) > 0 }))
	}
	w.mysql.away = false
	for _, c := range slices.Clone(w.mysql.conns) {
		if c.proc.dead {
			c.breakOff()
		}
	}
	for _, co := range w.kafka.coordinators {
		w.kafka.mark(co)
	}
	for p := range w.plan.partitions {
		w.kafka.materialize(p)
	}
	w.startMissing(w.plan.processes)
}

// Limits of the drain: rounds, and virtual seconds.
const (
	drainRounds  = 5000
	drainSeconds = 300
)

// drain lets all workers run until everything is done, then lets time pass, so that timers detect what only they can.
func (w *world) drain() {
	quiet := 0
	for seconds, round := 0, 0; w.failure == nil; round++ {
		if w.round() {
			continue
		}
		w.read()
		switch why := w.undone(); {
		case why == "":
			if quiet++; quiet > 6 {
				return
			}
		case seconds > drainSeconds || round > drainRounds:
			w.fail("not drained: %s", why)
		default:
			quiet = 0
		}
		seconds++
		w.advance(1100 * time.Millisecond)
		w.kafka.timeOutOld()
	}
}

func (w *world) round() (busy bool) {
	w.settle()
	for _, g := range w.groups {
		for _, p := range w.processes {
			g.notice(p)
		}
	}
	return w.turn()
}

func (w *world) turn() (busy bool) {
	for _, c := range w.claims() {
		if !c.session.proc.paused {
			c.poll(func() int { return w.batches(0) })
		}
	}
	for _, a := range slices.Clone(w.actors) {
		if !a.done && !a.proc.paused && !a.reads {
			w.let(a)
			busy = busy || !a.idle
		}
	}
	return busy
}

func (w *world) undone() string {
	for _, g := range w.groups {
		if g.joining != nil || g.wanted {
			return g.name + " rebalances"
		}
		owned := map[int32]bool{}
		for _, s := range g.members {
			if s.late {
				return g.name + " has an assignment that was not received"
			}
			for _, c := range s.claims {
				owned[c.partition] = true
				if st := c.stream.Status(); st.State != stream.StateRunning && !w.excused[c.name()] {
					return st.String()
				}
			}
		}
		if len(owned) < int(w.plan.partitions) {
			return g.name + " has partitions without an owner"
		}
	}
	for p := range w.plan.partitions {
		if why := w.undonePartition(p); why != "" {
			return why
		}
	}
	return w.unread()
}

func (w *world) undonePartition(p int32) string {
	if !w.excused[likes(p)] {
		progress, _ := w.progress(p)
		l := w.kafka.log(schema.TopicLikes, p)
		if end := l.lastData(max(l.start, progress.NextOffset)); progress.NextOffset < end {
			return fmt.Sprintf("%s is folded up to %d of %d", likes(p), progress.NextOffset, end)
		}
	}
	if !w.excused[updates(p)] {
		at := w.applied(p)
		if end := w.kafka.log(schema.TopicUpdates, p).lastData(at); at < end {
			return fmt.Sprintf("%s is applied up to %d of %d", updates(p), at, end)
		}
	}
	return ""
}

func (w *world) tearDown() {
	w.calm = true
	w.reader.halt()
	for len(w.processes) > 0 {
		p := w.processes[0]
		w.note("%s ends", p.name)
		w.halt(p)
	}
	if n := len(w.actors); n > 0 {
		w.fail("%d actors are left, the first is %s", n, w.actors[0].name)
	}
}
