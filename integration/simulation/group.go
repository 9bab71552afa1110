package simulation

import (
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/schema"
)

// group is a consumer group: who is a member, and who owns which partition. A member that
// is away or slow keeps working as a zombie until it learns that it is none any more.
type group struct {
	w           *world
	index       int // in world.groups and process.sessions
	name, topic string
	generation  int32
	members     map[string]*session
	names       int

	joining []*process // those a rebalance waits for; nil: none is under way
	wanted  bool       // somebody asked for a rebalance
}

func (w *world) newGroups() {
	for i, topic := range []string{schema.TopicLikes, schema.TopicUpdates} {
		name := []string{schema.GroupFold, schema.GroupApply}[i]
		w.groups = append(w.groups, &group{w: w, index: i, name: name, topic: topic, members: map[string]*session{}})
	}
}

func (w *world) group(name string) *group {
	for _, g := range w.groups {
		if g.name == name {
			return g
		}
	}
	panic("no group " + name)
}

// member checks a membership as the coordinator does for a heartbeat or a commit.
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

// rebalance begins: whoever takes part ends its session first. Others go on as they are,
// and are not members any more when it ends.
func (g *group) rebalance() {
	g.wanted = false
	g.joining = []*process{}
	for _, p := range g.w.processes {
		if p.paused || g.w.chanceOf(decision{p.ref(), "takes no part in a rebalance", g.name}, 150) {
			continue
		}
		g.joining = append(g.joining, p)
		if s := p.sessions[g.index]; s != nil {
			s.stop()
		}
	}
	g.w.note("%s: rebalance of %d processes", g.name, len(g.joining))
}

// settle ends a rebalance when everybody has joined, or has been waited for long enough.
func (g *group) settle() {
	if g.joining == nil {
		if g.wanted {
			g.rebalance()
		}
		return
	}
	impatient := g.w.chanceOf(decision{who: g.name, what: "does not wait for all"}, 10)
	var joined []*process
	for _, p := range g.joining {
		switch {
		case p.dead:
		case p.sessions[g.index] == nil:
			joined = append(joined, p)
		case !impatient && !p.paused:
			return
		}
	}
	g.joining = nil
	g.generation++
	g.members = map[string]*session{}
	if len(joined) == 0 {
		return
	}
	owners := g.assign(joined)
	shares := make([][]int32, len(joined))
	for p := range g.w.plan.partitions {
		i := owners[p]
		shares[i] = append(shares[i], p)
	}
	for i, p := range joined {
		g.names++
		g.begin(p, fmt.Sprintf("%s-%d", p.name, g.names), shares[i])
	}
}

// assign returns which of the processes owns each partition.
func (g *group) assign(joined []*process) []int {
	w, owners := g.w, make([]int, g.w.plan.partitions)
	var written, names []string
	if list := w.owners[g.name]; len(list) > 0 {
		written, w.owners[g.name] = list[0], list[1:]
	}
	for p := range owners {
		owners[p] = p % len(joined)
		if w.rng != nil {
			owners[p] = w.rng.IntN(len(joined))
		} else if p < len(written) {
			if i := slices.IndexFunc(joined, func(x *process) bool { return x.ref() == written[p] }); i >= 0 {
				owners[p] = i
			}
		}
		names = append(names, joined[owners[p]].ref())
	}
	if w.rng != nil {
		w.before(line{verb: verbAssign, who: g.name, how: strings.Join(names, " ")})
	}
	return owners
}

// notice has a process see that its session is past, and join anew.
func (g *group) notice(p *process) bool {
	s := p.sessions[g.index]
	if p.dead || p.paused || s != nil && g.member(s.member, s.generation) == nil {
		return false
	}
	if s != nil {
		g.w.note("%s: %s notices that its membership is lost", g.name, s.member)
		s.stop()
	}
	if g.joining == nil || !slices.Contains(g.joining, p) {
		g.wanted = true
	}
	return s != nil
}
