package ranker

import (
	"encoding/binary"
	"fmt"

	"kudos/ranker/window"
	"kudos/schema"
)

// Kinds of rows in trending-local-table; behind the kind:
const (
	rowWindow  = "w" // region, post: the likes in buckets (window.Partition)
	rowTotal   = "a" // region, post: the likes of all time
	rowLeaders = "b" // region: who is most liked of all time
	rowList    = "l" // key of the list: its last version
	rowClock   = "c" // nothing: the clock
	rowShared  = "s" // post: it is in other partitions too
)

const regionSize = len(schema.Region{})

func appendRowKey(b []byte, kind string, key window.RowKey) []byte {
	b = append(b, kind...)
	b = append(b, key.Region[:]...)
	return binary.BigEndian.AppendUint64(b, key.Post)
}

// parseRowKey reads what is behind the kind.
func parseRowKey(b []byte) (window.RowKey, error) {
	if len(b) != regionSize+8 {
		return window.RowKey{}, fmt.Errorf("row key %x is none of a region and a post", b)
	}
	return window.RowKey{Region: schema.Region(b), Post: binary.BigEndian.Uint64(b[regionSize:])}, nil
}

func appendSharedKey(b []byte, post uint64) []byte {
	return binary.BigEndian.AppendUint64(append(b, rowShared...), post)
}

// parseSharedKey reads what is behind the kind.
func parseSharedKey(b []byte) (post uint64, err error) {
	if len(b) != 8 {
		return 0, fmt.Errorf("row key %x is of no post", b)
	}
	return binary.BigEndian.Uint64(b), nil
}

func appendTotal(b []byte, t *total) []byte {
	b = append(b, wireVersion)
	b = binary.AppendVarint(b, t.likes)
	return binary.AppendVarint(b, t.reached)
}

func decodeTotal(b []byte) (total, error) {
	r := newReader(b)
	t := total{likes: r.varint(), reached: r.varint()}
	return t, r.err
}

// appendLeaders appends the posts' ids, and the floor if there is one. Their likes are in
// the rows of the totals.
func appendLeaders(b []byte, l *window.Leaders) []byte {
	b = binary.AppendUvarint(append(b, wireVersion), uint64(len(l.Best)))
	for _, p := range l.Best {
		b = binary.AppendUvarint(b, p.ID)
	}
	if l.Floor == nil {
		return appendPosts(b, nil)
	}
	return appendPosts(b, []window.Post{*l.Floor})
}

func decodeLeaders(b []byte) (ids []uint64, floor *window.Post, err error) {
	r := newReader(b)
	for range r.count(1) {
		ids = append(ids, r.uvarint())
	}
	if posts := r.posts(); len(posts) > 0 {
		floor = &posts[0]
	}
	return ids, floor, r.err
}

// clockRow is where a partition's time stands, and with which settings.
type clockRow struct {
	clock, idle, gap schema.Minute
	settings         uint64 // window.Config.Settings
	kept             []window.Kept
}

func appendClock(b []byte, c clockRow) []byte {
	b = append(b, wireVersion)
	for _, m := range []schema.Minute{c.clock, c.idle, c.gap} {
		b = binary.AppendVarint(b, int64(m))
	}
	b = binary.AppendUvarint(b, c.settings)
	b = binary.AppendUvarint(b, uint64(len(c.kept)))
	for _, k := range c.kept {
		b = binary.AppendVarint(b, k.Bucket)
		b = binary.AppendVarint(b, int64(k.Since))
	}
	return b
}

func decodeClock(b []byte) (clockRow, error) {
	r := newReader(b)
	c := clockRow{clock: r.minute(), idle: r.minute(), gap: r.minute(), settings: r.uvarint()}
	for range r.count(2) {
		c.kept = append(c.kept, window.Kept{Bucket: r.varint(), Since: r.minute()})
	}
	return c, r.err
}
