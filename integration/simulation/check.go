package simulation

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"

	"kudos/integration/oracle"
	"kudos/schema"
	"kudos/schema/kudosv1"
	"kudos/stream/store"
)

// checkTransaction checks at commit that the fold's progress continues the last one and matches the group's offset.
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
	ends := func(topic string) (last []byte, found int) {
		l := c.log(topic, p)
		for o := t.first[l]; o < l.end(); o++ {
			if e := &l.entries[o]; e.txn == t && string(e.key) == schema.StateProgressKey {
				last = e.value
				found++
			}
		}
		return last, found
	}
	state, found := ends(schema.TopicState)
	counts, same := ends(schema.TopicCounts)
	var after schema.Progress
	_ = schema.DecodeProgress(state, &after)
	offset, committed := t.offset[p]
	_, counted := w.likeCounts(p)
	switch {
	case found != 1 || (same != 1) != t.older:
		w.fail("%s: a transaction with %d and %d progress records", co.id, found, same)
	case counts != nil && !bytes.Equal(counts, state):
		w.fail("%s: progress %x in the state table, %x in like-counts", co.id, state, counts)
	case !committed || offset.at != after.NextOffset:
		w.fail("%s: a transaction with progress %d commits offset %d (%v)", co.id, after.NextOffset, offset.at,
			committed)
	case after.NextOffset == before.NextOffset && !counted: // it completes like-counts
	case after.NextOffset <= before.NextOffset || after.NextSeq <= before.NextSeq:
		w.fail("%s: progress goes from offset %d seq %d to offset %d seq %d", co.id, before.NextOffset, before.NextSeq,
			after.NextOffset, after.NextSeq)
	}
}

func (w *world) progress(p int32) (progress schema.Progress, ok bool) {
	l := w.kafka.log(schema.TopicState, p)
	for o := l.end() - 1; o >= l.start; o-- {
		e := &l.entries[o]
		if !e.marker && string(e.key) == schema.StateProgressKey && (e.txn == nil || e.txn.commits) {
			return progress, schema.DecodeProgress(e.value, &progress) == nil
		}
	}
	return progress, false
}

// checkCommit checks a MySQL commit: a position only moves forward, and over each update once.
func (db *database) checkCommit(c *conn) {
	w := db.w
	for p := range w.plan.partitions {
		before, after := db.rows[positionKey(p)], c.writes[positionKey(p)]
		if before == nil || after == nil || w.excused[updates(p)] {
			continue
		}
		from, to, n := before.number(colOffset), after.number(colOffset), int64(0)
		l := w.kafka.log(schema.TopicUpdates, p)
		for o := from; o < min(to, l.end()); o++ {
			if l.entries[o].data() {
				n++
			}
		}
		if fromSeq, toSeq := before.number(colSeq), after.number(colSeq); to <= from || toSeq-fromSeq != n {
			w.fail("mysql: partition %d goes from offset %d seq %d to offset %d seq %d, over %d updates", p, from,
				fromSeq, to, toSeq, n)
		}
	}
}

// truth is the expected result of a partition of likes, by package oracle, which shares only the generated wire format.
type truth struct {
	*oracle.Fold
	oracle.Sums
	forwards map[string]oracle.Event // expected, by origin
	dead     map[int64]bool          // offsets of dead letters
}

func (w *world) fold(p int32) truth {
	t := truth{Fold: oracle.NewFold(w.plan.partitions), forwards: map[string]oracle.Event{}, dead: map[int64]bool{}}
	for o, e := range w.kafka.log(schema.TopicLikes, p).entries {
		if !e.data() {
			continue
		}
		event, ok := understand(&e)
		switch owner := ok && t.PartitionOf(event.Post) == p; {
		case ok && event.OfUser():
			t.Void(p, event)
		case owner:
			t.Add(counted(p, int64(o), event), int64(o))
		case !ok, e.header(schema.HeaderForwarded) != "":
			t.dead[int64(o)] = true
		default:
			t.forwards[fmt.Sprintf("%d@%d", p, o)] = event
		}
	}
	t.Sums = t.Fold.Sums()
	return t
}

// regionsOf0 are the rules of partition 0; the others are of an earlier state table, which has none.
const regionsOf0, regionsFrom = "0:1:;9:1:US-CA", 9

func counted(p int32, offset int64, e oracle.Event) oracle.Event {
	if p == 0 && offset < regionsFrom {
		e.Region = oracle.CountedAs(e.Region, nil)
	} else if p == 0 {
		e.Region = oracle.CountedAs(e.Region, []string{"US-CA"})
	}
	return e
}

func understand(e *entry) (oracle.Event, bool) {
	event, poison := oracle.Decode(e.key, e.value)
	event.Settle(e.time)
	return event, poison == ""
}

func compare[K, V comparable](w *world, rule, what string, want, have map[K]V) {
	var d oracle.Differences
	if oracle.Compare(&d, rule, what, want, have); d.Total > 0 {
		w.fail("%s", d.Details[0])
	}
}

func (w *world) checkAll() {
	truths := make([]truth, w.plan.partitions)
	for p := range truths {
		truths[p] = w.fold(int32(p))
	}
	want := map[string]oracle.Count{} // rows of MySQL
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
		for k := range t.Pairs {
			want["c"+strconv.FormatUint(k.Post, 10)] = t.Posts[k.Post]
		}
		for h, n := range t.Hours {
			hour := time.Unix(h.Hour*3600, 0).UTC().Format(time.DateTime)
			want[fmt.Sprintf("h'%s','%s',%d", hour, h.Region, h.Partition)] = n
		}
	}
	have := map[string]oracle.Count{}
	for key, r := range w.mysql.rows {
		if _, wanted := want[key]; key[0] != 'p' && (wanted || len(w.excused) == 0) {
			have[key] = oracle.Count{Likes: r.number(colLikes), Dislikes: r.number(colDislikes)}
		}
	}
	compare(w, "I1", "MySQL", want, have)
}

// likeCounts returns what is committed in a partition of like-counts. whole: it ends with the state table's progress.
func (w *world) likeCounts(p int32) (counts table, whole bool) {
	counts = w.table(schema.TopicCounts, p)
	return counts, counts[schema.StateProgressKey] == w.table(schema.TopicState, p)[schema.StateProgressKey]
}

type table map[stored]stored

type stored string

func (s stored) String() string { return fmt.Sprintf("%x", string(s)) }

func (w *world) table(topic string, p int32) table {
	have := table{}
	for _, e := range w.kafka.log(topic, p).entries {
		switch {
		case !e.data():
		case e.value == nil:
			delete(have, stored(e.key))
		default:
			have[stored(e.key)] = stored(e.value)
		}
	}
	return have
}

// checkState checks I2: the state table and its owner's local copy equal the fold.
func (w *world) checkState(p int32, t truth) {
	want, have := table{}, w.table(schema.TopicState, p)
	for k, r := range t.Pairs {
		region, _ := schema.ParseRegion(r.Region)
		pair := schema.Pair{Reaction: schema.Action(r.Action).Reaction(), TimeMs: r.TimeMs, Offset: r.Offset,
			SinceMs: r.SinceMs, Region: region, Void: r.Void}
		want[stored(schema.AppendPairKey(nil, k.Post, k.User))] = stored(schema.AppendPair(nil, &pair))
		key, n := stored(schema.AppendCountsKey(nil, k.Post)), schema.Counts(t.Posts[k.Post])
		if _, ok := have[key]; ok || n != (schema.Counts{}) { // a post that never had a reaction may have no counts
			want[key] = stored(schema.AppendCounts(nil, n))
		}
	}
	for key := range have {
		if user, ok := schema.ParseVoidKey([]byte(key)); ok {
			want[key] = stored(schema.AppendVoid(nil, slices.Contains(t.Voided(p), user)))
		}
	}
	for _, user := range t.Voided(p) {
		want[stored(schema.AppendVoidKey(nil, user))] = stored(schema.AppendVoid(nil, true))
	}
	want[schema.StateProgressKey] = have[schema.StateProgressKey]
	compare(w, "I2", fmt.Sprintf("state table %d", p), want, have)
	older := slices.ContainsFunc(w.processes, func(proc *process) bool { return proc.older && proc.folds(p) })
	counts, whole := w.likeCounts(p)
	maps.DeleteFunc(have, func(key, _ stored) bool {
		return len(key) == schema.PairKeySize || len(key) == schema.VoidKeySize
	})
	if nothingFolded := len(counts) == 0 && len(have) == 1; whole || !older && !nothingFolded {
		compare(w, "I2", fmt.Sprintf("like-counts %d", p), have, counts)
	}
	for _, proc := range w.processes {
		if !proc.folds(p) {
			continue
		}
		local := table{}
		err := store.Scan(proc.stores.Get(schema.TopicState, p), nil, nil, func(key, value []byte) (bool, error) {
			local[stored(key)] = stored(value)
			return true, nil
		})
		if err != nil {
			w.fail("reading local state: %v", err)
		}
		compare(w, "I2", fmt.Sprintf("local state %d of %s", p, proc.name), want, local)
	}
}

func (p *process) folds(partition int32) bool {
	s := p.sessions[0]
	return s != nil && slices.ContainsFunc(s.claims, func(c *claim) bool { return c.partition == partition })
}

// checkUpdates checks I3 and I5: seq has no gap, and the deltas sum to the counts.
func (w *world) checkUpdates(p int32, t truth) {
	cells, counts := map[oracle.Cell]oracle.Count{}, map[uint64]oracle.Count{}
	seq, source := uint64(0), int64(0)
	for o, e := range w.kafka.log(schema.TopicUpdates, p).entries {
		if !e.data() {
			continue
		}
		var u kudosv1.LikeUpdate
		if err := proto.Unmarshal(e.value, &u); err != nil {
			w.fail("like-updates/%d offset %d cannot be decoded: %v", p, o, err)
		}
		if u.Seq != seq || u.SourceOffset < source {
			w.fail("I3: like-updates/%d offset %d has seq %d and source offset %d after seq %d and source offset %d", p,
				o, u.Seq, u.SourceOffset, seq-1, source)
		}
		seq, source = u.Seq+1, u.SourceOffset
		if string(e.key) == schema.ProgressKey {
			continue
		}
		post, _ := strconv.ParseUint(string(e.key), 10, 64)
		for _, d := range u.Deltas {
			n := oracle.Count{Likes: d.Likes, Dislikes: d.Dislikes}
			oracle.Add(cells, oracle.Cell{Post: post, Region: string(d.Region), Minute: d.Minute}, n)
			oracle.Add(counts, post, n)
		}
		if n := (oracle.Count{Likes: u.LikeCount, Dislikes: u.DislikeCount}); counts[post] != n {
			w.fail("I5: like-updates/%d offset %d has counts %v for post %d, but its deltas sum to %v", p, o, n, post,
				counts[post])
		}
	}
	compare(w, "I5", fmt.Sprintf("deltas of partition %d", p), t.Cells, cells)
}

func (w *world) checkOutput(p int32, t truth, truths []truth) {
	dead := map[int64]bool{}
	for _, e := range w.kafka.log(schema.TopicDLT, p).entries {
		if !e.data() {
			continue
		}
		w.tally["dead letter"]++
		o, err := strconv.ParseInt(e.header(schema.HeaderDLTOffset), 10, 64)
		if err != nil || dead[o] {
			w.fail("likes/%d offset %d has two dead letters, or one does not name its offset: %v", p, o, err)
		}
		dead[o] = true
	}
	if !maps.Equal(dead, t.dead) {
		w.fail("dead letters of likes/%d are for offsets %v, not %v", p, dead, t.dead)
	}
	seen := map[string]bool{}
	for o, e := range w.kafka.log(schema.TopicLikes, p).entries {
		if e.txn == nil || !e.data() {
			continue // not written by the fold
		}
		w.tally["forwarded"]++
		origin := string(e.headers[0].Value)
		have, ok := understand(&e)
		var from int32
		_, _ = fmt.Sscanf(origin, "%d@", &from)
		if w.excused[likes(from)] {
			continue // damaged since then
		}
		want := truths[from].forwards[origin]
		want.Settle(e.time) // by the clock of its new log, like any event
		if !ok || e.header(schema.HeaderForwarded) == "" || have != want || seen[origin] {
			w.fail("likes/%d offset %d: %s was forwarded as %v, not %v (duplicate: %v)", p, o, origin, have, want,
				seen[origin])
		}
		seen[origin] = true
	}
	for from := range truths {
		if w.excused[likes(int32(from))] {
			continue
		}
		for origin, e := range truths[from].forwards {
			if truths[from].PartitionOf(e.Post) == p && !seen[origin] {
				w.fail("likes %s was not forwarded to partition %d", origin, p)
			}
		}
	}
}
