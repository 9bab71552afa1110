package stream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// logReader reads the committed records of one partition by plain Fetch requests.
// A consuming client would hide how far it has come where nothing deliverable is
// left (commit markers, aborted data, holes of compaction); the position of a fetch
// is what recovery ends by.
type logReader struct {
	cl        kmsg.Requestor
	topic     string
	partition int32
	// maxWait is how long the broker may wait for data at the end of the log.
	maxWait time.Duration
	// fetchBytes is how much the broker may answer with; a first batch that is larger comes whole.
	fetchBytes int32

	decompress kgo.Decompressor
	topicID    [16]byte
	leader     int32 // -1: to be looked up
	// end is the last stable offset as of the first fetch; -1: to be asked for.
	end     int64
	backoff time.Duration
}

const (
	fetchPartitionBytes = 4 << 20
	// groupPartitionBytes is less: the records of a fetch take several times as much memory,
	// for each partition of a process.
	groupPartitionBytes = 1 << 20
	fetchRetryMin       = 50 * time.Millisecond
	fetchRetryMax       = 2 * time.Second
)

func newLogReader(cl kmsg.Requestor, topic string, partition int32, maxWait time.Duration) *logReader {
	return &logReader{
		cl: cl, topic: topic, partition: partition, maxWait: maxWait, fetchBytes: fetchPartitionBytes,
		decompress: kgo.DefaultDecompressor(), leader: -1, end: -1, backoff: fetchRetryMin,
	}
}

// fetched is one answer: the records from the asked offset on, and the offset that
// follows what the answer covered. lso is the last stable offset, which is never before
// the end that ListOffsets gave.
type fetched struct {
	records []*kgo.Record
	next    int64
	lso     int64
}

// fetch asks for what follows offset, and tries again after whatever a new leader
// may mend, until ctx ends.
func (r *logReader) fetch(ctx context.Context, offset int64) (fetched, error) {
	var last error // what went wrong before ctx ended
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
			return fetched{}, fmt.Errorf("reading %s/%d at offset %d: %w", r.topic, r.partition, offset, last)
		}
		r.leader = -1
		select {
		case <-ctx.Done():
		case <-time.After(r.backoff):
			r.backoff = min(2*r.backoff, fetchRetryMax)
		}
	}
}

// mayPass tells an error that another try may not meet: an answer that Kafka calls
// retriable, or trouble on the way to the broker.
func mayPass(err error) bool {
	if errors.Is(err, errRecreated) {
		return false
	}
	var answer *kerr.Error
	return !errors.As(err, &answer) || answer.Retriable
}

var errRecreated = errors.New("the topic was deleted and created again")

func (r *logReader) fetchOnce(ctx context.Context, offset int64) (fetched, error) {
	if err := r.findLeader(ctx); err != nil {
		return fetched{}, err
	}
	if err := r.findEnd(ctx); err != nil {
		return fetched{}, err
	}
	kresp, err := r.broker().Request(ctx, r.request(offset))
	if err != nil {
		return fetched{}, err
	}
	resp := kresp.(*kmsg.FetchResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return fetched{}, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return fetched{}, kerr.UnknownTopicOrPartition
	}
	rp := &resp.Topics[0].Partitions[0]
	fp, next := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{
		Offset:         offset,
		IsolationLevel: kgo.ReadCommitted(),
		Topic:          r.topic,
		Partition:      r.partition,
	}, rp, r.decompress, nil)
	if fp.Err != nil {
		return fetched{}, fp.Err
	}
	if next == offset && next < r.end {
		return fetched{}, fmt.Errorf("the leader has nothing from there on, but the log ended at offset %d", r.end)
	}
	return fetched{records: fp.Records, next: next, lso: max(fp.LastStableOffset, r.end)}, nil
}

// request is a Fetch of what follows an offset.
func (r *logReader) request(offset int64) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.ReplicaID = -1
	req.MaxWaitMillis = int32(r.maxWait.Milliseconds())
	req.MinBytes = 1
	req.MaxBytes = r.fetchBytes
	req.IsolationLevel = 1 // read_committed
	req.SessionEpoch = -1  // no fetch session
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.TopicID = r.topic, r.topicID
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition = r.partition
	p.FetchOffset = offset
	p.PartitionMaxBytes = r.fetchBytes
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return req
}

// broker is the leader. The client itself would send a Fetch to any broker.
func (r *logReader) broker() kmsg.Requestor {
	if cl, ok := r.cl.(interface{ Broker(id int) *kgo.Broker }); ok {
		return cl.Broker(int(r.leader))
	}
	return r.cl
}

func (r *logReader) findLeader(ctx context.Context) error {
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
	if r.topicID != ([16]byte{}) && r.topicID != t.ID {
		// Kafka's own word for it is retriable (brokers learn of a topic one by
		// one), but a topic made anew is another log.
		return errRecreated
	}
	r.topicID, r.leader = t.ID, leader
	return nil
}

// findEnd asks for the end of the log once. A fetch alone does not tell: the high watermark
// of a new leader may be behind, and only ListOffsets is not answered until it is right
// (KIP-207).
func (r *logReader) findEnd(ctx context.Context) error {
	if r.end >= 0 {
		return nil
	}
	end, err := listOffset(ctx, r.broker(), r.topic, r.partition, latestOffset)
	if err == nil {
		r.end = end
	}
	return err
}
