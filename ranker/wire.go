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

// What the ranker writes for itself, in trending-local and in its state tables: a version
// byte, then integers as varints (encoding/binary). An unknown version is an error.

const wireVersion = 2

// origin is what lists are made of and by. Those of another one have begun anew.
type origin struct {
	Table    schema.TopicID // of the state table
	Settings uint64         // window.Config.Settings
}

// localList is a record of trending-local: a version of a partition's list. Its key is
// <region>/<window>/<partition>, its partition that of the ranking's key.
type localList struct {
	window.Version
	Exclusions int64
	Origin     origin
}

// localSeal is the other kind of record there, which ends each transaction that made lists, in
// all partitions of trending-local: all lists up to its offset are out. Its key is
// _/<partition>.
type localSeal struct {
	window.Seal
	Marks []window.SealedMark
	// Gap is the time of the last update that compaction took before it was counted: the
	// sums of all time begin there. NoMinute: they are complete.
	Gap    schema.Minute
	Origin origin
	layout
}

// layout is where the posts of a partition live: how many layouts there were before, and whether some are on their
// way (`kudos topics repartition`). Lists of one and of another do not go together: a post would be in both, or in none.
type layout struct {
	layouts uint32
	moving  bool
}

// appendLayout appends nothing for the first layout, as before there were others.
func appendLayout(b []byte, l layout) []byte {
	if l == (layout{}) {
		return b
	}
	moving := uint64(0)
	if l.moving {
		moving = 1
	}
	return binary.AppendUvarint(binary.AppendUvarint(b, uint64(l.layouts)), moving)
}

func (r *reader) layout() (l layout) {
	if r.err == nil && len(r.b) > 0 {
		l.layouts, l.moving = uint32(r.uvarint()), r.uvarint() == 1
	}
	return l
}

const sealRegion = "_"

func listKey(key window.Key, partition int32) []byte {
	return fmt.Appendf(nil, "%s/%s/%d", schema.RankingRegion(key.Region), key.Window, partition)
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

func appendPosts(b []byte, posts []window.Post) []byte {
	b = binary.AppendUvarint(b, uint64(len(posts)))
	for _, p := range posts {
		b = binary.AppendUvarint(b, p.ID)
		b = binary.AppendVarint(b, p.Likes)
		b = binary.AppendVarint(b, int64(p.Score))
		b = binary.AppendVarint(b, p.Reached)
	}
	return b
}

func appendOrigin(b []byte, o origin) []byte {
	return binary.BigEndian.AppendUint64(append(b, o.Table[:]...), o.Settings)
}

func appendList(b []byte, l *localList) []byte {
	b = appendOrigin(append(b, wireVersion), l.Origin)
	b = binary.AppendVarint(b, int64(l.End))
	b = binary.AppendVarint(b, l.Offset)
	b = binary.AppendVarint(b, l.Exclusions)
	return appendPosts(b, l.Posts)
}

func appendSeal(b []byte, s *localSeal) []byte {
	b = appendOrigin(append(b, wireVersion), s.Origin)
	for _, n := range []int64{int64(s.Clock), int64(s.Watermark), s.Offset, int64(s.Idle), s.Exclusions, int64(s.Gap)} {
		b = binary.AppendVarint(b, n)
	}
	return appendLayout(appendMarks(b, s.Marks), s.layout)
}

func appendMarks(b []byte, marks []window.SealedMark) []byte {
	b = binary.AppendUvarint(b, uint64(len(marks)))
	for _, m := range marks {
		b = binary.AppendVarint(b, int64(m.Watermark))
		b = binary.AppendVarint(b, m.Offset)
		b = binary.AppendVarint(b, int64(m.Idle))
		b = binary.AppendVarint(b, m.Exclusions)
	}
	return b
}

// reader reads what was appended. After the first error all it gives is zero.
type reader struct {
	b   []byte
	err error
}

var errShort = errors.New("it ends too early")

// newReader checks the version.
func newReader(b []byte) *reader {
	r := &reader{b: b}
	if len(b) == 0 {
		r.err = errShort
	} else if b[0] != wireVersion {
		r.err = fmt.Errorf("version %d is not known, only %d", b[0], wireVersion)
	} else {
		r.b = b[1:]
	}
	return r
}

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.b)
	return read(r, v, n)
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	return read(r, v, n)
}

func (r *reader) minute() schema.Minute { return schema.Minute(r.varint()) }

func read[T int64 | uint64](r *reader, v T, n int) T {
	if r.err != nil {
		return 0
	}
	if n <= 0 {
		r.err = errShort
		return 0
	}
	r.b = r.b[n:]
	return v
}

// count reads how many things of at least size bytes follow.
func (r *reader) count(size int) int {
	n := r.uvarint()
	if r.err == nil && n > uint64(len(r.b)/size) {
		r.err = errShort
		return 0
	}
	return int(n)
}

func (r *reader) posts() []window.Post {
	var posts []window.Post
	for range r.count(4) {
		posts = append(posts, window.Post{ID: r.uvarint(), Likes: r.varint(), Score: schema.Score(r.varint()), Reached: r.varint()})
	}
	return posts
}

func (r *reader) marks() []window.SealedMark {
	var marks []window.SealedMark
	for range r.count(4) {
		m := window.SealedMark{}
		m.Watermark, m.Offset, m.Idle, m.Exclusions = r.minute(), r.varint(), r.minute(), r.varint()
		marks = append(marks, m)
	}
	return marks
}

func (r *reader) origin() (o origin) {
	const size = len(o.Table) + 8
	if r.err == nil && len(r.b) < size {
		r.err = errShort
	}
	if r.err == nil {
		o = origin{schema.TopicID(r.b[:len(o.Table)]), binary.BigEndian.Uint64(r.b[len(o.Table):])}
		r.b = r.b[size:]
	}
	return o
}

func decodeList(b []byte, l *localList) error {
	r := newReader(b)
	l.Origin = r.origin()
	l.End, l.Offset, l.Exclusions = r.minute(), r.varint(), r.varint()
	l.Posts = r.posts()
	return r.err
}

func decodeSeal(b []byte, s *localSeal) error {
	r := newReader(b)
	s.Origin = r.origin()
	s.Clock, s.Watermark, s.Offset, s.Idle, s.Exclusions, s.Gap = r.minute(), r.minute(), r.varint(), r.minute(), r.varint(), r.minute()
	s.Marks = r.marks()
	s.layout = r.layout()
	return r.err
}
