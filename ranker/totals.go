package ranker

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"kudos/ranker/window"
	"kudos/schema"
)

// totals are the likes of all time of each post, in each region and in all together. They
// live in the state table; in memory are the leaders only, and what a batch changes.
type totals struct {
	leaders map[schema.Region]*window.Leaders
	listed  map[window.Key][]window.Post
	dirty   map[schema.Region]bool // regions whose list may have changed
	// touched are the regions that have other leaders after the batch.
	touched map[schema.Region]bool
	// shared are posts that are in other partitions too, with what they have here by region:
	// they are in each list, and not among the leaders.
	shared map[uint64]map[schema.Region]window.Post

	changes map[window.RowKey]*total
	keys    []window.RowKey // of changes, in the order of their rows
	sums    map[schema.Region]int64
}

// total is a post's likes of all time in a region, and since when (Unix ms) they are so
// many.
type total struct {
	likes, reached int64
	// delta and at are what the batch adds, and when last. For all regions together the
	// update tells the likes themselves: first and firstAt are the first one's.
	delta, at      int64
	first, firstAt int64
}

func newTotals() *totals {
	return &totals{
		leaders: map[schema.Region]*window.Leaders{}, listed: map[window.Key][]window.Post{}, dirty: map[schema.Region]bool{},
		touched: map[schema.Region]bool{}, shared: map[uint64]map[schema.Region]window.Post{}, changes: map[window.RowKey]*total{}, sums: map[schema.Region]int64{},
	}
}

// load finds a region's leaders, and their likes in the table. What was committed last may
// not be in a list yet.
func (t *totals) load(tab *table, region schema.Region, row []byte) error {
	ids, floor, err := decodeLeaders(row)
	if err != nil {
		return fmt.Errorf("leaders of %s: %w", schema.RankingRegion(region), err)
	}
	slices.Sort(ids)
	l := &window.Leaders{Floor: floor}
	err = tab.store.Lookup(len(ids),
		func(i int) []byte { return appendRowKey(nil, rowTotal, window.RowKey{Region: region, Post: ids[i]}) },
		func(i int, value []byte) error {
			had, err := decodeTotal(value)
			l.Best = append(l.Best, window.LeaderOf(ids[i], had.likes, had.reached))
			return err
		})
	if err != nil {
		return fmt.Errorf("leaders of %s: %w", schema.RankingRegion(region), err)
	}
	slices.SortFunc(l.Best, window.Better)
	t.leaders[region], t.dirty[region] = l, true
	for post := range t.shared {
		if err := t.loadShared(tab, region, post); err != nil {
			return err
		}
	}
	return nil
}

// loadShared finds what a shared post has here in a region.
func (t *totals) loadShared(tab *table, region schema.Region, post uint64) error {
	value, err := tab.store.Get(string(appendRowKey(nil, rowTotal, window.RowKey{Region: region, Post: post})))
	if err != nil || value == nil {
		return err
	}
	had, err := decodeTotal(value)
	if err != nil {
		return fmt.Errorf("total of post %d in %s: %w", post, schema.RankingRegion(region), err)
	}
	t.shared[post][region] = window.LeaderOf(post, had.likes, had.reached)
	return nil
}

// share says whether a post is in other partitions too.
func (t *totals) share(tab *table, post uint64, shared bool, topN int, excluded func(uint64) bool) error {
	before, was := t.shared[post]
	if shared == was {
		return nil
	}
	delete(t.shared, post)
	if shared {
		t.shared[post] = map[schema.Region]window.Post{}
	}
	for region, l := range t.leaders {
		leader := before[region] // none: it leaves
		leader.ID = post
		if shared {
			if err := t.loadShared(tab, region, post); err != nil {
				return err
			}
		}
		_, members := l.Update(leader, topN, excluded)
		t.dirty[region] = true
		t.touched[region] = t.touched[region] || members
	}
	return nil
}

// add takes an update that was appended at a time.
func (t *totals) add(post uint64, u *schema.Update, at int64) {
	global := t.change(window.RowKey{Region: schema.Global, Post: post})
	switch {
	case global.firstAt == 0:
		global.first, global.firstAt = u.Counts.Likes, at
	case u.Counts.Likes != global.likes:
		global.at = at
	}
	global.likes = u.Counts.Likes

	clear(t.sums)
	for i := range u.Deltas {
		t.sums[u.Deltas[i].Region] += u.Deltas[i].Likes
	}
	for region, sum := range t.sums {
		if sum != 0 {
			c := t.change(window.RowKey{Region: region, Post: post})
			c.delta, c.at = c.delta+sum, at
		}
	}
}

func (t *totals) change(key window.RowKey) *total {
	c := t.changes[key]
	if c == nil {
		c = &total{}
		t.changes[key] = c
	}
	return c
}

// settle finds what the changes come to, with the help of the table, and writes them.
func (t *totals) settle(tab *table, out *output, topN int, excluded func(uint64) bool) error {
	t.keys = t.keys[:0]
	for key := range t.changes {
		t.keys = append(t.keys, key)
	}
	slices.SortFunc(t.keys, compareRows)
	var buf []byte
	next := 0
	err := tab.store.Lookup(len(t.keys),
		func(i int) []byte {
			buf = appendRowKey(buf[:0], rowTotal, t.keys[i])
			return buf
		},
		func(i int, value []byte) error {
			for ; next < i; next++ {
				t.settleOne(out, t.keys[next], total{}, topN, excluded)
			}
			had, err := decodeTotal(value)
			if err != nil {
				return fmt.Errorf("total of post %d in %s: %w", t.keys[i].Post, schema.RankingRegion(t.keys[i].Region), err)
			}
			next++
			t.settleOne(out, t.keys[i], had, topN, excluded)
			return nil
		})
	if err != nil {
		return err
	}
	for ; next < len(t.keys); next++ {
		t.settleOne(out, t.keys[next], total{}, topN, excluded)
	}
	return nil
}

func (t *totals) settleOne(out *output, key window.RowKey, had total, topN int, excluded func(uint64) bool) {
	c := t.changes[key]
	if key.Region == schema.Global {
		if c.reached = had.reached; c.first != had.likes {
			c.reached = c.firstAt
		}
		if c.at != 0 {
			c.reached = c.at
		}
	} else {
		c.likes, c.reached = had.likes+c.delta, c.at
	}
	if c.likes == had.likes && c.reached == had.reached {
		return
	}
	out.set(appendRowKey(nil, rowTotal, key), appendTotal(nil, c))
	l := t.leaders[key.Region]
	if l == nil {
		l = &window.Leaders{}
		t.leaders[key.Region] = l
		t.touched[key.Region] = true // so that the region is known to the next one
	}
	post := window.LeaderOf(key.Post, c.likes, c.reached)
	if regions, ok := t.shared[key.Post]; ok {
		regions[key.Region], t.dirty[key.Region] = post, true
		return
	}
	listed, members := l.Update(post, topN, excluded)
	if listed {
		t.dirty[key.Region] = true
	}
	if members {
		t.touched[key.Region] = true
	}
}

// lists makes the lists that have changed, as of the position next.
func (t *totals) lists(tab *table, config *window.Config, excluded func(uint64) bool, next int64) (lists []window.Version, err error) {
	for _, region := range sortedRegions(t.dirty) {
		l := t.leaders[region]
		if l == nil {
			continue
		}
		posts, ok := l.List(config.TopN, config.MinLikes, excluded)
		if !ok { // those known have fallen behind some that are not
			if l, err = t.search(tab, region, config.TopN, excluded); err != nil {
				return nil, err
			}
			t.leaders[region], t.touched[region] = l, true
			posts, _ = l.List(config.TopN, config.MinLikes, excluded)
		}
		posts = t.addShared(posts, region)
		key := window.Key{Region: region, Window: schema.LeaderboardAll}
		if !slices.Equal(posts, t.listed[key]) {
			t.listed[key] = posts
			lists = append(lists, window.Version{Key: key, Offset: next, Posts: posts})
		}
	}
	clear(t.dirty)
	return lists, nil
}

// addShared adds what shared posts have here, however little that is. Those excluded as well: they
// leave where lists are merged, and there is no time at which only some partitions have left them out.
func (t *totals) addShared(posts []window.Post, region schema.Region) []window.Post {
	for _, id := range slices.Sorted(maps.Keys(t.shared)) {
		if post := t.shared[id][region]; post.Likes > 0 {
			posts = append(posts, post)
		}
	}
	return posts
}

// search looks all posts of a region through: those in the table, and those of the batch.
func (t *totals) search(tab *table, region schema.Region, topN int, excluded func(uint64) bool) (*window.Leaders, error) {
	l := &window.Leaders{}
	take := func(post uint64, likes, reached int64) {
		if _, shared := t.shared[post]; shared {
			return
		}
		l.Update(window.LeaderOf(post, likes, reached), topN, excluded)
	}
	prefix := rowTotal + string(region[:])
	err := tab.scan(prefix, func(key, value []byte) error {
		post := binary.BigEndian.Uint64(key)
		if t.changes[window.RowKey{Region: region, Post: post}] != nil {
			return nil
		}
		had, err := decodeTotal(value)
		take(post, had.likes, had.reached)
		return err
	})
	for key, c := range t.changes {
		if key.Region == region {
			take(key.Post, c.likes, c.reached)
		}
	}
	return l, err
}

// keep writes who the leaders are, where they are others now.
func (t *totals) keep(out *output) {
	for _, region := range sortedRegions(t.touched) {
		out.set(append([]byte(rowLeaders), region[:]...), appendLeaders(nil, t.leaders[region]))
	}
	clear(t.touched)
	clear(t.changes)
}

// exclusionsChanged has all lists looked at.
func (t *totals) exclusionsChanged() {
	for region := range t.leaders {
		t.dirty[region] = true
	}
}

func compareRows(a, b window.RowKey) int {
	if c := bytes.Compare(a.Region[:], b.Region[:]); c != 0 {
		return c
	}
	if a.Post < b.Post {
		return -1
	}
	if a.Post > b.Post {
		return 1
	}
	return 0
}

func sortedRegions(set map[schema.Region]bool) []schema.Region {
	var regions []schema.Region
	for r := range set {
		regions = append(regions, r)
	}
	slices.SortFunc(regions, func(a, b schema.Region) int { return bytes.Compare(a[:], b[:]) })
	return regions
}
