package ranker

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"kudos/ranker/window"
	"kudos/schema"
)

// totals are each post's all-time likes by region, in the state table; memory has only leaders and pending changes.
type totals struct {
	table   *table
	regions map[schema.Region]*region
	// shared are posts that are in other partitions too, with their likes here by region: in all lists, but no leaders.
	shared map[uint64]map[schema.Region]window.Post

	changes map[window.RowKey]*change
	keys    []window.RowKey // of changes, sorted
	sums    map[schema.Region]int64
}

type region struct {
	leaders *window.Leaders
	touched bool          // leaders differ from those in the table
	listed  []window.Post // the last list
	dirty   bool          // the list may have changed
}

// total is a number of likes and when it was reached (Unix ms).
type total struct{ likes, reached int64 }

func (t *total) fields(c *codec) { signed(c, &t.likes, &t.reached) }

func (t total) of(post uint64) window.Post { return window.LeaderOf(post, t.likes, t.reached) }

// change is a transaction's effect on a total: updates carry global likes as a value, regional ones as differences.
type change struct {
	had, now       total
	delta, at      int64 // sum of the differences; append time of the last change
	first, firstAt int64 // of the first update, for global only: at covers the later ones
}

func newTotals(t *table) *totals {
	return &totals{table: t, regions: map[schema.Region]*region{}, shared: map[uint64]map[schema.Region]window.Post{},
		changes: map[window.RowKey]*change{}, sums: map[schema.Region]int64{}}
}

// region finds or adds a region. A new one is touched, so that a leaders row is written and the next owner finds it.
func (t *totals) region(name schema.Region) *region {
	r := t.regions[name]
	if r == nil {
		r = &region{leaders: &window.Leaders{}, touched: true}
		t.regions[name] = r
	}
	return r
}

// load reads the leaders of a region. It marks the list dirty because the last commit may not be in a list yet.
func (t *totals) load(key, value []byte) error {
	if len(key) != regionSize {
		return fmt.Errorf("row key %x is not a region", key)
	}
	name := schema.Region(key)
	var row leadersRow
	if err := decode(value, row.fields); err != nil {
		return fmt.Errorf("leaders of %s: %w", schema.RankingRegion(name), err)
	}
	r := t.region(name)
	r.leaders, r.dirty, r.touched = &window.Leaders{}, true, false
	if len(row.floor) > 0 {
		r.leaders.Floor = &row.floor[0]
	}
	for _, id := range row.ids {
		r.leaders.Best = append(r.leaders.Best, window.Post{ID: id})
	}
	return nil
}

func (t *totals) loadLikes() error {
	var keys []window.RowKey
	for name, r := range t.regions {
		for _, p := range r.leaders.Best {
			keys = append(keys, window.RowKey{Region: name, Post: p.ID})
		}
		r.leaders.Best = nil
	}
	err := t.lookup(keys, func(key window.RowKey, had total) {
		l := t.regions[key.Region].leaders
		l.Best = append(l.Best, had.of(key.Post))
	})
	if err != nil {
		return err
	}
	for _, r := range t.regions {
		slices.SortFunc(r.leaders.Best, window.Better)
	}
	return t.loadShared(slices.Collect(maps.Keys(t.shared))...)
}

func (t *totals) loadShared(posts ...uint64) error {
	var keys []window.RowKey
	for name := range t.regions {
		for _, post := range posts {
			keys = append(keys, window.RowKey{Region: name, Post: post})
		}
	}
	return t.lookup(keys, func(key window.RowKey, had total) { t.shared[key.Post][key.Region] = had.of(key.Post) })
}

// lookup sorts keys, and calls found for those that have a row.
func (t *totals) lookup(keys []window.RowKey, found func(key window.RowKey, had total)) error {
	slices.SortFunc(keys, func(a, b window.RowKey) int {
		return cmp.Or(compareRegions(a.Region, b.Region), cmp.Compare(a.Post, b.Post))
	})
	buf := make([]byte, 0, len(rowTotal)+regionSize+8)
	return t.table.store.Lookup(len(keys),
		func(i int) []byte { return appendRowKey(buf, rowTotal, keys[i]) },
		func(i int, value []byte) error {
			had, err := readTotal(keys[i], value)
			found(keys[i], had)
			return t.table.readable(err)
		})
}

func readTotal(key window.RowKey, value []byte) (had total, err error) {
	if err := decode(value, had.fields); err != nil {
		return had, fmt.Errorf("total of post %d in %s: %w", key.Post, schema.RankingRegion(key.Region), err)
	}
	return had, nil
}

// share records that a post has become shared, or no longer is.
func (t *totals) share(post uint64, shared bool) error {
	before := t.shared[post]
	delete(t.shared, post)
	if shared {
		t.shared[post] = map[schema.Region]window.Post{}
		if err := t.loadShared(post); err != nil {
			return err
		}
	}
	for name, r := range t.regions {
		leader := before[name] // zero likes remove it from the leaders
		leader.ID = post
		r.leaders.Update(leader, t.table.config.TopN, t.table.exclusions.has)
		r.dirty, r.touched = true, true
	}
	return nil
}

// add adds an update with append time at.
func (t *totals) add(post uint64, u *schema.Update, at int64) {
	global := t.change(schema.Global, post)
	switch {
	case global.firstAt == 0:
		global.first, global.firstAt = u.Counts.Likes, at
	case u.Counts.Likes != global.now.likes:
		global.at = at
	}
	global.now.likes = u.Counts.Likes

	clear(t.sums)
	for i := range u.Deltas {
		t.sums[u.Deltas[i].Region] += u.Deltas[i].Likes
	}
	for region, sum := range t.sums {
		if sum != 0 {
			c := t.change(region, post)
			c.delta, c.at = c.delta+sum, at
		}
	}
}

func (t *totals) change(region schema.Region, post uint64) *change {
	key := window.RowKey{Region: region, Post: post}
	c := t.changes[key]
	if c == nil {
		c = &change{}
		t.changes[key] = c
	}
	return c
}

// settle applies the changes to the rows of the table.
func (t *totals) settle() error {
	t.keys = slices.AppendSeq(t.keys[:0], maps.Keys(t.changes))
	if err := t.lookup(t.keys, func(key window.RowKey, had total) { t.changes[key].had = had }); err != nil {
		return err
	}
	for _, key := range t.keys {
		t.settleOne(key, t.changes[key])
	}
	return nil
}

func (t *totals) settleOne(key window.RowKey, c *change) {
	switch {
	case key.Region != schema.Global:
		c.now = total{c.had.likes + c.delta, c.at}
	case c.at != 0:
		c.now.reached = c.at
	case c.first != c.had.likes:
		c.now.reached = c.firstAt
	default:
		c.now.reached = c.had.reached
	}
	if c.now == c.had {
		return
	}
	t.table.set(appendRowKey(nil, rowTotal, key), encode(c.now.fields))
	r := t.region(key.Region)
	post := c.now.of(key.Post)
	if regions, ok := t.shared[key.Post]; ok {
		regions[key.Region], r.dirty = post, true
		return
	}
	listed, members := r.leaders.Update(post, t.table.config.TopN, t.table.exclusions.has)
	r.dirty, r.touched = r.dirty || listed, r.touched || members
}

// lists returns the lists that have changed, as of the offset next.
func (t *totals) lists(next int64) (lists []window.Version, err error) {
	topN, minLikes, excluded := t.table.config.TopN, t.table.config.MinLikes, t.table.exclusions.has
	for _, name := range slices.SortedFunc(maps.Keys(t.regions), compareRegions) {
		r := t.regions[name]
		if !r.dirty {
			continue
		}
		posts, ok := r.leaders.List(topN, minLikes, excluded)
		if !ok { // leaders have dropped below posts that are not in memory
			if r.leaders, err = t.search(name); err != nil {
				return nil, err
			}
			r.touched = true
			posts, _ = r.leaders.List(topN, minLikes, excluded)
		}
		posts = t.addShared(posts, name)
		if !slices.Equal(posts, r.listed) {
			r.listed = posts
			key := window.Key{Region: name, Window: schema.LeaderboardAll}
			lists = append(lists, window.Version{Key: key, Offset: next, Posts: posts})
		}
		r.dirty = false
	}
	return lists, nil
}

// addShared appends the shared posts, however few likes they have here. It includes excluded ones, which the merge
// removes: otherwise there would be a time at which only some partitions omit them.
func (t *totals) addShared(posts []window.Post, region schema.Region) []window.Post {
	for _, id := range slices.Sorted(maps.Keys(t.shared)) {
		if post := t.shared[id][region]; post.Likes > 0 {
			posts = append(posts, post)
		}
	}
	return posts
}

// search finds the leaders among all posts of a region: those in the table and those that the transaction changes.
func (t *totals) search(region schema.Region) (*window.Leaders, error) {
	l := &window.Leaders{}
	take := func(post uint64, now total) {
		if _, shared := t.shared[post]; !shared {
			l.Update(now.of(post), t.table.config.TopN, t.table.exclusions.has)
		}
	}
	prefix := append([]byte(rowTotal), region[:]...)
	err := t.table.scan(prefix, nil, func(key, value []byte) error {
		row := window.RowKey{Region: region, Post: binary.BigEndian.Uint64(key[len(prefix):])}
		if t.changes[row] != nil {
			return nil
		}
		had, err := readTotal(row, value)
		take(row.Post, had)
		return err
	})
	for key, c := range t.changes {
		if key.Region == region {
			take(key.Post, c.now)
		}
	}
	return l, err
}

func (t *totals) keep() {
	for name, r := range t.regions {
		if !r.touched {
			continue
		}
		var row leadersRow
		for _, p := range r.leaders.Best {
			row.ids = append(row.ids, p.ID)
		}
		if r.leaders.Floor != nil {
			row.floor = []window.Post{*r.leaders.Floor}
		}
		t.table.set(append([]byte(rowLeaders), name[:]...), encode(row.fields))
		r.touched = false
	}
	clear(t.changes)
}

func compareRegions(a, b schema.Region) int { return bytes.Compare(a[:], b[:]) }
