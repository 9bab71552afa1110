package simulation

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"kudos/schema"
	"kudos/stream"
)

// damage is what the program cannot repair, done after a schedule has drained. Then the damaged partitions must park,
// and the others continue. do returns which must park and why, or nil if the damage is not possible here.
type damage struct {
	name string
	do   func(w *world, p int32) parks
	// live: it is detected without a restart. Changed ids of topics and clusters are detected when a partition opens.
	live bool
}

// parks are expected reasons, or parts of them, by partition (topic/number).
type parks map[string]string

func likes(p int32) string   { return fmt.Sprintf("%s/%d", schema.TopicLikes, p) }
func updates(p int32) string { return fmt.Sprintf("%s/%d", schema.TopicUpdates, p) }

var damages = []*damage{
	{"updates compacted before they were applied", gapInUpdates, true},
	{"updates lost at the end", lostUpdates, true},
	{"updates written twice", repeatedUpdates, true},
	{"like-updates deleted and recreated", recreate(schema.TopicUpdates), false},
	{"state table deleted and recreated", recreate(schema.TopicState), false},
	{"likes deleted and recreated", recreate(schema.TopicLikes), false},
	{"state table rewound", stateWentBack, false},
	{"progress record lost", progressLost, false},
	{"another cluster", anotherCluster, false},
	{"more partitions", morePartitions, false},
	{"events deleted before they were folded", likesTrimmed, false},
	{"events lost by an unclean election", likesLost, false},
	{"applied_offset row deleted", rowDeleted, true},
	{"applied_offset of another topic", rowOfAnother, true},
}

func damageNamed(name string) *damage {
	return find(damages, func(d *damage) bool { return d.name == name })
}

func (w *world) suffer() {
	p, restart := w.drawDamage()
	w.note("# damage to partition %d: %s", p, w.plan.damage.name)
	want := w.plan.damage.do(w, p)
	if want == nil {
		return
	}
	w.tally["damage: "+w.plan.damage.name]++
	for name := range want {
		w.excused[name] = true
	}
	if restart || !w.plan.damage.live {
		w.restart()
	}
	w.writeHome()
	w.drain()
	for name, reason := range want {
		w.mustPark(name, reason)
	}
}

// drawDamage returns the partition to damage, and whether to restart the processes even if detection does not need it.
func (w *world) drawDamage() (p int32, restart bool) {
	clear(w.passed)
	if w.rng == nil {
		d := w.plan.rest[0]
		for _, l := range w.plan.rest[1:] {
			if l.verb == verbNext || l.verb == verbAssign {
				w.perform(l)
			}
		}
		return min(partitionOf(d), w.plan.partitions-1), d.n != 0
	}
	p, restart = w.partition(), w.rng.IntN(2) == 0
	l := line{verb: verbDamage, who: likes(p), how: w.plan.damage.name}
	if restart {
		l.n = 1
	}
	w.perform(l)
	return p, restart
}

func (w *world) restart() {
	for len(w.processes) > 0 {
		p := w.processes[0]
		w.plan.disks = append(w.plan.disks, copyDisk(p.disk, 100))
		w.halt(p)
	}
	w.startMissing(w.plan.processes)
}

// writeHome writes valid events, each to its own partition.
func (w *world) writeHome() {
	for _, l := range w.plan.rest {
		if l.verb == verbEvent {
			w.perform(l)
		}
	}
	if w.rng == nil {
		return
	}
	w.plan.misplaced, w.plan.poison = 0, 0
	for _, l := range w.drawEvents(5) {
		w.perform(l)
	}
}

func (w *world) mustPark(name, reason string) {
	if w.failure != nil {
		return
	}
	c := find(w.claims(), func(c *claim) bool { return c.name() == name })
	if c == nil {
		w.fail("%s has no owner", name)
		return
	}
	st := c.stream.Status()
	if st.State != stream.StateParked || st.Action == "" || !strings.Contains(st.Reason, reason) {
		w.fail("after %q, %s is not parked for %q: %s", w.plan.damage.name, name, reason, st)
	}
}

// foldOnly has events folded while MySQL is unavailable.
func (w *world) foldOnly(p int32) {
	w.mysql.away = true
	w.mysql.cut()
	w.excused[updates(p)] = true
	for range 3 {
		w.append(p)
		for n := range 200 {
			w.round()
			if n == 100 {
				w.advance(1100 * time.Millisecond) // the fold retries if its transactional id has expired
			}
		}
	}
	w.mysql.away = false
}

// append writes an event that changes the count of a post in the partition.
func (w *world) append(p int32) {
	l := w.kafka.log(schema.TopicLikes, p)
	for post := uint64(1); post < 1000; post++ {
		if schema.PartitionFor(post, w.plan.partitions) == p {
			l.append(entry{key: schema.AppendPostKey(nil, post), value: schema.AppendEvent(nil, &schema.Event{
				PostID: post, UserID: uint64(1000 + l.end()), Action: schema.Like, Region: schema.UnknownRegion})})
			return
		}
	}
}

func gapInUpdates(w *world, p int32) parks {
	w.foldOnly(p)
	l := w.kafka.log(schema.TopicUpdates, p)
	for o := w.applied(p); o < l.lastData(0)-1; o++ {
		if l.entries[o].data() {
			l.entries[o].removed = true
			return parks{updates(p): "where"}
		}
	}
	w.fail("nothing was folded: %s", w.undonePartition(p))
	return nil
}

func repeatedUpdates(w *world, p int32) parks {
	l := w.kafka.log(schema.TopicUpdates, p)
	at := l.lastData(0) - 1
	if at < 0 {
		return nil
	}
	e := l.entries[at]
	l.append(entry{key: e.key, value: e.value})
	w.excused[likes(p)] = true // its updates no longer match the oracle
	return parks{updates(p): "where"}
}

func lostUpdates(w *world, p int32) parks {
	if w.applied(p) < 2 {
		return nil
	}
	w.kafka.log(schema.TopicUpdates, p).elect(w.applied(p) - 2)
	w.excused[likes(p)] = true
	w.append(p)
	w.append(p)
	return parks{updates(p): ""}
}

func recreate(name string) func(*world, int32) parks {
	return func(w *world, _ int32) parks {
		want := w.allPark("deleted and recreated")
		if name == schema.TopicState {
			want = w.allPark("has no progress record")
		}
		t := w.kafka.topics[name]
		t.id[15]++
		w.likesLost = w.likesLost || name == schema.TopicLikes
		for p := range w.plan.partitions {
			i := slices.Index(w.kafka.logs, t.parts[p])
			t.parts[p] = newLog(name, int(p))
			w.kafka.logs[i] = t.parts[p]
			if name != schema.TopicUpdates {
				w.excused[updates(p)] = true // gets no updates any more, and is not compared
			} else if w.mysql.rows[positionKey(p)] != nil {
				want[updates(p)] = "the counts in MySQL come from topic id"
			}
		}
		return want
	}
}

// stateWentBack simulates an unclean election that loses the end of the state table: the transaction that folded an
// event, and any later one, which completed like-counts.
func stateWentBack(w *world, p int32) parks {
	l := w.kafka.log(schema.TopicState, p)
	before := l.end()
	w.append(p)
	w.drain()
	if t := l.entries[l.end()-1].txn; l.end() == before || t == nil || !t.commits { // of the last marker
		return nil
	}
	l.elect(before)
	w.excused[updates(p)] = true
	return parks{likes(p): "but the group has committed"}
}

func progressLost(w *world, p int32) parks {
	entries := w.kafka.log(schema.TopicState, p).entries
	for i := range entries {
		entries[i].removed = true
	}
	for _, proc := range w.processes {
		proc.old = nil
	}
	w.excused[updates(p)] = true
	w.plan.wipe = true
	return parks{likes(p): "has no progress record"}
}

func anotherCluster(w *world, _ int32) parks {
	w.kafka.id = "another-cluster"
	return w.allPark("this is cluster another-cluster")
}

func morePartitions(w *world, _ int32) parks {
	t := w.kafka.topics[schema.TopicLikes]
	t.parts = append(t.parts, newLog(t.name, len(t.parts)))
	return w.allPark("partitions, but the state table was created for")
}

func (w *world) allPark(reason string) parks {
	want := parks{}
	for p := range w.plan.partitions {
		want[likes(p)] = reason
	}
	return want
}

func likesTrimmed(w *world, p int32) parks {
	for len(w.processes) > 0 {
		w.halt(w.processes[0])
	}
	w.append(p)
	l := w.kafka.log(schema.TopicLikes, p)
	l.start = l.end()
	w.startMissing(w.plan.processes)
	return parks{likes(p): "is next, but"}
}

func likesLost(w *world, p int32) parks {
	l := w.kafka.log(schema.TopicLikes, p)
	progress, _ := w.progress(p)
	if progress.NextOffset < 2 || progress.LeaderEpoch < 0 {
		return nil
	}
	l.elect(progress.NextOffset - 2)
	w.likesLost = true
	for range 4 {
		w.append(p)
	}
	return parks{likes(p): "data was lost by an unclean leader election"}
}

// rowDeleted leaves counts without a position.
func rowDeleted(w *world, p int32) parks {
	if w.mysql.rows[positionKey(p)] == nil || len(w.mysql.rows) < 2 {
		return nil
	}
	delete(w.mysql.rows, positionKey(p))
	return parks{updates(p): "but no applied_offset row"}
}

func rowOfAnother(w *world, p int32) parks {
	r := maps.Clone(w.mysql.rows[positionKey(p)])
	if r == nil {
		return nil
	}
	r["topic_id"] = strings.Repeat("1", 32)
	w.mysql.rows[positionKey(p)] = r
	return parks{updates(p): "the counts in MySQL come from topic id"}
}
