package ranker

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"kudos/ranker/window"
	"kudos/schema"
)

// wireVersion begins each value that the ranker writes for itself, in trending-local and its state tables. Integers as
// varints (encoding/binary) follow. Any other version is an error.
const wireVersion = 2

// codec writes or reads the fields of a value, so that one function lists them for both.
type codec struct {
	b       []byte // what is written, or left to read
	reading bool
	err     error // of reading: the fields from there on stay as they are
}

func encode(fields func(*codec)) []byte {
	c := codec{b: []byte{wireVersion}}
	fields(&c)
	return c.b
}

var errShort = errors.New("it ends too early")

func decode(b []byte, fields func(*codec)) error {
	if len(b) == 0 {
		return errShort
	}
	if b[0] != wireVersion {
		return fmt.Errorf("version %d is not known, only %d", b[0], wireVersion)
	}
	c := codec{b: b[1:], reading: true}
	fields(&c)
	return c.err
}

// skip skips n bytes that were read; below 1, they were not there. It is false after any error.
func (c *codec) skip(n int) bool {
	if c.err == nil && n <= 0 {
		c.err = errShort
	}
	if c.err == nil {
		c.b = c.b[n:]
	}
	return c.err == nil
}

func signed[T ~int64](c *codec, fields ...*T) {
	for _, f := range fields {
		if !c.reading {
			c.b = binary.AppendVarint(c.b, int64(*f))
		} else if v, n := binary.Varint(c.b); c.skip(n) {
			*f = T(v)
		}
	}
}

func unsigned[T ~uint32 | ~uint64](c *codec, f *T) {
	if !c.reading {
		c.b = binary.AppendUvarint(c.b, uint64(*f))
	} else if v, n := binary.Uvarint(c.b); c.skip(n) {
		*f = T(v)
	}
}

func (c *codec) flag(f *bool) {
	n := uint64(0)
	if *f {
		n = 1
	}
	unsigned(c, &n)
	*f = n == 1
}

// list is the number of items, of at least size bytes each, and then the items.
func list[T any](c *codec, items *[]T, size int, item func(*T)) {
	n := uint64(len(*items))
	unsigned(c, &n)
	if c.reading && c.err == nil && n > uint64(len(c.b)/size) {
		c.err = errShort
	}
	if c.reading && c.err == nil && n > 0 {
		*items = make([]T, n)
	}
	for i := range *items {
		item(&(*items)[i])
	}
}

func (c *codec) posts(posts *[]window.Post) {
	list(c, posts, 4, func(p *window.Post) {
		unsigned(c, &p.ID)
		signed(c, &p.Likes)
		signed(c, &p.Score)
		signed(c, &p.Reached)
	})
}

// mark is a mark without its watermark.
func (c *codec) mark(m *window.Mark) {
	signed(c, &m.Offset)
	signed(c, &m.Idle)
	signed(c, &m.Exclusions)
}

func (c *codec) seal(s *window.Seal) {
	signed(c, &s.Clock, &s.Watermark)
	c.mark(&s.Mark)
}

// origin is what a partition's lists are made of. Lists of another origin are void.
type origin struct {
	Table    schema.TopicID // of the state table
	Settings uint64         // window.Config.Settings
}

func (c *codec) origin(o *origin) {
	const size = len(o.Table) + 8
	if !c.reading {
		c.b = binary.BigEndian.AppendUint64(append(c.b, o.Table[:]...), o.Settings)
	} else if b := c.b; len(b) < size {
		c.skip(0)
	} else if c.skip(size) {
		o.Table, o.Settings = schema.TopicID(b[:len(o.Table)]), binary.BigEndian.Uint64(b[len(o.Table):])
	}
}

// layout is the layout that a partition's posts have: how many there were before, and whether posts are migrating
// (`kudos topics repartition`). Lists of different layouts cannot be merged: a post would be in both, or in none.
type layout struct {
	layouts uint32
	moving  bool
}

// layout writes nothing for the first layout, the only one that the first versions had.
func (c *codec) layout(l *layout) {
	if c.reading && len(c.b) == 0 || !c.reading && *l == (layout{}) {
		return
	}
	unsigned(c, &l.layouts)
	c.flag(&l.moving)
}

// localList is a record of trending-local: a version of a partition's list. Its key is <region>/<window>/<partition>,
// its partition that of the ranking's key.
type localList struct {
	window.Version
	exclusions int64
	origin     origin
}

func (l *localList) fields(c *codec) {
	c.origin(&l.origin)
	signed(c, &l.End)
	signed(c, &l.Offset, &l.exclusions)
	c.posts(&l.Posts)
}

// localSeal is the other kind of record there, in all partitions of trending-local. It ends each transaction that has
// lists: all lists up to its offset are written. Its key is _/<partition>.
type localSeal struct {
	origin origin
	window.Seal
	// gap is the time of the last update that was compacted before it was counted: the sums of all time begin there.
	// NoMinute: they are complete.
	gap    schema.Minute
	marks  []window.Mark
	layout layout
}

func (s *localSeal) fields(c *codec) {
	c.origin(&s.origin)
	c.seal(&s.Seal)
	signed(c, &s.gap)
	list(c, &s.marks, 4, func(m *window.Mark) {
		signed(c, &m.Watermark)
		c.mark(m)
	})
	c.layout(&s.layout)
}

const sealRegion = "_"

func rankingKey(key window.Key) []byte {
	return []byte(schema.RankingKey(schema.RankingRegion(key.Region), key.Window))
}

func listKey(key window.Key, partition int32) []byte {
	return fmt.Appendf(rankingKey(key), "/%d", partition)
}

func sealKey(partition int32) []byte { return fmt.Appendf(nil, "%s/%d", sealRegion, partition) }

// parseLocalKey reads the key of a list or a seal.
func parseLocalKey(b []byte) (key window.Key, partition int32, seal bool, err error) {
	parts := strings.Split(string(b), "/")
	n, err := strconv.ParseInt(parts[len(parts)-1], 10, 32)
	if err != nil || n < 0 {
		return key, 0, false, fmt.Errorf("key %q names no partition", b)
	}
	switch {
	case len(parts) == 2 && parts[0] == sealRegion:
		return key, int32(n), true, nil
	case len(parts) == 3:
		key, err = parseKey(parts[0], parts[1])
		return key, int32(n), false, err
	}
	return key, 0, false, fmt.Errorf("key %q is of no known kind", b)
}

func parseKey(region, name string) (window.Key, error) {
	if region == schema.GlobalName {
		return window.Key{Region: schema.Global, Window: name}, nil
	}
	r, ok := schema.ParseRegion(region)
	if !ok {
		return window.Key{}, fmt.Errorf("%q is no region", region)
	}
	return window.Key{Region: r, Window: name}, nil
}
