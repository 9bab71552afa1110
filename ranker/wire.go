package ranker

import (
	"bytes"
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

// parseLocalKey parses the key of a list or a seal.
func parseLocalKey(b []byte) (key window.Key, partition int32, seal bool, err error) {
	parts := strings.Split(string(b), "/")
	n, err := strconv.ParseInt(parts[len(parts)-1], 10, 32)
	switch {
	case err != nil || n < 0:
		return key, 0, false, fmt.Errorf("key %q names no partition", b)
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

// Kinds of rows in trending-local-table, and the rest of the key:
const (
	rowClock   = "c" // (none): the clock
	rowWindow  = "w" // region, post: the likes in buckets (window.Partition)
	rowShared  = "s" // post: it is also in other partitions
	rowTotal   = "a" // region, post: the likes of all time
	rowLeaders = "b" // region: the posts with the most likes of all time
	rowList    = "l" // key of the list: its last version
)

// Kinds of rows in trending-table, and the rest of the key:
const (
	rowSource  = "s" // partition: what it has reported
	rowMark    = "m" // partition, watermark: the offset at which the partition reached it
	rowVersion = "v" // versionKey: a list of a partition
	rowEnd     = "e" // window: the window end of the last rankings
	rowRanking = "r" // <region>/<window>: the last ranking, as published
)

const regionSize = len(schema.Region{})

func appendRowKey(b []byte, kind string, key window.RowKey) []byte {
	b = append(append(b, kind...), key.Region[:]...)
	return binary.BigEndian.AppendUint64(b, key.Post)
}

// clockRow is a partition's clock, and the settings in use.
type clockRow struct {
	clock, idle, gap schema.Minute
	settings         uint64 // window.Config.Settings
	kept             []window.Kept
	regions          uint64 // window.Config.RegionsHash; 0: written by a version without it
}

func (r *clockRow) fields(c *codec) {
	signed(c, &r.clock, &r.idle, &r.gap)
	unsigned(c, &r.settings)
	list(c, &r.kept, 2, func(k *window.Kept) {
		signed(c, &k.Bucket)
		signed(c, &k.Since)
	})
	if !c.reading || len(c.b) > 0 {
		unsigned(c, &r.regions)
	}
}

// leadersRow has the ids of the leaders of a region, and the floor if any. Their likes are in the rowTotal rows.
type leadersRow struct {
	ids   []uint64
	floor []window.Post
}

func (r *leadersRow) fields(c *codec) {
	list(c, &r.ids, 1, func(id *uint64) { unsigned(c, id) })
	c.posts(&r.floor)
}

// versionKey sorts lists of a ranking and partition by window end, then offset. Exclusions may differ at an offset.
type versionKey struct {
	key        window.Key
	partition  int32
	end        schema.Minute
	offset     int64
	exclusions int64
}

// versionPrefix is the kind, the key of the ranking, a zero byte and the partition.
func versionPrefix(key window.Key, partition int32) []byte {
	b := append([]byte(rowVersion), rankingKey(key)...)
	return binary.BigEndian.AppendUint32(append(b, 0), uint32(partition))
}

func (k versionKey) row() []byte {
	b := appendOrdered(versionPrefix(k.key, k.partition), k.end)
	b = binary.BigEndian.AppendUint64(b, uint64(k.offset))
	return binary.BigEndian.AppendUint64(b, uint64(k.exclusions))
}

// parseVersionKey parses a key without the kind.
func parseVersionKey(b []byte) (k versionKey, err error) {
	name, tail, ok := bytes.Cut(b, []byte{0})
	region, win, both := strings.Cut(string(name), "/")
	if !ok || !both || len(tail) != 4+8+8+8 {
		return k, fmt.Errorf("row key %q is not that of a list", b)
	}
	k.partition = int32(binary.BigEndian.Uint32(tail))
	k.end = parseOrdered(tail[4:])
	k.offset = int64(binary.BigEndian.Uint64(tail[12:]))
	k.exclusions = int64(binary.BigEndian.Uint64(tail[20:]))
	k.key, err = parseKey(region, win)
	return k, err
}

// appendOrdered appends a time so that byte order is time order.
func appendOrdered(b []byte, m schema.Minute) []byte {
	return binary.BigEndian.AppendUint64(b, uint64(m)^1<<63)
}

func parseOrdered(b []byte) schema.Minute { return schema.Minute(binary.BigEndian.Uint64(b) ^ 1<<63) }

func partitionKey(kind string, p int32) []byte {
	return binary.BigEndian.AppendUint32([]byte(kind), uint32(p))
}

func markKey(p int32, watermark schema.Minute) []byte {
	return appendOrdered(partitionKey(rowMark, p), watermark)
}
