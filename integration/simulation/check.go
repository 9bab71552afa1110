package simulation

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"google.golang.org/protobuf/proto"

	"kudos/schema"
	"kudos/schema/kudosv1"
)

// checkTransaction looks at a transaction of the fold as it is committed: its progress
// must follow on what was committed before, and go with the group's offset.
func (c *cluster) checkTransaction(co *coordinator) {
	w, t := c.w, co.txn
	p := int32(slices.IndexFunc(c.topics[schema.TopicState].parts, func(l *partitionLog) bool {
		_, written := t.first[l]
		return written
	}))
	if p < 0 {
		w.fail("%s: a transaction without state", co.id)
		return
	}
	before, ok := w.progress(p)
	if !ok {
		w.fail("partition %d has no progress record", p)
		return
	}
	l := c.log(schema.TopicState, p)
	var after schema.Progress
	found := 0
	for o := t.first[l]; o < l.end(); o++ {
		if e := &l.entries[o]; e.txn == t && string(e.key) == schema.StateProgressKey {
			found++
			_ = schema.DecodeProgress(e.value, &after)
		}
	}
	offset, committed := t.offset[p]
	switch {
	case found != 1:
		w.fail("%s: a transaction with %d progress records", co.id, found)
	case !committed || offset != after.NextOffset:
		w.fail("%s: a transaction with progress %d commits offset %d (%v)", co.id, after.NextOffset, offset, committed)
	case after.NextOffset <= before.NextOffset || after.NextSeq <= before.NextSeq:
		w.fail("%s: progress goes from offset %d seq %d to offset %d seq %d", co.id, before.NextOffset, before.NextSeq, after.NextOffset, after.NextSeq)
	}
}

// progress is the last committed progress record of a partition, by now.
func (w *world) progress(p int32) (progress schema.Progress, ok bool) {
	l := w.kafka.log(schema.TopicState, p)
	for o := l.end() - 1; o >= l.start; o-- {
		e := &l.entries[o]
		if !e.marker && string(e.key) == schema.StateProgressKey && (e.txn == nil || e.txn.commits()) {
			return progress, schema.DecodeProgress(e.value, &progress) == nil
		}
	}
	return progress, false
}

// checkCommit looks at a commit of MySQL: a position only goes forward, and over each
// update once.
func (db *database) checkCommit(c *conn) {
	w := db.w
	for p := range w.plan.partitions {
		key := positionKey(p)
		after, moved := c.writes[key]
		before, ok := db.rows[key]
		if !moved || !ok || w.excused[updates(p)] {
			continue
		}
		from, to := before.n[colOffset], after.n[colOffset]
		n := int64(0)
		l := w.kafka.log(schema.TopicUpdates, p)
		for o := from; o < min(to, l.end()); o++ {
			if l.entries[o].data() {
				n++
			}
		}
		if to <= from || after.n[colSeq]-before.n[colSeq] != n {
			w.fail("mysql: partition %d goes from offset %d seq %d to offset %d seq %d, over %d updates",
				p, from, before.n[colSeq], to, after.n[colSeq], n)
		}
	}
}

// verdict compares everything with the oracle.
func (w *world) verdict() {
	truths := make([]truth, w.plan.partitions)
	for p := range truths {
		truths[p] = w.fold(int32(p))
	}
	counts, hours := map[string][2]int64{}, map[string][2]int64{}
	for p := range w.plan.partitions {
		t := truths[p]
		if !w.excused[likes(p)] {
			w.checkState(p, t)
			w.checkUpdates(p, t)
			w.checkOutput(p, t, truths)
		}
		if w.excused[likes(p)] || w.excused[updates(p)] {
			continue
		}
		for post, n := range t.counts {
			counts["c"+strconv.FormatUint(post, 10)] = n
		}
		for at, n := range t.cells {
			key := hourKey(at, p)
			hours[key] = [2]int64{hours[key][0] + n[0], hours[key][1] + n[1]}
		}
	}
	w.checkRows(counts, hours)
}

// checkRows is I1: every row equals the fold. A row that is not there is zero.
func (w *world) checkRows(counts, hours map[string][2]int64) {
	want := maps.Clone(counts)
	maps.Copy(want, hours)
	for key, r := range w.mysql.rows {
		if _, ok := want[key]; !ok && key[0] != 'p' && len(w.excused) == 0 {
			want[key] = [2]int64{}
		}
		if n, ok := want[key]; ok && n != [2]int64{r.n[0], r.n[1]} {
			w.fail("I1: MySQL has %v for %s, the fold %v", r.n[:2], key, n)
		}
	}
	for key, n := range want {
		if _, ok := w.mysql.rows[key]; !ok && n != ([2]int64{}) {
			w.fail("I1: MySQL has no row %s, the fold %v", key, n)
		}
	}
}

// table is the compacted state table of a partition.
func (w *world) table(p int32) map[string]string {
	table := map[string]string{}
	for _, e := range w.kafka.log(schema.TopicState, p).entries {
		switch {
		case !e.data():
		case e.value == nil:
			delete(table, string(e.key))
		default:
			table[string(e.key)] = string(e.value)
		}
	}
	return table
}

// checkState is I2: the state table and the owner's copy of it equal the fold.
func (w *world) checkState(p int32, t truth) {
	want := map[string]string{}
	for id, r := range t.pairs {
		region, _ := schema.ParseRegion(r.region)
		pair := schema.Pair{Reaction: schema.Action(r.action).Reaction(), TimeMs: r.time, Offset: r.offset, SinceMs: r.since, Region: region}
		want[string(schema.AppendPairKey(nil, id.post, id.user))] = string(schema.AppendPair(nil, &pair))
	}
	table := w.table(p)
	for post, n := range t.counts {
		key := string(schema.AppendCountsKey(nil, post))
		if _, ok := table[key]; ok || n != ([2]int64{}) { // a post that never had any may have no counts
			want[key] = string(schema.AppendCounts(nil, schema.Counts{Likes: n[0], Dislikes: n[1]}))
		}
	}
	want[schema.StateProgressKey] = table[schema.StateProgressKey]
	compareTables(w, fmt.Sprintf("I2: state table %d", p), table, want)
	for _, proc := range w.processes {
		s := proc.sessions[0]
		if s == nil || !slices.ContainsFunc(s.claims, func(c *claim) bool { return c.partition == p }) {
			continue
		}
		compareTables(w, fmt.Sprintf("I2: local state %d of %s", p, proc.name), w.local(proc, p), want)
	}
}

// local reads a process's copy of the state table.
func (w *world) local(proc *process, p int32) map[string]string {
	have := map[string]string{}
	iter, err := proc.stores.Get(schema.TopicState, p).Iterator()
	if err != nil {
		w.fail("reading local state: %v", err)
		return have
	}
	defer iter.Release()
	for iter.Next() {
		value, err := iter.Value()
		if err != nil {
			w.fail("reading local state: %v", err)
		}
		have[string(iter.Key())] = string(value)
	}
	return have
}

func compareTables(w *world, what string, have, want map[string]string) {
	if maps.Equal(have, want) {
		return
	}
	for key := range want {
		if have[key] != want[key] {
			w.fail("%s has %x at %x, the fold %x", what, have[key], key, want[key])
		}
	}
	for key := range have {
		if _, ok := want[key]; !ok {
			w.fail("%s has %x, which the fold does not have", what, key)
		}
	}
}

// checkUpdates is I3 and I5: seq has no gap, and the deltas sum to the counts.
func (w *world) checkUpdates(p int32, t truth) {
	cells := map[cell][2]int64{}
	counts := map[uint64][2]int64{}
	seq, source := uint64(0), int64(0)
	for o, e := range w.kafka.log(schema.TopicUpdates, p).entries {
		if !e.data() {
			continue
		}
		var u kudosv1.LikeUpdate
		if err := proto.Unmarshal(e.value, &u); err != nil {
			w.fail("like-updates/%d offset %d: %v", p, o, err)
		}
		if u.Seq != seq || u.SourceOffset < source {
			w.fail("I3: like-updates/%d offset %d has seq %d and source offset %d after seq %d and source offset %d", p, o, u.Seq, u.SourceOffset, seq-1, source)
		}
		seq, source = u.Seq+1, u.SourceOffset
		if string(e.key) == schema.ProgressKey {
			continue
		}
		post, _ := strconv.ParseUint(string(e.key), 10, 64)
		for _, d := range u.Deltas {
			at := cell{post, d.Minute, string(d.Region)}
			cells[at] = [2]int64{cells[at][0] + d.Likes, cells[at][1] + d.Dislikes}
			counts[post] = [2]int64{counts[post][0] + d.Likes, counts[post][1] + d.Dislikes}
			if cells[at] == ([2]int64{}) {
				delete(cells, at)
			}
		}
		if n := [2]int64{u.LikeCount, u.DislikeCount}; counts[post] != n {
			w.fail("I5: like-updates/%d offset %d says %v for post %d, its deltas sum to %v", p, o, n, post, counts[post])
		}
	}
	if !maps.Equal(cells, t.cells) {
		w.fail("I5: deltas of partition %d sum to %v, the fold has %v", p, cells, t.cells)
	}
}

// checkOutput: each dead letter and each forwarded event is there once, and no other.
func (w *world) checkOutput(p int32, t truth, truths []truth) {
	dead := map[int64]bool{}
	for _, e := range w.kafka.log(schema.TopicDLT, p).entries {
		if !e.data() {
			continue
		}
		w.tally["dead letter"]++
		for _, h := range e.headers {
			if h.Key == schema.HeaderDLTOffset {
				o, _ := strconv.ParseInt(string(h.Value), 10, 64)
				if dead[o] {
					w.fail("likes/%d offset %d is a dead letter twice", p, o)
				}
				dead[o] = true
			}
		}
	}
	if !maps.Equal(dead, t.dead) {
		w.fail("dead letters of likes/%d are of offsets %v, not %v", p, dead, t.dead)
	}
	seen := map[string]bool{}
	for o := range w.kafka.log(schema.TopicLikes, p).entries {
		e := &w.kafka.log(schema.TopicLikes, p).entries[o]
		if e.txn == nil || !e.data() {
			continue // not the fold's
		}
		w.tally["forwarded"]++
		origin := string(e.headers[0].Value)
		have, ok := understand(e)
		var from int32
		_, _ = fmt.Sscanf(origin, "%d@", &from)
		if w.excused[likes(from)] {
			continue // damaged since
		}
		want := truths[from].forwards[origin]
		want.time = min(want.time, e.time+60_000) // by the clock of its new log: an event like any other
		if !ok || !isForwarded(e) || have != want || seen[origin] {
			w.fail("likes/%d offset %d: %s was forwarded as %v, not %v (again: %v)", p, o, origin, have, want, seen[origin])
		}
		seen[origin] = true
	}
	for from := range truths {
		if w.excused[likes(int32(from))] {
			continue
		}
		for origin, e := range truths[from].forwards {
			if schema.PartitionFor(e.post, w.plan.partitions) == p && !seen[origin] {
				w.fail("the event at %s of likes was not forwarded to partition %d", origin, p)
			}
		}
	}
}
