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

// wireVersion is the first byte of each internal value of the ranker, in trending-local and its state tables. Integers
// follow as varints (encoding/binary). Any other version is an error.
const wireVersion = 2

// codec encodes or decodes the fields of a value, so that one function lists the fields for both directions.
type codec struct {
	b       []byte // output, or input not yet read
	reading bool
	err     error // the first read error; fields from there on are not set
}

func encode(fields func(*codec)) []byte {
	c := codec{b: []byte{wireVersion}}
	fields(&c)
	return c.b
}

var errShort = errors.New("unexpected end of data")

func decode(b []byte, fields func(*codec)) error {
	if len(b) == 0 {
		return errShort
	}
	if b[0] != wireVersion {
		return fmt.Errorf("version %d is unknown, expected %d", b[0], wireVersion)
	}
	c := codec{b: b[1:], reading: true}
	fields(&c)
	return c.err
}

// skip consumes n bytes that were read; n < 1 means that the input was too short. It returns false after any error.
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

// list encodes the number of items, and then the items, which take at least size bytes each.
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

// mark encodes a mark without its watermark.
func (c *codec) mark(m *window.Mark) {
	signed(c, &m.Offset)
	signed(c, &m.Idle)
	signed(c, &m.Exclusions)
}

func (c *codec) seal(s *window.Seal) {
	signed(c, &s.Clock, &s.Watermark)
	c.mark(&s.Mark)
}

// origin identifies what a partition's lists were computed from. Lists of different origins cannot be combined.
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

// layout is the layout of a partition's posts: how many came before, and whether posts are migrating (`kudos topics
// repartition`). Lists of different layouts cannot be merged: a migrated post would count twice or not at all.
type layout struct {
	layouts   uint32
	migrating bool
}

// layout writes nothing for the first layout, because older versions had no such field.
func (c *codec) layout(l *layout) {
	if c.reading && len(c.b) == 0 || !c.reading && *l == (layout{}) {
		return
	}
	unsigned(c, &l.layouts)
	c.flag(&l.migrating)
}

// localList is a record of trending-local: a version of one partition's list. Its key is <region>/<window>/<partition>;
// the key of the ranking determines its partition in trending-local.
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

// localSeal is the other kind of record in trending-local, written to all partitions. It ends each transaction that has
// lists, and says that all lists up to its offset have been written. Its key is _/<partition>.
type localSeal struct {
	origin origin
	window.Seal
	// gap is the time of the last update that was compacted uncounted: all-time sums start there. NoMinute: complete.
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

// parseLocalKey parses the key of a list or a seal.
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
	return key, 0, false, fmt.Errorf("key %q is of an unknown kind", b)
}

func parseKey(region, name string) (window.Key, error) {
	if region == schema.GlobalName {
		return window.Key{Region: schema.Global, Window: name}, nil
	}
	r, ok := schema.ParseRegion(region)
	if !ok {
		return window.Key{}, fmt.Errorf("%q is not a region", region)
	}
	return window.Key{Region: r, Window: name}, nil
}
