package rebuild

import (
	"bytes"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/dev/devtest"
	"kudos/ops/audit"
	"kudos/ops/topics"
	"kudos/processor/fold/table"
	"kudos/schema"
	"kudos/sql"
	"kudos/stream/kafka"
)

const (
	partitions = 2
	// damaged is the partition that these tests write to.
	damaged = 1
)

func TestMain(m *testing.M) { os.Exit(devtest.Main(m)) }

// world is a broker with topics as `kudos topics apply` leaves them, and a person who
// agrees to all.
type world struct {
	t      *testing.T
	broker *kfake.Cluster
	kafka  kafka.Options
	mysql  sql.Options
	cl     *kgo.Client
	said   []string
	out    bytes.Buffer // what is told of the work
	in     int32        // the partition that is written to and looked at
	// asked is called before the person agrees.
	asked func()
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, mysql: sql.DefaultOptions(), asked: func() {}, in: damaged}
	w.mysql.DSN = "nobody@tcp(127.0.0.1:1)/none"
	w.broker, w.kafka = devtest.Broker(t)
	_, err := topics.Apply(t.Context(), w.kafka, schema.Layout{Partitions: partitions}, 1, devtest.Log())
	require.NoError(t, err)
	w.cl, err = w.kafka.NewClient(devtest.Log(), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(t, err)
	t.Cleanup(w.cl.Close)
	return w
}

func (w *world) Say(line string) error      { w.said = append(w.said, line); return nil }
func (w *world) Show(*audit.Report) error   { return nil }
func (w *world) Agree(string) (bool, error) { w.asked(); return true, nil }

// rebuild is one that has looked, and done nothing yet.
func (w *world) rebuild(depth Depth) *Rebuild {
	w.t.Helper()
	o := DefaultOptions()
	o.Depth, o.TransactionTimeout, o.Audit.TempDir = depth, time.Minute, w.t.TempDir()
	o.Audit.Progress = audit.Progress{Name: "rebuild", Out: &w.out}
	b, err := New(o, w.kafka, w.mysql, w, devtest.Log())
	require.NoError(w.t, err)
	b.cl = w.cl
	b.topics, err = kafka.LookUpTopics(w.t.Context(), w.cl, schema.TopicLikes, schema.TopicState, schema.TopicUpdates)
	require.NoError(w.t, err)
	require.NoError(w.t, b.findLayout(w.t.Context()))
	return b
}

// rebuilding is held by one test at a time: a rebuild locks the whole database server, which all tests share.
var rebuilding sync.Mutex

// run is a rebuild from its beginning to its end.
func (w *world) run(depth Depth) (*Result, error) {
	w.t.Helper()
	rebuilding.Lock()
	defer rebuilding.Unlock()
	b := w.rebuild(depth)
	b.cl = nil
	w.said = nil
	return b.Run(w.t.Context())
}

func (w *world) write(topic string, partition int32, records ...*kgo.Record) {
	w.t.Helper()
	for _, rec := range records {
		rec.Topic, rec.Partition = topic, partition
	}
	require.NoError(w.t, w.cl.ProduceSync(w.t.Context(), records...).FirstErr())
}

// like is user's like of the post that these tests are about.
func like(user uint64) schema.Event {
	return schema.Event{PostID: thePost, UserID: user, Action: schema.Like, TimeMs: 1e12, Region: schema.Region{'U', 'S'}}
}

// thePost is in the damaged partition.
var thePost = postAfter(0)

// postAfter is the next one there.
func postAfter(post uint64) uint64 {
	for post++; schema.PartitionFor(post, partitions) != damaged; post++ {
	}
	return post
}

// likes writes so many events.
func (w *world) likes(n uint64) {
	w.t.Helper()
	for user := range n {
		e := like(user + 1)
		w.write(schema.TopicLikes, damaged, &kgo.Record{Key: schema.AppendPostKey(nil, e.PostID), Value: schema.AppendEvent(nil, &e)})
	}
}

func (w *world) progress() *schema.Progress {
	w.t.Helper()
	p, err := table.LastProgress(w.t.Context(), w.cl, w.in)
	require.NoError(w.t, err)
	return p
}

// setProgress changes the last progress record.
func (w *world) setProgress(change func(*schema.Progress)) {
	w.t.Helper()
	p := w.progress()
	change(p)
	w.write(schema.TopicState, w.in, &kgo.Record{Key: []byte(schema.StateProgressKey), Value: schema.AppendProgress(nil, p)})
}

// publish ends like-updates with a record that covers likes up to an offset.
func (w *world) publish(seq uint64, source int64) {
	w.t.Helper()
	u := schema.ProgressUpdate(0, false)
	u.Seq, u.SourceOffset = seq, source
	w.write(schema.TopicUpdates, w.in, &kgo.Record{Key: []byte(schema.ProgressKey), Value: schema.AppendUpdate(nil, &u)})
}

func (w *world) lastUpdate() (u schema.Update) {
	w.t.Helper()
	err := kafka.ReadLog(w.t.Context(), w.cl, schema.TopicUpdates, w.in, 0, func(c kafka.LogChunk) (bool, error) {
		for _, rec := range c.Records {
			require.NoError(w.t, schema.DecodeUpdate(rec.Value, &u))
		}
		return c.Next < c.End, nil
	})
	require.NoError(w.t, err)
	return u
}

func (w *world) commit(offset int64) {
	w.t.Helper()
	offsets := kadm.Offsets{}
	offsets.AddOffset(schema.TopicLikes, w.in, offset, -1)
	require.NoError(w.t, kadm.NewClient(w.cl).CommitAllOffsets(w.t.Context(), schema.GroupFold, offsets))
}

func (w *world) committed() int64 {
	w.t.Helper()
	offset, ok, err := kafka.CommittedOffset(w.t.Context(), w.cl, schema.GroupFold, schema.TopicLikes, w.in)
	require.NoError(w.t, err)
	require.True(w.t, ok)
	return offset
}

// epochEnds has the broker say that each leader epoch ended there.
func (w *world) epochEnds(offset int64) {
	w.broker.ControlKey(int16(kmsg.OffsetForLeaderEpoch), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		w.broker.KeepControl()
		resp := kreq.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
		for _, t := range kreq.(*kmsg.OffsetForLeaderEpochRequest).Topics {
			rt := kmsg.NewOffsetForLeaderEpochResponseTopic()
			rt.Topic = t.Topic
			for _, p := range t.Partitions {
				rp := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
				rp.Partition, rp.EndOffset = p.Partition, offset
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.Topics = append(resp.Topics, rt)
		}
		return resp, nil, true
	})
}

// forget deletes all records of the damaged partition.
func (w *world) forget(topic string) {
	w.t.Helper()
	require.NoError(w.t, w.broker.DeleteRecords(topic, damaged, -1))
}

// recreateUpdates deletes like-updates and creates it again.
func (w *world) recreateUpdates() {
	require.NoError(w.t, w.broker.DeleteTopic(schema.TopicUpdates))
	require.NoError(w.t, w.broker.CreateTopic(schema.TopicUpdates, partitions, map[string]string{"cleanup.policy": "compact"}))
}
