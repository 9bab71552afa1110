package simulation

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing/synctest"
	"time"
)

// world is the state of one schedule. One goroutine at a time uses it: an actor's between steps, else the scheduler's.
type world struct {
	rng   *rand.Rand // nil: a script is played
	plan  plan
	trace func(format string, args ...any) // may be nil
	log   *slog.Logger

	kafka     *cluster
	mysql     *database
	processes []*process
	groups    []*group
	reader    *reader

	actors  []*actor
	current *actor        // running actor; nil: the scheduler
	back    chan struct{} // an actor returns control

	calm    bool // no more faults
	polls   int
	lives   map[int]int // started processes, by slot
	failure error
	excused map[string]bool // partitions that may park, see parks.go
	tally   Tally
	recorder
	readerPlan
}

// actor is a goroutine that runs only when the scheduler lets it.
type actor struct {
	name   string
	ref    string // in scripts
	proc   *process
	resume chan struct{}
	idle   bool // had nothing to do in its last turn
	done   bool
	reads  bool // of the reader
}

func (w *world) note(format string, args ...any) {
	if w.trace != nil {
		who := "-"
		if w.current != nil {
			who = w.current.name
		}
		w.trace("%10.3f %-22s %s", float64(now())/1000, who, fmt.Sprintf(format, args...))
	}
}

func (w *world) count(what string) { w.tally[what]++; w.note("%s", what) }

// now is the virtual time in Unix milliseconds.
func now() int64 { return time.Now().UnixMilli() }

func (w *world) fail(format string, args ...any) {
	if w.failure == nil {
		w.failure = fmt.Errorf(format, args...)
		w.note("VIOLATION: %v", w.failure)
	}
}

func (w *world) spawn(name, ref string, proc *process, run func()) *actor {
	a := &actor{name: name, ref: ref, proc: proc, resume: make(chan struct{})}
	w.actors = append(w.actors, a)
	go func() {
		<-a.resume
		run()
		a.done = true
		w.back <- struct{}{}
	}()
	return a
}

func (w *world) let(a *actor) {
	w.mysql.reap()
	w.current = a
	a.resume <- struct{}{}
	<-w.back
	w.current = nil
	if a.done {
		w.actors = remove(w.actors, a)
	}
}

func remove[T comparable](list []T, x T) []T {
	if i := slices.Index(list, x); i >= 0 {
		return slices.Delete(list, i, i+1)
	}
	return list
}

// find returns the first element that fits; nil if there is none.
func find[T any](list []*T, fits func(*T) bool) *T {
	if i := slices.IndexFunc(list, fits); i >= 0 {
		return list[i]
	}
	return nil
}

// step is called by the models before and after each operation: other actors run. It reports whether its process lives.
func (w *world) step(format string, args ...any) (alive bool) {
	a := w.current
	if a == nil {
		return true // called by the scheduler itself
	}
	if a.proc.dead {
		return false
	}
	w.mysql.reap()
	w.note(format, args...)
	a.idle = false
	w.back <- struct{}{}
	<-a.resume
	return !a.proc.dead
}

// rest is a step between two turns of an actor.
func (w *world) rest(idle bool) {
	a := w.current
	if a.proc.dead {
		return
	}
	a.idle = idle
	w.back <- struct{}{}
	<-a.resume
}

// runnable picks an actor at random; busy ones are more likely.
func (w *world) runnable() (fit *actor) {
	weight := 0
	for _, a := range w.actors {
		n := 8
		switch {
		case a.proc.paused, a.reads:
			continue
		case a.idle:
			n = 1
		}
		weight += n
		if w.rng.IntN(weight) < n {
			fit = a
		}
	}
	return fit
}

func (w *world) advance(d time.Duration) {
	w.note("time passes: %v", d)
	time.Sleep(d)
	synctest.Wait()
}

func pick[T any](w *world, list ...T) T { return pickFrom(w.rng, list...) }

func pickFrom[T any](dice *rand.Rand, list ...T) T { return list[dice.IntN(len(list))] }
