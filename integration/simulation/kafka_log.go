package simulation

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// partitionLog is one partition. Retention and compaction only hide entries from readers: the oracle still sees them.
type partitionLog struct {
	name    string  // likes/0
	entries []entry // by offset
	start   int64   // log start offset
	epochs  []epochStart
	open    []*txn // transactions without a marker in this log
	clock   int64  // offset of the leader's clock, in milliseconds
}

type epochStart struct {
	epoch int32
	start int64
}

type entry struct {
	key, value []byte
	headers    []kgo.RecordHeader
	time       int64 // log-append time
	epoch      int32 // leader epoch
	txn        *txn  // nil: not transactional
	marker     bool  // control record that ends txn
	removed    bool  // by compaction
}

type txn struct {
	pid    int64
	first  map[*partitionLog]int64 // first offset in each log that it wrote to
	offset map[int32]offset        // offsets it commits for the group, by partition
	began  int64

	decided, commits bool // to abort, unless commits is set
	finished         bool // markers are written
	older            bool // of a build that does not write like-counts
}

func newLog(topic string, partition int) *partitionLog {
	return &partitionLog{name: fmt.Sprintf("%s/%d", topic, partition), epochs: []epochStart{{0, 0}}}
}

func (l *partitionLog) end() int64 { return int64(len(l.entries)) }

// stable is the last stable offset.
func (l *partitionLog) stable() int64 {
	end := l.end()
	for _, t := range l.open {
		end = min(end, t.first[l])
	}
	return end
}

func (l *partitionLog) append(e entry) int64 {
	offset := l.end()
	e.epoch, e.time = l.leaderEpoch(), now()+l.clock
	if e.txn != nil && !e.marker {
		if _, ok := e.txn.first[l]; !ok {
			e.txn.first[l] = offset
			l.open = append(l.open, e.txn)
		}
	}
	l.entries = append(l.entries, e)
	if e.marker {
		l.open = remove(l.open, e.txn)
	}
	return offset
}

func (e *entry) data() bool { return !e.marker && (e.txn == nil || e.txn.finished && e.txn.commits) }

func (e *entry) header(key string) string {
	i := slices.IndexFunc(e.headers, func(h kgo.RecordHeader) bool { return h.Key == key })
	if i < 0 {
		return ""
	}
	return string(e.headers[i].Value)
}

// lastData returns the offset after the last committed record at or above from, or from if there is none.
func (l *partitionLog) lastData(from int64) int64 {
	for o := l.end() - 1; o >= from; o-- {
		if l.entries[o].data() && !l.entries[o].removed {
			return o + 1
		}
	}
	return from
}

func (l *partitionLog) leaderEpoch() int32 { return l.epochs[len(l.epochs)-1].epoch }

func (l *partitionLog) epochEnd(epoch int32) int64 {
	switch later := slices.IndexFunc(l.epochs, func(e epochStart) bool { return e.epoch > epoch }); later {
	case -1:
		return l.end()
	case 0:
		return -1
	default:
		return l.epochs[later].start
	}
}

// elect starts a new leader epoch, without the entries at from and above. An unclean election loses entries.
func (l *partitionLog) elect(from int64) {
	l.entries = l.entries[:from]
	for i := range l.epochs {
		l.epochs[i].start = min(l.epochs[i].start, from)
	}
	l.epochs = append(l.epochs, epochStart{l.leaderEpoch() + 1, from})
}

// compact hides all but each key's last record below an offset, and markers of transactions without other records.
func (l *partitionLog) compact(below int64) (any bool) {
	below = min(below, l.stable())
	seen, left := map[string]bool{}, map[*txn]bool{}
	for o := below - 1; o >= 0; o-- {
		e := &l.entries[o]
		if e.marker {
			continue
		}
		if e.txn != nil && e.txn.finished && !e.txn.commits || seen[string(e.key)] {
			any = any || !e.removed
			e.removed = true
			continue
		}
		seen[string(e.key)] = true
		left[e.txn] = left[e.txn] || !e.removed
	}
	for o := range below {
		e := &l.entries[o]
		e.removed = e.removed || e.marker && !left[e.txn]
	}
	return any
}

// fetch answers a Fetch request with up to n batches. Those emptied by compaction are left out, except the log's last.
func (l *partitionLog) fetch(from int64, n int, readCommitted bool, rp *kmsg.FetchResponseTopicPartition) {
	rp.HighWatermark, rp.LastStableOffset, rp.LogStartOffset = l.end(), l.stable(), l.start
	end := rp.HighWatermark
	if readCommitted {
		end = rp.LastStableOffset
	}
	aborted := map[*txn]bool{}
	for at := from; at < end && n > 0; {
		last := l.batchEnd(at, end)
		left := slices.ContainsFunc(l.entries[at:last], func(e entry) bool { return !e.removed })
		if last < l.end() && !left {
			at = last
			continue
		}
		n--
		if t := l.entries[at].txn; readCommitted && t != nil && t.decided && !t.commits && !aborted[t] {
			aborted[t] = true
			rp.AbortedTransactions = append(rp.AbortedTransactions,
				kmsg.FetchResponseTopicPartitionAbortedTransaction{ProducerID: t.pid, FirstOffset: t.first[l]})
		}
		rp.RecordBatches = l.appendBatch(rp.RecordBatches, at, last)
		at = last
	}
}

func (l *partitionLog) batchEnd(at, end int64) int64 {
	first, last := &l.entries[at], at+1
	for ; last < end && !first.marker; last++ {
		if e := &l.entries[last]; e.marker || e.txn != first.txn || e.epoch != first.epoch || e.time != first.time {
			break
		}
	}
	return last
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

const (
	attrLogAppendTime = 1 << 3
	attrTransactional = 1 << 4
	attrControl       = 1 << 5
)

func (l *partitionLog) appendBatch(dst []byte, from, to int64) []byte {
	first := &l.entries[from]
	b := kmsg.RecordBatch{
		FirstOffset: from, PartitionLeaderEpoch: first.epoch, Magic: 2, LastOffsetDelta: int32(to - from - 1),
		FirstTimestamp: first.time, MaxTimestamp: first.time, ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1,
		Attributes: attrLogAppendTime,
	}
	if first.txn != nil {
		b.Attributes |= attrTransactional
		b.ProducerID, b.ProducerEpoch, b.FirstSequence = first.txn.pid, 0, 0
	}
	if first.marker {
		b.Attributes |= attrControl
	}
	var buf []byte
	for o := from; o < to; o++ {
		e := &l.entries[o]
		if e.removed {
			continue
		}
		r := kmsg.Record{OffsetDelta: int32(o - from), Key: e.key, Value: e.value}
		for _, h := range e.headers {
			r.Headers = append(r.Headers, kmsg.Header{Key: h.Key, Value: h.Value})
		}
		buf = r.AppendTo(buf[:0])
		// Length is a one-byte varint in buf: zero, because it was not known yet.
		r.Length = int32(len(buf) - 1)
		b.Records = r.AppendTo(b.Records)
		b.NumRecords++
	}
	start := len(dst)
	dst = b.AppendTo(dst)
	binary.BigEndian.PutUint32(dst[start+8:], uint32(len(dst)-start-12))
	binary.BigEndian.PutUint32(dst[start+17:], crc32.Checksum(dst[start+21:], castagnoli))
	return dst
}

// finish writes the markers of a decided transaction: control records whose key contains version 0 and the type.
func (t *txn) finish(logs []*partitionLog) {
	t.finished = true
	key := []byte{0, 0, 0, 0}
	if t.commits {
		key[3] = 1
	}
	for _, l := range logs {
		if slices.Contains(l.open, t) {
			l.append(entry{key: key, value: []byte{0, 0, 0, 0, 0, 0}, txn: t, marker: true})
		}
	}
}
