package integration

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/dev/testkit"
	"kudos/integration/oracle"
	"kudos/schema"
)

// client returns a plain Kafka client that is closed at the end of the test.
func (s *system) client(opts ...kgo.Opt) *kgo.Client {
	cl := s.ownClient(opts...)
	s.t.Cleanup(cl.Close)
	return cl
}

// ownClient returns a client that the caller closes, for helpers that are called repeatedly.
func (s *system) ownClient(opts ...kgo.Opt) *kgo.Client {
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(s.brokers...)}, opts...)...)
	require.NoError(s.t, err)
	return cl
}

func (s *system) admin() *kadm.Client {
	if s.adm == nil {
		s.adm = kadm.NewClient(s.client())
	}
	return s.adm
}

// oracle returns an oracle for reading topics. Checks use new oracles.
func (s *system) oracle() *oracle.Oracle {
	if s.ora == nil {
		var err error
		s.ora, err = oracle.New(s.brokers)
		require.NoError(s.t, err)
		s.t.Cleanup(s.ora.Close)
	}
	return s.ora
}

// readAll reads all committed records of a topic, from the start to the current end.
func (s *system) readAll(topic string, each func(*kgo.Record)) {
	_, err := s.oracle().ReadAll(testkit.Within(s.t, 3*time.Minute), topic, each)
	require.NoError(s.t, err)
}

// requireDecided waits until no transaction is open in a topic: the broker acknowledges a commit before it has written
// all markers, and until then readers of committed data do not see it.
func (s *system) requireDecided(topic string) {
	waitFor(s.t, 30*time.Second, "the end of all transactions in "+topic, func() bool {
		ends, err := s.admin().ListEndOffsets(s.t.Context(), topic)
		require.NoError(s.t, err)
		stable, err := s.admin().ListCommittedOffsets(s.t.Context(), topic)
		require.NoError(s.t, err)
		require.NoError(s.t, errors.Join(ends.Error(), stable.Error()))
		open := 0
		ends.Each(func(end kadm.ListedOffset) {
			if at, _ := stable.Lookup(topic, end.Partition); at.Offset != end.Offset {
				open++
			}
		})
		return open == 0
	})
}

// lastRecords returns the last committed data record of each partition that has one.
func (s *system) lastRecords(topic string) map[int32]*kgo.Record {
	last, err := s.oracle().LastRecords(testkit.Within(s.t, 30*time.Second), topic)
	require.NoError(s.t, err)
	return last
}

// drain waits until all events are folded and all updates applied. It asks the log and the database, not the program.
func (s *system) drain(within time.Duration) {
	waitSaid(s.t, within, "the log to be drained", func() (bool, any) {
		// Do the cheap check first. The two differ by forwarded events and markers at the end.
		if committed, end := s.standing(); committed < end-int64(s.partitions) {
			return false, fmt.Sprintf("committed %d of %d offsets", committed, end)
		}
		left := s.left()
		return left == "", left
	})
}

func (s *system) left() string {
	ctx, cancel := context.WithTimeout(s.t.Context(), 30*time.Second)
	defer cancel()
	left, err := s.oracle().Left(ctx, s.databases()...)
	if ctx.Err() != nil && s.t.Context().Err() == nil {
		return fmt.Sprintf("no answer: %v", err) // a busy server; whoever waits has a bound
	}
	require.NoError(s.t, err)
	return left
}

// standing returns the fold's committed position and the length of the log.
func (s *system) standing() (committed, end int64) {
	ctx, cancel := context.WithTimeout(s.t.Context(), 20*time.Second)
	defer cancel()
	offsets, err := s.admin().FetchOffsets(ctx, schema.GroupFold)
	if kerr.IsRetriable(err) || errors.Is(err, kerr.GroupIDNotFound) {
		// The broker's internal topics, or the group, are being created.
		return 0, math.MaxInt64
	}
	require.NoError(s.t, err)
	offsets.Each(func(o kadm.OffsetResponse) { committed += o.At })
	return committed, s.written(ctx, schema.TopicLikes)
}

// waitFolded waits until the fold's committed position is at least until, and returns it.
func (s *system) waitFolded(within time.Duration, until int64) (committed int64) {
	waitSaid(s.t, within, fmt.Sprintf("%d events to be folded", until), func() (bool, any) {
		committed, _ = s.standing()
		return committed >= until, committed
	})
	return committed
}

// written is how many offsets are in use in some topics, or in all if none is named.
func (s *system) written(ctx context.Context, topics ...string) (sum int64) {
	ends, err := s.admin().ListEndOffsets(ctx, topics...)
	require.NoError(s.t, err)
	ends.Each(func(o kadm.ListedOffset) { sum += o.Offset })
	return sum
}

func (s *system) openTransactions() (open int) {
	listed, err := s.admin().ListTransactions(s.t.Context(), nil, []string{"Ongoing"})
	require.NoError(s.t, err)
	listed.Each(func(t kadm.ListedTransaction) {
		if strings.HasPrefix(t.TxnID, schema.GroupFold) {
			open++
		}
	})
	return open
}

func (s *system) configure(configs map[string]string, topics ...string) {
	var alter []kadm.AlterConfig
	for name, value := range configs {
		alter = append(alter, kadm.AlterConfig{Op: kadm.SetConfig, Name: name, Value: &value})
	}
	responses, err := s.admin().AlterTopicConfigs(s.t.Context(), alter, topics...)
	require.NoError(s.t, err)
	for _, r := range responses {
		require.NoError(s.t, r.Err, r.Name)
	}
}

// deleteTopic deletes a topic, and returns when no broker knows it any more.
func (s *system) deleteTopic(name string) {
	_, err := s.admin().DeleteTopic(s.t.Context(), name)
	require.NoError(s.t, err)
	waitFor(s.t, time.Minute, "the topic to be deleted", func() bool {
		topics, err := s.admin().ListTopics(s.t.Context())
		return err == nil && !topics.Has(name)
	})
}

// deleteBefore deletes the records below an offset in some partitions, like retention.
func (s *system) deleteBefore(topic string, offsets map[int32]int64) {
	if topic != schema.TopicLikes { // otherwise Kafka refuses
		s.configure(map[string]string{"cleanup.policy": "compact,delete"}, topic)
		defer s.configure(map[string]string{"cleanup.policy": "compact"}, topic)
	}
	before := kadm.Offsets{}
	for p, offset := range offsets {
		before.AddOffset(topic, p, offset, -1)
	}
	waitFor(s.t, time.Minute, "the records to be deleted", func() bool {
		deleted, err := s.admin().DeleteRecords(s.t.Context(), before)
		return err == nil && deleted.Error() == nil
	})
}

// commitFold resets the committed offsets of the fold's group, which has no members, like an operator.
func (s *system) commitFold(at map[int32]int64) error {
	offsets := kadm.Offsets{}
	for p, offset := range at {
		offsets.AddOffset(schema.TopicLikes, p, offset, -1)
	}
	return s.admin().CommitAllOffsets(s.t.Context(), schema.GroupFold, offsets)
}

// writer writes many records to a topic, with franz-go's defaults.
type writer struct {
	cl     *kgo.Client
	took   func(*kgo.Record) // called for each acknowledged record, unless nil
	failed error             // one goroutine calls all promises
}

func (s *system) writer(topic string, opts ...kgo.Opt) *writer {
	return &writer{cl: s.ownClient(append([]kgo.Opt{kgo.DefaultProduceTopic(topic), kgo.ProducerBatchMaxBytes(60 << 10),
		kgo.MaxBufferedRecords(100_000)}, opts...)...)}
}

func (w *writer) send(rec *kgo.Record) {
	w.cl.Produce(context.Background(), rec, func(rec *kgo.Record, err error) {
		if err != nil {
			w.failed = err
		} else if w.took != nil {
			w.took(rec)
		}
	})
}

func (w *writer) like(e schema.Event) { w.send(record(e)) }

// close waits until Kafka has acknowledged all records.
func (w *writer) close() error {
	defer w.cl.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	return errors.Join(w.cl.Flush(ctx), w.failed)
}

// pour writes the events that fill sends to likes, and returns when Kafka has acknowledged them.
func (s *system) pour(fill func(send func(schema.Event))) {
	w := s.writer(schema.TopicLikes)
	fill(w.like)
	require.NoError(s.t, w.close())
}

func (s *system) produce(events ...schema.Event) {
	s.pour(func(send func(schema.Event)) {
		for _, e := range events {
			send(e)
		}
	})
}

// keepSending calls next until stop is called, which returns the number of calls; it pauses for 10 ms after each burst,
// and for as long as more than ahead events are not folded (0: any number), so that draining takes a bounded time.
func (s *system) keepSending(
	burst int, ahead int64, took func(*kgo.Record), next func(send func(schema.Event)),
) (stop func() int) {
	w := s.writer(schema.TopicLikes, kgo.MaxBufferedRecords(10_000), kgo.MetadataMaxAge(5*time.Second))
	w.took = took
	admin := s.admin()
	return background(s.t, func(ctx context.Context) (n int, _ error) {
		for ; ctx.Err() == nil; n++ {
			next(w.like)
			if n%burst == 0 {
				pause(s.t, 10*time.Millisecond)
			}
			for ahead > 0 && n%10_000 == 0 && ctx.Err() == nil && backlog(ctx, admin) > ahead {
				pause(s.t, 100*time.Millisecond)
			}
		}
		return n, w.close()
	}).stop
}

// backlog is how many events are not folded, 0 if the broker cannot tell: tests disturb it.
func backlog(ctx context.Context, admin *kadm.Client) int64 {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	groups, err := admin.Lag(ctx, schema.GroupFold)
	if err != nil {
		return 0
	}
	return groups[schema.GroupFold].Lag.Total()
}

// write writes records to explicit partitions, bypassing the program.
func (s *system) write(records ...*kgo.Record) {
	cl := s.ownClient(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	defer cl.Close()
	require.NoError(s.t, cl.ProduceSync(s.t.Context(), records...).FirstErr())
}

func record(e schema.Event) *kgo.Record {
	return &kgo.Record{Key: schema.AppendPostKey(nil, e.PostID), Value: schema.AppendEvent(nil, &e)}
}

// updateRecord is a record of like-updates, for writes that bypass the program.
func updateRecord(partition int32, key string, u schema.Update) *kgo.Record {
	return &kgo.Record{Topic: schema.TopicUpdates, Partition: partition, Key: []byte(key),
		Value: schema.AppendUpdate(nil, &u)}
}

// foreignUpdate has some likes in a minute long ago.
func foreignUpdate(partition int32, post, seq uint64, likes int64) *kgo.Record {
	return updateRecord(partition, fmt.Sprint(post), schema.Update{Seq: seq,
		Deltas: []schema.Delta{{Region: schema.UnknownRegion, Minute: 1, Likes: likes}}})
}

// like returns a like of an unknown region.
func like(post, user uint64, timeMs int64) schema.Event {
	return likeIn(schema.UnknownRegion, post, user, timeMs)
}

func likeIn(region schema.Region, post, user uint64, timeMs int64) schema.Event {
	return schema.Event{PostID: post, UserID: user, Action: schema.Like, TimeMs: timeMs, Region: region}
}

func likeNow(post, user uint64) schema.Event { return like(post, user, time.Now().UnixMilli()) }

func (s *system) postIn(p int32) uint64 { return postFrom(1, p, s.partitions) }

// postFrom returns the first post, from post on, that belongs to a partition.
func postFrom(post uint64, p int32, partitions int) uint64 {
	for schema.PartitionFor(post, int32(partitions)) != p {
		post++
	}
	return post
}
