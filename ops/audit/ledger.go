package audit

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"kudos/schema"
)

// Ledger lays what MySQL holds and what the stream says beside each other: on disk,
// in the order of posts, so that memory does not grow with their number. All of it is
// sums of likes and dislikes under a key of one byte (whose, see kind) and a suffix
// (of what: a post and shard, or a cell of like_hourly).
type Ledger struct {
	db    *pebble.DB
	cache *pebble.Cache
}

// kind is whose sum it is, and of what.
type kind byte

const (
	mysqlCount kind = 'm' // what like_count holds
	mysqlHour  kind = 'M' // what like_hourly holds
	// The stream's word. In a deep audit it is that of the state table, from which the
	// updates that MySQL has not applied yet are to be taken off.
	streamCount kind = 's'
	streamHour  kind = 'S'
	laterCount  kind = 'l'
	laterHour   kind = 'L'
	// lastCount is what the last update of a post in a partition carries, under partition and post: posts that have
	// moved have one in each partition where they were.
	lastCount kind = 'p'
)

const ledgerMemtable = 32 << 20

func openLedger(dir string, cacheBytes int64) (*Ledger, error) {
	cache := pebble.NewCache(cacheBytes)
	db, err := pebble.Open(dir, &pebble.Options{
		Cache:                       cache,
		DisableWAL:                  true, // it goes with the process
		FormatMajorVersion:          pebble.FormatNewest,
		MemTableSize:                ledgerMemtable,
		MemTableStopWritesThreshold: 4,
		Merger:                      &pebble.Merger{Name: "kudos.sum", Merge: newSum},
		Logger:                      silent{},
	})
	if err != nil {
		cache.Unref()
		return nil, fmt.Errorf("opening temporary files in %s: %w", dir, err)
	}
	return &Ledger{db: db, cache: cache}, nil
}

func (l *Ledger) close() error {
	err := l.db.Close()
	l.cache.Unref()
	return err
}

// page collects writes to the ledger; one goroutine uses it.
type page struct {
	l   *Ledger
	b   *pebble.Batch
	key []byte
}

// pageBytes is how much a page collects before it is written.
const pageBytes = 1 << 20

func (l *Ledger) newPage() *page { return &page{l: l, b: l.db.NewBatch()} }

// set puts a sum in the place of what is there.
func (p *page) set(k kind, suffix []byte, c schema.Counts) error {
	return p.put(p.b.Set, k, suffix, c)
}

// add adds to what is there.
func (p *page) add(k kind, suffix []byte, c schema.Counts) error {
	if c == (schema.Counts{}) {
		return nil
	}
	return p.put(p.b.Merge, k, suffix, c)
}

func (p *page) put(op func(key, value []byte, _ *pebble.WriteOptions) error, k kind, suffix []byte, c schema.Counts) error {
	p.key = append(append(p.key[:0], byte(k)), suffix...)
	var value [sumSize]byte
	if err := op(p.key, appendSum(value[:0], c), nil); err != nil {
		return fmt.Errorf("writing temporary files: %w", err)
	}
	if p.b.Len() < pageBytes {
		return nil
	}
	return p.flush()
}

// flush writes what was collected.
func (p *page) flush() error {
	if err := p.b.Commit(pebble.NoSync); err != nil {
		return fmt.Errorf("writing temporary files: %w", err)
	}
	p.b.Reset()
	return nil
}

func (p *page) close() { _ = p.b.Close() }

// walk calls each for every suffix that any of the kinds has, in order, with their
// sums; zero where a kind has none. suffix is valid during the call only.
func (l *Ledger) walk(each func(suffix []byte, sums []schema.Counts) error, kinds ...kind) (err error) {
	iters := make([]*pebble.Iterator, len(kinds))
	defer func() {
		for _, it := range iters {
			if it != nil {
				err = errors.Join(err, it.Close())
			}
		}
	}()
	for i, k := range kinds {
		it, err := l.db.NewIter(&pebble.IterOptions{LowerBound: []byte{byte(k)}, UpperBound: []byte{byte(k) + 1}})
		if err != nil {
			return fmt.Errorf("reading temporary files: %w", err)
		}
		iters[i] = it
		it.First()
	}
	sums := make([]schema.Counts, len(kinds))
	var suffix []byte
	for {
		suffix, err = leastSuffix(iters, suffix)
		if err != nil || suffix == nil {
			return err
		}
		for i, it := range iters {
			sums[i] = schema.Counts{}
			if !it.Valid() || !bytes.Equal(it.Key()[1:], suffix) {
				continue
			}
			value, err := it.ValueAndErr()
			if err != nil {
				return fmt.Errorf("reading temporary files: %w", err)
			}
			sums[i] = decodeSum(value)
			it.Next()
		}
		if err := each(suffix, sums); err != nil {
			return err
		}
	}
}

// leastSuffix copies the first suffix that any iterator stands at into buf; nil: all
// are at their ends.
func leastSuffix(iters []*pebble.Iterator, buf []byte) ([]byte, error) {
	var least []byte
	for _, it := range iters {
		if !it.Valid() {
			if err := it.Error(); err != nil {
				return nil, fmt.Errorf("reading temporary files: %w", err)
			}
			continue
		}
		if key := it.Key()[1:]; least == nil || bytes.Compare(key, least) < 0 {
			least = key
		}
	}
	if least == nil {
		return nil, nil
	}
	return append(buf[:0], least...), nil
}

// appendCount appends the suffix of a post's counts at a shard: a post that is in several partitions has a row in each shard
// that has one of them.
func appendCount(b []byte, post uint64, shard int32) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(b, post), uint32(shard))
}

func decodeCount(b []byte) (post uint64, shard int32) {
	return binary.BigEndian.Uint64(b), int32(binary.BigEndian.Uint32(b[8:]))
}

// sumUp adds what the kind has of a partition to another kind, by post and the partition's shard.
func (l *Ledger) sumUp(from kind, partition, shard int32, page *page, to kind) (err error) {
	prefix := binary.BigEndian.AppendUint32([]byte{byte(from)}, uint32(partition))
	it, err := l.db.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: binary.BigEndian.AppendUint32([]byte{byte(from)}, uint32(partition)+1)})
	if err != nil {
		return fmt.Errorf("reading temporary files: %w", err)
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	var suffix []byte
	for ok := it.First(); ok; ok = it.Next() {
		value, err := it.ValueAndErr()
		if err == nil {
			suffix = appendCount(suffix[:0], binary.BigEndian.Uint64(it.Key()[len(prefix):]), shard)
			err = page.add(to, suffix, decodeSum(value))
		}
		if err != nil {
			return fmt.Errorf("reading temporary files: %w", err)
		}
	}
	return it.Error()
}

// cell is a row of like_hourly. Once reactions have moved, it is one of all rows of the hour and region at a database:
// partition is then the first that the database has. (What was counted in one partition stays in its row, and is
// taken back in another one's.)
type cell struct {
	Partition int32
	Unix      int64 // of the hour's beginning
	Region    schema.Region
}

// cellOf is where like-count adds what happened in this minute.
func (c *Comparison) cellOf(partition int32, minute int64, region schema.Region) cell {
	return cell{c.hoursOf(partition), minute / 60 * 3600, region}
}

// hoursOf is under which partition a partition's hours are compared: see cell.
func (c *Comparison) hoursOf(partition int32) int32 {
	if c.layouts == 0 {
		return partition
	}
	return c.db.Of(partition).Shard().Index
}

func (c cell) hour() time.Time { return time.Unix(c.Unix, 0).UTC() }

const cellSize = 4 + 8 + len(schema.Region{})

func appendCell(b []byte, c cell) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(c.Partition))
	b = binary.BigEndian.AppendUint64(b, uint64(c.Unix)^1<<63) // negative ones first
	return append(b, c.Region[:]...)
}

func decodeCell(b []byte) cell {
	return cell{
		Partition: int32(binary.BigEndian.Uint32(b)),
		Unix:      int64(binary.BigEndian.Uint64(b[4:]) ^ 1<<63),
		Region:    schema.Region(b[12:cellSize]),
	}
}

// tally adds up cells in memory, and adds them to the ledger when they become many.
type tally struct {
	page  *page
	kind  kind
	cells map[cell]schema.Counts
	buf   []byte
}

const tallyCells = 100_000

func newTally(p *page, k kind) *tally {
	return &tally{page: p, kind: k, cells: map[cell]schema.Counts{}}
}

func (t *tally) add(c cell, n schema.Counts) error {
	t.cells[c] = t.cells[c].Plus(n)
	if len(t.cells) < tallyCells {
		return nil
	}
	return t.flush()
}

func (t *tally) flush() error {
	for c, n := range t.cells {
		t.buf = appendCell(t.buf[:0], c)
		if err := t.page.add(t.kind, t.buf, n); err != nil {
			return err
		}
	}
	clear(t.cells)
	return t.page.flush()
}

const sumSize = 16

func appendSum(b []byte, c schema.Counts) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(c.Likes))
	return binary.BigEndian.AppendUint64(b, uint64(c.Dislikes))
}

func decodeSum(b []byte) schema.Counts {
	return schema.Counts{Likes: int64(binary.BigEndian.Uint64(b)), Dislikes: int64(binary.BigEndian.Uint64(b[8:]))}
}

// sum is Pebble's merge of two values: addition.
type sum struct{ c schema.Counts }

func newSum(_, value []byte) (pebble.ValueMerger, error) {
	s := &sum{}
	return s, s.MergeNewer(value)
}

func (s *sum) MergeNewer(value []byte) error {
	if len(value) != sumSize {
		return fmt.Errorf("a sum of %d bytes", len(value))
	}
	s.c = s.c.Plus(decodeSum(value))
	return nil
}

func (s *sum) MergeOlder(value []byte) error { return s.MergeNewer(value) }

func (s *sum) Finish(bool) ([]byte, io.Closer, error) { return appendSum(nil, s.c), nil, nil }

// silent drops what Pebble says of its daily work; what fails comes back as an error.
type silent struct{}

func (silent) Infof(string, ...any)  {}
func (silent) Errorf(string, ...any) {}
func (silent) Fatalf(format string, args ...any) {
	panic("temporary files: " + fmt.Sprintf(format, args...)) // Pebble cannot go on
}
