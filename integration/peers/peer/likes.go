package peer

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/schema"
)

// Event is what a peer needs of a like or unlike.
type Event struct {
	Post, User uint64
	Like       bool
}

// Decode reads a record of likes.
func Decode(key, value []byte) (Event, error) {
	var e schema.Event
	err := schema.DecodeEvent(key, value, &e)
	return Event{Post: e.PostID, User: e.UserID, Like: e.Action == schema.Like}, err
}

// Likes reads the topic likes as a member of a consumer group, from the beginning where the group has not been. Offsets
// go to Kafka in the background, of batches that are Done: at least once.
type Likes struct {
	client *kgo.Client
	max    int // events a batch
	log    *slog.Logger
	lines  *Lines
	seen   map[int32]bool // partitions that had events; of Poll alone

	mu      sync.Mutex
	open    int           // batches that are not Done
	settled chan struct{} // closed when there is none; nil while nobody waits
	closing bool
}

// Batch is one poll: events in the order of each partition.
type Batch struct {
	Events []Event
	// Covers is how many events of the topic are done with this batch, more than with those before: its own, and those
	// before the first one of a partition, which an earlier process has done.
	Covers int64

	likes   *Likes
	records []*kgo.Record // the last of each partition
}

// OpenLikes joins the group and returns. Lines hears of the first poll and of each event read.
func (p *Peer) OpenLikes(group string, max int) (*Likes, error) {
	l := &Likes{max: max, log: p.Log, lines: p.Lines, seen: map[int32]bool{}}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(p.Brokers...), kgo.ConsumerGroup(group), kgo.ConsumeTopics(schema.TopicLikes),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		// Only what is in MySQL is marked, and only what is marked is committed.
		kgo.AutoCommitMarks(), kgo.AutoCommitInterval(time.Second),
		// A backlog is read in large fetches; a broker answers at once whatever it has.
		kgo.FetchMaxBytes(16<<20), kgo.FetchMaxPartitionBytes(4<<20), kgo.FetchMaxWait(100*time.Millisecond),
		kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(func(context.Context, *kgo.Client, map[string][]int32) { l.lines.FirstPoll() }),
		kgo.OnPartitionsRevoked(func(ctx context.Context, c *kgo.Client, _ map[string][]int32) { l.settle(ctx, c) }),
		kgo.DisableClientMetrics(),
	)
	if err != nil {
		return nil, fmt.Errorf("kafka client: %w", err)
	}
	l.client = client
	return l, nil
}

// settle lets the batches in flight be finished and committed before another member reads on.
func (l *Likes) settle(ctx context.Context, client *kgo.Client) {
	settled := make(chan struct{})
	l.mu.Lock()
	if l.open > 0 && !l.closing {
		l.settled = settled
	} else {
		close(settled)
	}
	l.mu.Unlock()
	select {
	case <-settled:
	case <-time.After(CloseTimeout):
		l.log.Warn("partitions revoked with events in flight; their next owners read them again")
	}
	l.commit(ctx, client)
}

func (l *Likes) commit(ctx context.Context, client *kgo.Client) {
	if err := client.CommitMarkedOffsets(ctx); err != nil {
		l.log.Warn("offsets were not committed; their events will be read again", "err", err)
	}
}

func (l *Likes) opened(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open += n
	if l.open == 0 && l.settled != nil {
		close(l.settled)
		l.settled = nil
	}
}

// Poll waits for events. Each batch must be Done some time.
func (l *Likes) Poll(ctx context.Context) (*Batch, error) {
	for {
		l.client.AllowRebalance()
		fetches := l.client.PollRecords(ctx, l.max)
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		for _, e := range fetches.Errors() {
			return nil, fmt.Errorf("read %s partition %d: %w", e.Topic, e.Partition, e.Err)
		}
		if !fetches.Empty() {
			return l.batch(fetches)
		}
	}
}

func (l *Likes) batch(fetches kgo.Fetches) (*Batch, error) {
	b := &Batch{likes: l, Events: make([]Event, 0, fetches.NumRecords())}
	var err error
	fetches.EachPartition(func(p kgo.FetchTopicPartition) {
		for _, r := range p.Records {
			e, bad := Decode(r.Key, r.Value)
			if bad != nil {
				err = fmt.Errorf("event at %s partition %d offset %d: %w", r.Topic, r.Partition, r.Offset, bad)
				return
			}
			b.Events = append(b.Events, e)
		}
		n := len(p.Records)
		if n == 0 {
			return
		}
		b.records = append(b.records, p.Records[n-1])
		b.Covers += int64(n)
		if !l.seen[p.Partition] {
			l.seen[p.Partition] = true
			b.Covers += p.Records[0].Offset
		}
	})
	if err != nil {
		return nil, err
	}
	l.lines.Read(b.Covers)
	l.opened(+1)
	return b, nil
}

// Done says that everything in the batch is in MySQL.
func (b *Batch) Done() { b.likes.client.MarkCommitRecords(b.records...); b.likes.opened(-1) }

// Close leaves the group, with the offsets of all batches that are Done committed.
func (l *Likes) Close() {
	l.mu.Lock()
	l.closing = true
	l.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), CloseTimeout)
	defer cancel()
	l.commit(ctx, l.client)
	l.client.CloseAllowingRebalance()
}
