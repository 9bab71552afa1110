package simulation

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"kudos/schema"
)

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
		list := w.processes
		if fits != nil {
			list = slices.DeleteFunc(slices.Clone(list), func(p *process) bool { return !fits(p) })
		}
		if len(list) == 0 {
			return nil
		}
		return only(line{who: pick(w, list...).ref()})
	}
}

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

func (w *world) drawCoordinator() []line {
	return only(line{who: pick(w, w.kafka.coordinators...).id})
}

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
