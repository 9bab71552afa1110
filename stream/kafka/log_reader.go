package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// LogReader reads the committed records of one partition by plain Fetch requests. A consumer hides its position where
// nothing deliverable is left (markers, aborted data, holes of compaction), and recovery needs it to end there.
type LogReader struct {
	cl         kmsg.Requestor
	topic      string
	partition  int32
	maxWait    time.Duration // how long the broker may wait for data at the end of the log
	fetchBytes int32         // bounds the broker's response; a first batch that is larger comes whole
	// TopicID identifies the log; zero: that of the first fetch. If the topic has another, Fetch returns ErrRecreated.
	TopicID [16]byte

	decompress kgo.Decompressor
	leader     int32 // -1: not known
	end        int64 // the last stable offset as of the first fetch; -1: not known
	backoff    time.Duration
}

const (
	fetchBytes = 4 << 20
	// smallFetchBytes is for concurrent reads of many partitions: fetched records take several times as much memory.
	smallFetchBytes = 1 << 20
	fetchRetryMin   = 50 * time.Millisecond
	fetchRetryMax   = 2 * time.Second
)

// NewLogReader returns a reader, which sends nothing yet.
func NewLogReader(cl kmsg.Requestor, topic string, partition int32) *LogReader {
	return &LogReader{cl: cl, topic: topic, partition: partition, fetchBytes: fetchBytes,
		decompress: kgo.DefaultDecompressor(), leader: -1, end: -1, backoff: fetchRetryMin}
}

// Fetch reads what follows offset. It retries errors that a new leader may fix, until ctx ends.
func (r *LogReader) Fetch(ctx context.Context, offset int64) (LogChunk, error) {
	var last error // the last error before ctx ended
	for {
		f, err := r.fetchOnce(ctx, offset)
		if err == nil {
			r.backoff = fetchRetryMin
			return f, nil
		}
		if last == nil || ctx.Err() == nil {
			last = err
		}
		if ctx.Err() != nil || !mayPass(err) {
			return LogChunk{}, fmt.Errorf("reading %s/%d at offset %d: %w", r.topic, r.partition, offset, last)
		}
		r.leader = -1
		Sleep(ctx, r.backoff)
		r.backoff = min(2*r.backoff, fetchRetryMax)
	}
}

// mayPass reports whether a retry may succeed: Kafka calls the error retriable, or the broker was not reached.
func mayPass(err error) bool {
	answer, answered := errors.AsType[*kerr.Error](err)
	return !errors.Is(err, ErrRecreated) && (!answered || answer.Retriable)
}

func (r *LogReader) fetchOnce(ctx context.Context, offset int64) (LogChunk, error) {
	if err := r.findLeader(ctx); err != nil {
		return LogChunk{}, err
	}
	if err := r.findEnd(ctx); err != nil {
		return LogChunk{}, err
	}
	kresp, err := r.broker().Request(ctx, r.request(offset))
	if err != nil {
		return LogChunk{}, err
	}
	resp := kresp.(*kmsg.FetchResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return LogChunk{}, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return LogChunk{}, kerr.UnknownTopicOrPartition
	}
	rp := &resp.Topics[0].Partitions[0]
	fp, next := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{Topic: r.topic, Partition: r.partition,
		Offset: offset, IsolationLevel: kgo.ReadCommitted()}, rp, r.decompress, nil)
	if fp.Err != nil {
		return LogChunk{}, fp.Err
	}
	if next == offset && next < r.end {
		return LogChunk{}, fmt.Errorf("the leader returned nothing, but the log ended at offset %d", r.end)
	}
	return LogChunk{Records: fp.Records, Next: next, End: max(fp.LastStableOffset, r.end)}, nil
}

func (r *LogReader) request(offset int64) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.ReplicaID = -1
	req.MaxWaitMillis = int32(r.maxWait.Milliseconds())
	req.MinBytes, req.MaxBytes = 1, r.fetchBytes
	req.IsolationLevel = 1 // read_committed
	req.SessionEpoch = -1  // no fetch session
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.TopicID = r.topic, r.TopicID
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes = r.partition, offset, r.fetchBytes
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return req
}

// broker returns the leader. The client itself would send a Fetch to any broker.
func (r *LogReader) broker() kmsg.Requestor {
	if cl, ok := r.cl.(interface{ Broker(id int) *kgo.Broker }); ok {
		return cl.Broker(int(r.leader))
	}
	return r.cl
}

func (r *LogReader) findLeader(ctx context.Context) error {
	if r.leader >= 0 {
		return nil
	}
	topics, err := LookUpTopics(ctx, r.cl, r.topic)
	if err != nil {
		return err
	}
	t := topics.ByName[r.topic]
	if r.partition >= t.Partitions {
		return kerr.UnknownTopicOrPartition
	}
	leader := t.Leaders[r.partition]
	if leader < 0 {
		return kerr.LeaderNotAvailable
	}
	if r.TopicID != ([16]byte{}) && r.TopicID != t.ID {
		// Kafka's own error for it is retriable (brokers learn of it one by one), but a recreated topic is another log.
		return ErrRecreated
	}
	r.TopicID, r.leader = t.ID, leader
	return nil
}

// findEnd asks for the end of the log once. A fetch is not enough: the high watermark of a new leader may be behind,
// and only ListOffsets returns an error until it is right (KIP-207).
func (r *LogReader) findEnd(ctx context.Context) error {
	if r.end >= 0 {
		return nil
	}
	end, err := listOffset(ctx, r.broker(), r.topic, r.partition, latestOffset)
	if err == nil {
		r.end = end
	}
	return err
}

// LogChunk is what one fetch covered: committed records in offset order, and in Next the offset after them and after
// the control records, aborted records and holes between them. End is the last stable offset as of that fetch, and
// never below the one that ListOffsets returned at the start.
type LogChunk struct {
	Records   []*kgo.Record
	Next, End int64
}

const endWait = 250 * time.Millisecond // how long a fetch at the end of the log waits for new data

const readLogPatience = 30 * time.Second // how long ReadLog retries a fetch before it returns the error

// ReadLog reads the committed records of a partition from an offset on and passes them to each, until each returns
// false or an error. At the end of the log it calls each a few times a second with empty chunks: each decides when to
// stop. LogChunk.Next tells whether an offset was reached; a record at it may not exist (control records, compaction).
func ReadLog(ctx context.Context, cl kmsg.Requestor, topic string, partition int32, from int64,
	each func(LogChunk) (more bool, err error),
) error {
	return NewLogReader(cl, topic, partition).Read(ctx, from, each)
}

// ReadLogSmall is ReadLog with small fetches, for concurrent reads of all partitions, each with the memory of a fetch.
func ReadLogSmall(ctx context.Context, cl kmsg.Requestor, topic string, partition int32, from int64,
	each func(LogChunk) (more bool, err error),
) error {
	r := NewLogReader(cl, topic, partition)
	r.fetchBytes = smallFetchBytes
	return r.Read(ctx, from, each)
}

// Read is ReadLog with this reader.
func (r *LogReader) Read(ctx context.Context, from int64, each func(LogChunk) (more bool, err error)) error {
	for next := from; ; {
		fetchCtx, cancel := context.WithTimeout(ctx, readLogPatience)
		f, err := r.Fetch(fetchCtx, next)
		cancel()
		if err != nil {
			return err
		}
		next = f.Next
		if more, err := each(f); err != nil || !more {
			return err
		}
		r.maxWait = 0
		if next >= f.End {
			r.maxWait = endWait // do not poll in a tight loop
		}
	}
}
