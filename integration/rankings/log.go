package rankings

import (
	"context"
	"encoding/binary"
	"fmt"
	"iter"

	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/integration/oracle"
)

// Log is the input of a check.
type Log struct {
	// Updates are the partitions of like-updates.
	Updates []*Tape
	// Exclusions are the records of trending-exclusions.
	Exclusions []Record
	// Rankings are the records of trending, in order for each key.
	Rankings []Record
}

// Record is a record of a topic. Records of a Tape share its memory and must not be changed.
type Record struct {
	Offset, TimeMs int64
	Key, Value     []byte
}

// Tape stores the records of a partition compactly: some 10 bytes more than keys and values.
type Tape struct {
	chunks  [][]byte
	records int
	end     int64
}

const chunkBytes = 1 << 20

// Add appends a copy of a record. Offsets increase, with gaps for control records.
func (t *Tape) Add(r Record) {
	if r.Offset < t.end {
		panic(fmt.Sprintf("adding a record with offset %d to a tape that ends at %d", r.Offset, t.end))
	}
	size := len(r.Key) + len(r.Value) + 4*binary.MaxVarintLen64
	last := len(t.chunks) - 1
	if last < 0 || cap(t.chunks[last])-len(t.chunks[last]) < size {
		t.chunks = append(t.chunks, make([]byte, 0, max(size, chunkBytes)))
		last++
	}
	b := t.chunks[last]
	b = binary.AppendVarint(b, r.Offset)
	b = binary.AppendVarint(b, r.TimeMs)
	b = append(binary.AppendUvarint(b, uint64(len(r.Key))), r.Key...)
	b = append(binary.AppendUvarint(b, uint64(len(r.Value))), r.Value...)
	t.chunks[last] = b
	t.records++
	t.end = r.Offset + 1
}

// EndAt moves the end of the log, past control records after the last record.
func (t *Tape) EndAt(offset int64) { t.end = max(t.end, offset) }

// End is the end offset of the log.
func (t *Tape) End() int64 { return t.end }

// Len is the number of records.
func (t *Tape) Len() int { return t.records }

// All yields the records in order.
func (t *Tape) All() iter.Seq[Record] {
	return func(yield func(Record) bool) {
		for _, b := range t.chunks {
			number := func() int64 {
				n, size := binary.Varint(b)
				b = b[size:]
				return n
			}
			text := func() []byte {
				n, size := binary.Uvarint(b)
				s := b[size : size+int(n) : size+int(n)]
				b = b[size+int(n):]
				return s
			}
			for len(b) > 0 {
				r := Record{Offset: number(), TimeMs: number()}
				r.Key, r.Value = text(), text()
				if !yield(r) {
					return
				}
			}
		}
	}
}

// The topics of the contract.
const (
	topicUpdates    = "like-updates"
	topicExclusions = "trending-exclusions"
	topicTrending   = "trending"
)

// Read reads committed records; rankings first, so that what they name exists when read. The system may be running.
func Read(ctx context.Context, brokers []string) (*Log, error) {
	o, err := oracle.New(brokers)
	if err != nil {
		return nil, err
	}
	defer o.Close()
	log := &Log{}
	_, err = o.ReadAll(ctx, topicTrending, func(rec *kgo.Record) { log.Rankings = append(log.Rankings, of(rec)) })
	if err != nil {
		return nil, err
	}
	_, err = o.ReadAll(ctx, topicExclusions, func(rec *kgo.Record) { log.Exclusions = append(log.Exclusions, of(rec)) })
	if err != nil {
		return nil, err
	}
	tapes := map[int32]*Tape{}
	ends, err := o.ReadAll(ctx, topicUpdates, func(rec *kgo.Record) {
		if tapes[rec.Partition] == nil {
			tapes[rec.Partition] = &Tape{}
		}
		tapes[rec.Partition].Add(of(rec))
	})
	if err != nil {
		return nil, err
	}
	for i := range int32(len(ends)) {
		if tapes[i] == nil {
			tapes[i] = &Tape{}
		}
		tapes[i].EndAt(ends[i])
		log.Updates = append(log.Updates, tapes[i])
	}
	return log, nil
}

func of(rec *kgo.Record) Record {
	return Record{Offset: rec.Offset, TimeMs: rec.Timestamp.UnixMilli(), Key: rec.Key, Value: rec.Value}
}
