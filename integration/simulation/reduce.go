package simulation

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"kudos/schema"
)

// reducer searches for a shorter script that still fails, by delta debugging (Zeller and Hildebrandt, Simplifying and
// Isolating Failure-Inducing Input, 2002). It keeps only changes that simplify, so it terminates.
type reducer struct {
	fails func(*Script) bool
	more  func() bool // reports whether there is time for another try
	best  *Script
	tries int
}

func reduce(s *Script, fails func(*Script) bool, more func() bool) (*Script, int) {
	r := &reducer{fails: fails, more: more, best: s.merged()}
	for changed := true; changed && more(); {
		changed = r.cut()
		for _, pass := range []func() bool{r.shrinkHead, r.writeEarly, r.letWork, r.shrinkLines, r.join} {
			changed = pass() || changed
		}
	}
	return r.best, r.tries
}

func (r *reducer) try(change func(*Script)) bool {
	if !r.more() {
		return false
	}
	c := *r.best
	c.lines = slices.Clone(c.lines)
	change(&c)
	r.tries++
	if !r.fails(&c) {
		return false
	}
	r.best = c.merged()
	return true
}

// cut removes lines: half of them, a quarter … one. It starts at the end, since late lines often depend on early ones.
func (r *reducer) cut() (changed bool) {
	for size := max(1, len(r.best.lines)/2); size > 0; size /= 2 {
		for at := len(r.best.lines); at > 0; {
			at = max(0, min(at, len(r.best.lines))-size)
			changed = r.try(func(s *Script) {
				s.lines = slices.Delete(s.lines, at, min(at+size, len(s.lines)))
			}) || changed
		}
	}
	return changed
}

func (r *reducer) shrinkHead() (changed bool) {
	for more := true; more; changed = more || changed {
		more = r.best.Processes > 1 && r.fewerProcesses()
	}
	for r.best.Partitions > 1 && (r.try(func(s *Script) { s.Partitions-- }) || r.try((*Script).onePartition)) {
		changed = true
	}
	const unbounded = 50_000
	return r.best.MaxBatch < unbounded && r.try(func(s *Script) { s.MaxBatch = unbounded }) || changed
}

// fewerProcesses tries to remove the last process; another one may take over its lines.
func (r *reducer) fewerProcesses() bool {
	last := r.best.Processes
	for i := last; i > 0; i-- {
		if r.try(func(s *Script) { s.Processes--; s.rename(fmt.Sprintf("p%d", last), fmt.Sprintf("p%d", i)) }) {
			return true
		}
	}
	return false
}

func (s *Script) onePartition() {
	for p := range s.Partitions {
		s.rename(fmt.Sprintf("/%d", p), "/0")
		s.rename(schema.FoldTransactionalIDs(p)[0], schema.FoldTransactionalIDs(0)[0])
	}
	s.Partitions = 1
}

func (s *Script) rename(from, to string) {
	for i := range s.lines {
		l := &s.lines[i]
		l.who, l.how = strings.ReplaceAll(l.who, from, to), strings.ReplaceAll(l.how, from, to)
	}
}

func (l *line) isStep() bool {
	return l.verb == verbRun || l.verb == verbPoll || l.verb == verbSettle || l.verb == verbWork
}

// letWork replaces steps by "work", which prescribes no order.
func (r *reducer) letWork() (changed bool) {
	const few = 16 // lines up to which each part is tried
	for at := len(r.best.lines) - 1; at >= 0; at-- {
		if at >= len(r.best.lines) || !r.best.lines[at].isStep() {
			continue
		}
		from := at
		for from > 0 && (r.best.lines[from-1].isStep() || r.best.lines[from-1].verb == verbNext) {
			from--
		}
		tries := at - from + 1
		if tries > few {
			tries = 1
		}
		for i := range tries {
			if r.workInstead(from+i, at+1) {
				changed = true
				break
			}
		}
	}
	return changed
}

func (r *reducer) workInstead(from, to int) bool {
	part := r.best.lines[from:to]
	if !slices.ContainsFunc(part, func(l line) bool { return l.isStep() && l.verb != verbWork }) {
		return false
	}
	works := slices.DeleteFunc(slices.Clone(part), func(l line) bool { return l.isStep() })
	works = append(works, line{verb: verbWork})
	return r.try(func(s *Script) { s.lines = slices.Replace(s.lines, from, to, works...) })
}

func (r *reducer) writeEarly() (changed bool) {
	for i := 0; i < len(r.best.lines); i++ {
		to := i
		for to > 0 && r.best.lines[to-1].isStep() {
			to--
		}
		if l := r.best.lines[i]; l.verb == verbEvent && to < i {
			changed = r.try(func(s *Script) {
				s.lines = slices.Insert(slices.Delete(s.lines, i, i+1), to, l)
			}) || changed
		}
	}
	return changed
}

func (r *reducer) shrinkLines() (changed bool) {
	for i := 0; i < len(r.best.lines); i++ {
		for _, simpler := range []func(*line){
			func(l *line) { l.after = 0 },
			func(l *line) {
				if l.verb == "process: crash" {
					l.how = ""
				}
			},
			eventWith(func(e *event) { e.twice = false }), eventWith(func(e *event) { e.forwarded = false }),
			eventWith(func(e *event) { e.form = formProto }), eventWith(func(e *event) { e.post = 0 }),
			eventWith(func(e *event) { e.user = 1 }), eventWith(func(e *event) { e.region = "" }),
			eventWith(func(e *event) { e.time, e.timed = 0, false }),
			eventWith(func(e *event) { e.time = 0 }),
		} {
			changed = r.tryLine(i, simpler) || changed
		}
		changed = r.shrinkNumber(i) || changed
	}
	return changed
}

func eventWith(change func(*event)) func(*line) {
	return func(l *line) {
		if l.event != nil {
			e := *l.event
			change(&e)
			l.event = &e
		}
	}
}

func (r *reducer) tryLine(i int, change func(*line)) bool {
	if i >= len(r.best.lines) {
		return false
	}
	l := r.best.lines[i]
	change(&l)
	return l.String() != r.best.lines[i].String() && r.try(func(s *Script) { s.lines[i] = l })
}

func (r *reducer) shrinkNumber(i int) (changed bool) {
	if i >= len(r.best.lines) || !slices.Contains([]string{verbRun, verbNext, "mysql: failover"},
		r.best.lines[i].verb) {
		return false
	}
	for less := r.best.lines[i].n - 1; less > 0; less /= 2 {
		for i < len(r.best.lines) && r.best.lines[i].n > less && r.tryLine(i, func(l *line) { l.n -= less }) {
			changed = true
		}
	}
	return changed
}

// join merges two runs of a worker that only other steps separate.
func (r *reducer) join() (changed bool) {
	for i := 0; i < len(r.best.lines); i++ {
		for j := i + 1; r.best.lines[i].verb == verbRun && j < len(r.best.lines) && r.best.lines[j].isStep(); j++ {
			first, second := r.best.lines[i], r.best.lines[j]
			if second.verb != verbRun || second.who != first.who {
				continue
			}
			first.n += second.n
			changed = r.try(func(s *Script) { s.lines[i] = first; s.lines = slices.Delete(s.lines, j, j+1) }) ||
				r.try(func(s *Script) { s.lines[j] = first; s.lines = slices.Delete(s.lines, i, i+1) }) || changed
			break
		}
	}
	return changed
}

// kind is a violation without its details. A reduced script must keep it.
func kind(err error) string {
	text, _, _ := strings.Cut(err.Error(), ":")
	return strings.Map(func(r rune) rune {
		if unicode.IsDigit(r) {
			return -1
		}
		return r
	}, text)
}
