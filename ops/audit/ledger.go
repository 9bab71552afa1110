package audit

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"kudos/schema"
)

// ledger stores MySQL's counts next to the stream's. It is on disk and sorted by post, so that memory does not grow
// with the number of posts. Its values are sums of likes and dislikes. A key is a kind, a suffix (what the sum is of),
// and the partition in which it was found.
type ledger struct {
	db    *pebble.DB
	cache *pebble.Cache
	torn  sync.Map // partitions that were read only in part; walk ignores what the stream says about them
}

// kind is the table of a sum (the first byte of its key), and the side it is from (the last byte).
type kind struct{ table, side byte }

var (
	mysqlCount = kind{'c', 'm'} // from like_count
	mysqlHour  = kind{'h', 'm'} // from like_hourly
	// From the stream. In a deep audit: from the state table, and, to subtract, the updates that MySQL has not applied.
	streamCount = kind{'c', 's'}
	streamHour  = kind{'h', 's'}
	laterCount  = kind{'c', 'l'}
	laterHour   = kind{'h', 'l'}
)

const ledgerCache, ledgerMemtable = 64 << 20, 32 << 20 // in bytes

func openLedger(dir string) (*ledger, error) {
	cache := pebble.NewCache(ledgerCache)
	db, err := pebble.Open(dir, &pebble.Options{
		DisableWAL:         true, // a crash may lose it
		FormatMajorVersion: pebble.FormatNewest,
		Cache:              cache, MemTableSize: ledgerMemtable, MemTableStopWritesThreshold: 4,
		Merger: &pebble.Merger{Name: "kudos.sum", Merge: newSum},
		Logger: silent{},
	})
	if err != nil {
		cache.Unref()
		return nil, fmt.Errorf("opening temporary files in %s: %w", dir, err)
	}
	return &ledger{db: db, cache: cache}, nil
}

func (l *ledger) close() error {
	err := l.db.Close()
	l.cache.Unref()
	return err
}

func (l *ledger) clear() error {
	return failed("writing", l.db.DeleteRange([]byte{0}, []byte{0xff}, pebble.NoSync))
}

// failed describes an error of the ledger's files; nil stays nil.
func failed(operation string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s temporary files: %w", operation, err)
}

// page buffers writes to the ledger. It is not safe for concurrent use.
type page struct {
	b    *pebble.Batch
	adds map[string]schema.Counts // by key
	key  []byte
}

const pageBytes, pageAdds = 1 << 20, 100_000 // limits of the buffer

func (l *ledger) newPage() *page { return &page{b: l.db.NewBatch(), adds: map[string]schema.Counts{}} }

func (p *page) set(k kind, suffix []byte, partition int32, c schema.Counts) error {
	if err := p.b.Set(p.keyOf(k, suffix, partition), appendSum(nil, c), nil); err != nil {
		return failed("writing", err)
	}
	if p.b.Len() < pageBytes {
		return nil
	}
	return p.flush()
}

func (p *page) add(k kind, suffix []byte, partition int32, c schema.Counts) error {
	if c == (schema.Counts{}) {
		return nil
	}
	key := p.keyOf(k, suffix, partition)
	p.adds[string(key)] = p.adds[string(key)].Plus(c)
	if len(p.adds) < pageAdds {
		return nil
	}
	return p.flush()
}

func (p *page) keyOf(k kind, suffix []byte, partition int32) []byte {
	p.key = append(append(p.key[:0], k.table), suffix...)
	p.key = append(binary.BigEndian.AppendUint32(p.key, uint32(partition)), k.side)
	return p.key
}

func (p *page) flush() error {
	for key, c := range p.adds {
		if err := p.b.Merge([]byte(key), appendSum(nil, c), nil); err != nil {
			return failed("writing", err)
		}
	}
	clear(p.adds)
	if err := p.b.Commit(pebble.NoSync); err != nil {
		return failed("writing", err)
	}
	p.b.Reset()
	return nil
}

func (p *page) close() { _ = p.b.Close() }

// walk calls each for every suffix, in order, with the sums of given kinds of one table over all partitions, zero where
// there is none. It skips suffixes that MySQL lacks and whose other sums are zero. suffix is valid during the call.
func (l *ledger) walk(each func(suffix []byte, sums []schema.Counts) error, kinds ...kind) (err error) {
	table := kinds[0].table
	it, err := l.db.NewIter(&pebble.IterOptions{LowerBound: []byte{table}, UpperBound: []byte{table + 1}})
	if err != nil {
		return failed("reading", err)
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	var suffix []byte
	sums, any := make([]schema.Counts, len(kinds)), false
	for ok := it.First(); ok; ok = it.Next() {
		end := len(it.Key()) - 1
		key, partition, side := it.Key()[1:end-4], binary.BigEndian.Uint32(it.Key()[end-4:]), it.Key()[end]
		if _, torn := l.torn.Load(int32(partition)); torn && side != mysqlCount.side {
			continue
		}
		if !bytes.Equal(key, suffix) {
			if any {
				if err := each(suffix, sums); err != nil {
					return err
				}
			}
			suffix, any = append(suffix[:0], key...), false
			clear(sums)
		}
		if i := slices.Index(kinds, kind{table, side}); i >= 0 {
			value, err := it.ValueAndErr()
			if err != nil {
				return failed("reading", err)
			}
			c := decodeSum(value)
			sums[i], any = sums[i].Plus(c), any || c != (schema.Counts{}) || side == mysqlCount.side
		}
	}
	if err := it.Error(); err != nil || !any {
		return failed("reading", err)
	}
	return each(suffix, sums)
}

// appendCount appends the suffix of a post's counts in a shard: one row in the shard of each of its partitions.
func appendCount(b []byte, post uint64, shard int32) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(b, post), uint32(shard))
}

func decodeCount(b []byte) (post uint64, shard int32) {
	return binary.BigEndian.Uint64(b), int32(binary.BigEndian.Uint32(b[8:]))
}

// cell is a row of like_hourly. Once reactions have moved, it is all rows of an hour and region in a database, and
// Partition is the database's first partition: a reaction counted in one partition's row is subtracted in another's.
type cell struct {
	Partition int32
	Unix      int64 // start of the hour
	Region    schema.Region
}

func (c cell) hour() time.Time { return time.Unix(c.Unix, 0).UTC() }

func appendCell(b []byte, c cell) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(c.Partition))
	b = binary.BigEndian.AppendUint64(b, uint64(c.Unix)^1<<63) // sorts negative values first
	return append(b, c.Region[:]...)
}

func decodeCell(b []byte) cell {
	unix := int64(binary.BigEndian.Uint64(b[4:]) ^ 1<<63)
	return cell{int32(binary.BigEndian.Uint32(b)), unix, schema.Region(b[12:])}
}

func appendSum(b []byte, c schema.Counts) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(c.Likes))
	return binary.BigEndian.AppendUint64(b, uint64(c.Dislikes))
}

func decodeSum(b []byte) schema.Counts {
	return schema.Counts{Likes: int64(binary.BigEndian.Uint64(b)), Dislikes: int64(binary.BigEndian.Uint64(b[8:]))}
}

// sum is the Pebble merge operator: addition.
type sum struct{ c schema.Counts }

func newSum(_, value []byte) (pebble.ValueMerger, error) {
	s := &sum{}
	return s, s.MergeNewer(value)
}

func (s *sum) MergeNewer(value []byte) error {
	if len(value) != 2*8 {
		return fmt.Errorf("invalid sum of %d bytes", len(value))
	}
	s.c = s.c.Plus(decodeSum(value))
	return nil
}

func (s *sum) MergeOlder(value []byte) error { return s.MergeNewer(value) }

func (s *sum) Finish(bool) ([]byte, io.Closer, error) { return appendSum(nil, s.c), nil, nil }

// silent drops Pebble's log; failures are returned as errors.
type silent struct{}

func (silent) Infof(string, ...any)  {}
func (silent) Errorf(string, ...any) {}
func (silent) Fatalf(format string, args ...any) {
	panic("temporary files: " + fmt.Sprintf(format, args...)) // Pebble cannot continue
}
