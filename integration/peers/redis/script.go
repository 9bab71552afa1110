package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/redis/rueidis"

	"kudos/integration/peers/peer"
)

const (
	shards = 64
	// callUsers bounds the users of one call. Redis does nothing else meanwhile, and Lua's unpack ends at 8,000 values.
	callUsers = 1000
)

// script takes, for each post, its counter and its sets as keys, and as arguments how many sets there are and, for each
// set, how many users to add, those, how many to remove, and those. It answers each post's count.
const script = `
local counts, k, a = {}, 1, 1
while k <= #KEYS do
  local counter, sets, net = KEYS[k], tonumber(ARGV[a]), 0
  a = a + 1
  for s = k + 1, k + sets do
    local n = tonumber(ARGV[a])
    if n > 0 then net = net + redis.call('SADD', KEYS[s], unpack(ARGV, a + 1, a + n)) end
    a = a + n + 1
    n = tonumber(ARGV[a])
    if n > 0 then net = net - redis.call('SREM', KEYS[s], unpack(ARGV, a + 1, a + n)) end
    a = a + n + 1
  end
  if net ~= 0 then
    counts[#counts + 1] = redis.call('INCRBY', counter, net)
  else
    counts[#counts + 1] = tonumber(redis.call('GET', counter) or 0)
  end
  k = k + sets + 1
end
return counts
`

type call struct {
	posts      []uint64
	keys, args []string
}

type planner struct {
	events     []ordered
	keys, args words
	add, rem   []uint64
}

type ordered struct {
	peer.Event
	place int32
}

func (e *ordered) shard() uint64 { return e.User % shards }

// plan sorts a batch by post, shard and user: each set is touched once, for each user's last action.
func (p *planner) plan(events []peer.Event) []call {
	p.events = p.events[:0]
	for i, e := range events {
		p.events = append(p.events, ordered{e, int32(i)})
	}
	slices.SortFunc(p.events, func(a, b ordered) int {
		switch {
		case a.Post != b.Post:
			return cmp.Compare(a.Post, b.Post)
		case a.shard() != b.shard():
			return cmp.Compare(a.shard(), b.shard())
		case a.User != b.User:
			return cmp.Compare(a.User, b.User)
		}
		return cmp.Compare(a.place, b.place)
	})
	var calls []call
	for rest := p.events; len(rest) > 0; {
		n := p.callEnd(rest)
		calls = append(calls, p.call(rest[:n]))
		rest = rest[n:]
	}
	return calls
}

// callEnd is how many of the events make the next call. A user is not divided; a post or a set may be.
func (p *planner) callEnd(events []ordered) int {
	n := min(len(events), callUsers)
	for n < len(events) && events[n].Post == events[n-1].Post && events[n].User == events[n-1].User {
		n++
	}
	return n
}

func (p *planner) call(events []ordered) call {
	p.keys.reset()
	p.args.reset()
	var posts []uint64
	for len(events) > 0 {
		post := events[0].Post
		n := runOf(events, func(e *ordered) bool { return e.Post == post })
		posts = append(posts, post)
		p.post(post, events[:n])
		events = events[n:]
	}
	return call{posts: posts, keys: p.keys.strings(), args: p.args.strings()}
}

func (p *planner) post(post uint64, events []ordered) {
	p.keys.post(post)
	p.keys.end()
	sets := 0
	for i := range events {
		if i == 0 || events[i].shard() != events[i-1].shard() {
			sets++
		}
	}
	p.args.number(uint64(sets))
	for len(events) > 0 {
		shard := events[0].shard()
		n := runOf(events, func(e *ordered) bool { return e.shard() == shard })
		p.keys.post(post)
		p.keys.text = append(p.keys.text, ':')
		p.keys.number(shard)
		p.set(events[:n])
		events = events[n:]
	}
}

// set adds the arguments of one set, of whose events the last one of each user counts.
func (p *planner) set(events []ordered) {
	p.add, p.rem = p.add[:0], p.rem[:0]
	for i := range events {
		e := &events[i]
		switch {
		case i+1 < len(events) && events[i+1].User == e.User:
		case e.Like:
			p.add = append(p.add, e.User)
		default:
			p.rem = append(p.rem, e.User)
		}
	}
	for _, users := range [][]uint64{p.add, p.rem} {
		p.args.number(uint64(len(users)))
		for _, user := range users {
			p.args.number(user)
		}
	}
}

// runOf is how many events at the front have something in common, which the first one has.
func runOf(events []ordered, same func(*ordered) bool) int {
	n := 1
	for n < len(events) && same(&events[n]) {
		n++
	}
	return n
}

// words are strings in the making: one allocation for all.
type words struct {
	text []byte
	ends []int
}

func (w *words) reset()          { w.text, w.ends = w.text[:0], w.ends[:0] }
func (w *words) end()            { w.ends = append(w.ends, len(w.text)) }
func (w *words) number(n uint64) { w.text = strconv.AppendUint(w.text, n, 10); w.end() }

func (w *words) post(post uint64) {
	w.text = append(w.text, "likes:"...)
	w.text = strconv.AppendUint(w.text, post, 10)
}

func (w *words) strings() []string {
	all, list, begin := string(w.text), make([]string, len(w.ends)), 0
	for i, end := range w.ends {
		list[i] = all[begin:end]
		begin = end
	}
	return list
}

type runner struct {
	client  rueidis.Client
	script  *rueidis.Lua
	execs   []rueidis.LuaExec
	changed []peer.Count
}

func newRunner(client rueidis.Client) *runner {
	return &runner{client: client, script: rueidis.NewLuaScript(script)}
}

// run sends all calls at once and returns the counts after them, the last of a post last. They are valid until the next
// run. One pipeline at a time: so they are carried out in order.
func (r *runner) run(ctx context.Context, calls []call) ([]peer.Count, error) {
	// Not given up in the middle when the peer is told to end.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), batchTimeout)
	defer cancel()
	r.execs, r.changed = r.execs[:0], r.changed[:0]
	for _, c := range calls {
		r.execs = append(r.execs, rueidis.LuaExec{Keys: c.keys, Args: c.args})
	}
	for i, result := range r.script.ExecMulti(ctx, r.client, r.execs...) {
		likes, err := result.AsIntSlice()
		if err != nil {
			return nil, fmt.Errorf("count in redis: %w", err)
		}
		if len(likes) != len(calls[i].posts) {
			return nil, fmt.Errorf("count in redis: %d counts of %d posts", len(likes), len(calls[i].posts))
		}
		for j, post := range calls[i].posts {
			r.changed = append(r.changed, peer.Count{Post: post, Likes: likes[j]})
		}
	}
	return r.changed, nil
}
