package simulation

import (
	"slices"
	"strings"
)

// decision is a choice that a model makes while a worker runs: who asks, what may happen, and to which request.
type decision struct{ who, what, of string }

func (d decision) how() string {
	if d.of == "" {
		return d.what
	}
	return d.what + ": " + d.of
}

// recorder records the script of a drawn schedule, and holds the decisions of a played one.
type recorder struct {
	script Script
	inLine bool                  // the last line is running
	passed map[decision]int64    // how often a decision was no since the last line, or since it was yes
	chosen *line                 // the last decision that was yes
	armed  map[string][]line     // scripted decisions still to come, by who and how
	owners map[string][][]string // owners of partitions in the next rebalances, by group
}

func (w *world) asked() string {
	if w.current != nil {
		return w.current.ref
	}
	return "scheduler"
}

func (w *world) decide(d decision, draw func() bool) bool {
	r := &w.recorder
	if w.rng == nil {
		return r.take(d)
	}
	if !draw() {
		r.passed[d]++
		return false
	}
	r.chosen = r.before(line{verb: verbNext, who: d.who, how: d.how(), after: r.passed[d]})
	delete(r.passed, d)
	return true
}

// chance is true n times in a thousand, and never during the calm.
func (w *world) chance(what string, n int) bool {
	return w.chanceOf(decision{who: w.asked(), what: what}, n)
}

func (w *world) chanceOf(d decision, n int) bool {
	return !w.calm && !w.makesReaderWait(d) &&
		w.decide(d, func() bool { return n > 0 && w.random().IntN(1000) < n })
}

// happens is chance, and counts when it is true.
func (w *world) happens(what string, n int) bool { return w.counted(what, w.chance(what, n)) }

func (w *world) lost(what, request string) bool {
	return w.counted(what, w.chanceOf(decision{w.asked(), what, request}, w.plan.lost))
}

func (w *world) counted(what string, happens bool) bool {
	if happens {
		w.count(what)
	}
	return happens
}

// amount returns a number that belongs to the decision just made.
func (w *world) amount(draw func() int) int {
	if w.rng != nil {
		w.chosen.n = int64(draw())
	}
	return max(1, int(w.chosen.n))
}

func (r *recorder) before(l line) *line {
	at := len(r.script.lines)
	if r.inLine {
		at--
	}
	r.script.lines = slices.Insert(r.script.lines, at, l)
	return &r.script.lines[at]
}

func (r *recorder) take(d decision) bool {
	key := d.who + " " + d.how()
	list := r.armed[key]
	if len(list) == 0 {
		return false
	}
	if list[0].after > 0 {
		list[0].after--
		return false
	}
	r.chosen, r.armed[key] = &list[0], list[1:]
	return true
}

func (w *world) perform(l line) {
	r := &w.recorder
	if w.rng != nil {
		r.script.lines = append(r.script.lines, l)
		r.inLine = true
		defer func() { r.inLine = false }()
	}
	switch l.verb {
	case verbEvent:
		w.write(l.who, l.event)
	case verbNext:
		key := l.who + " " + l.how
		r.armed[key] = append(r.armed[key], l)
	case verbAssign:
		r.owners[l.who] = append(r.owners[l.who], strings.Fields(l.how))
	case verbRun:
		w.runOne(l.who)
	case verbPoll:
		w.pollOne(l.who, int(l.n))
	case verbWork:
		w.work()
	case verbAsk:
		w.reader.ask()
	case verbSettle, verbDamage:
	default:
		f := faultNamed(l.verb)
		w.note("# %s", f.name)
		if f.do(w, l) {
			w.tally[f.name]++
		}
	}
}

// play runs the lines of a script up to damage, and returns the rest.
func (w *world) play(lines []line) (rest []line) {
	for i, l := range lines {
		if l.verb == verbDamage {
			return lines[i:]
		}
		for range max(1, l.n) {
			if w.failure != nil {
				return nil
			}
			switch {
			case l.verb == verbEvent, l.verb == verbNext, l.verb == verbAssign, l.ofReader():
			default:
				w.settle()
			}
			w.perform(l)
			if l.verb != verbRun {
				break
			}
		}
	}
	return nil
}

func (w *world) runOne(ref string) {
	if a := find(w.actors, func(a *actor) bool { return a.ref == ref }); a != nil && !a.proc.paused {
		w.let(a)
	}
}

func (w *world) pollOne(ref string, batches int) {
	if c := find(w.claims(), func(c *claim) bool { return c.actor.ref == ref && !c.session.proc.paused }); c != nil {
		c.poll(func() int { return w.batches(batches) })
	}
	if c := find(w.reader.consumers(), func(c *consumer) bool { return c.actor.ref == ref }); c != nil {
		c.poll(func() int { return w.reader.batches(batches) })
	}
}

// work gives all workers turns until they are idle, up to a limit.
func (w *world) work() {
	for range 500 {
		w.settle()
		if w.failure != nil || !w.turn() {
			break
		}
	}
	w.read()
}

// batches returns how many batches a poll fetches: as drawn, as scripted, or 1 to 6 in rotation.
func (w *world) batches(written int) int {
	if !w.calm && w.rng != nil {
		n := 1 + w.rng.IntN(6)
		w.script.lines[len(w.script.lines)-1].n = int64(n)
		return n
	}
	if written > 0 {
		return written
	}
	w.polls++
	return 1 + w.polls%6
}
