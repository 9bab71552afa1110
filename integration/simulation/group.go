package simulation

import (
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// group is a consumer group: its members, and the owners of partitions. A rebalance interrupts nobody: a member that is
// paused or slow works as a zombie until it receives its assignment, or learns that it has lost its membership.
type group struct {
	w           *world
	index       int // in world.groups and process.sessions
	name, topic string
	generation  int32
	members     map[string]*session // by the member id in the current generation
	names       int

	joining []*process // processes that a rebalance waits for; nil: no rebalance
	wanted  bool       // a rebalance was requested
}

func (w *world) group(name string) *group {
	if g := find(w.groups, func(g *group) bool { return g.name == name }); g != nil {
		return g
	}
	panic("unknown group " + name)
}

func (g *group) member(id string, generation int32) *kerr.Error {
	switch s := g.members[id]; {
	case s == nil:
		return kerr.UnknownMemberID
	case generation != g.generation:
		return kerr.IllegalGeneration
	}
	return nil
}

func (w *world) heartbeat(req *kmsg.HeartbeatRequest) *kmsg.HeartbeatResponse {
	resp := req.ResponseKind().(*kmsg.HeartbeatResponse)
	g := w.group(req.Group)
	if err := g.member(req.MemberID, req.Generation); err != nil {
		resp.ErrorCode = err.Code
	} else if g.joining != nil {
		resp.ErrorCode = kerr.RebalanceInProgress.Code
	}
	return resp
}

// rebalance begins a rebalance. Processes that take no part lose their membership at its end, all keep working.
func (g *group) rebalance() {
	g.wanted, g.joining = false, []*process{}
	for _, p := range g.w.processes {
		if p.paused || g.w.chanceOf(decision{p.ref(), "takes no part in a rebalance", g.name}, 150) {
			continue
		}
		g.joining = append(g.joining, p)
	}
	g.w.note("%s: rebalance of %d processes", g.name, len(g.joining))
}

// settle ends a rebalance when every process has joined, or the wait has been long enough.
func (g *group) settle() {
	defer g.receive()
	if g.joining == nil {
		if g.wanted {
			g.rebalance()
		}
		return
	}
	impatient := g.w.chanceOf(decision{who: g.name, what: "does not wait for all members"}, 10)
	var joined []*process
	for _, p := range g.joining {
		switch {
		case p.dead:
		case !p.paused && (p.sessions[g.index] == nil || p.sessions[g.index].ctx.Err() == nil):
			joined = append(joined, p)
		case !impatient:
			return
		}
	}
	g.joining = nil
	g.generation++
	before := g.members
	g.members = map[string]*session{}
	if len(joined) == 0 {
		return
	}
	for i, share := range g.assign(joined) {
		s := g.session(joined[i])
		if before[s.next.member] != s { // a zombie joins as a new member and keeps what it is assigned
			g.names++
			s.next.member = fmt.Sprintf("%s-%d", joined[i].name, g.names)
		}
		s.next.generation, s.next.partitions, s.late = g.generation, share, true
		g.members[s.next.member] = s
		g.w.note("%s: generation %d, %s gets %v", g.name, g.generation, s.next.member, share)
	}
}

// receive has the processes receive their assignments, sooner or later.
func (g *group) receive() {
	for _, p := range g.w.processes {
		s := p.sessions[g.index]
		if s == nil || !s.late || p.paused || s.ctx.Err() != nil || s.ends() ||
			g.w.chanceOf(decision{p.ref(), "does not receive its assignment", g.name}, 300) {
			continue
		}
		s.assigned()
	}
}

func (g *group) assign(joined []*process) [][]int32 {
	w, shares := g.w, make([][]int32, len(joined))
	var written, names []string
	if list := w.owners[g.name]; len(list) > 0 {
		written, w.owners[g.name] = list[0], list[1:]
	}
	for p := range w.plan.partitions {
		owner := int(p) % len(joined)
		if w.rng != nil {
			owner = w.rng.IntN(len(joined))
		} else if int(p) < len(written) {
			if i := slices.IndexFunc(joined, func(x *process) bool { return x.ref() == written[p] }); i >= 0 {
				owner = i
			}
		}
		shares[owner] = append(shares[owner], p)
		names = append(names, joined[owner].ref())
	}
	if w.rng != nil {
		w.before(line{verb: verbAssign, who: g.name, how: strings.Join(names, " ")})
	}
	return shares
}

// notice makes a process notice that it has lost its membership, and rejoin.
func (g *group) notice(p *process) bool {
	s := p.sessions[g.index]
	if p.dead || p.paused || s != nil && g.members[s.next.member] == s {
		return false
	}
	if s != nil {
		g.w.note("%s: %s notices that it lost its membership", g.name, s.now.member)
		s.stop()
	}
	g.wanted = g.wanted || !slices.Contains(g.joining, p)
	return s != nil
}
