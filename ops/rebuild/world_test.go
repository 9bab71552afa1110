package rebuild

import (
	"bytes"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/dev/devtest"
	"kudos/ops/audit"
	"kudos/ops/progress"
	"kudos/ops/topics"
	"kudos/processor/fold/table"
	"kudos/schema"
	"kudos/sql"
	"kudos/stream/kafka"
)

const (
	partitions = 2
	damaged    = 1 // the partition that these tests write to
)

func TestMain(m *testing.M) { os.Exit(devtest.Main(m)) }

// world is a broker with topics as `kudos topics apply` creates them, and an operator who agrees to everything.
type world struct {
	*devtest.Kafka
	t     *testing.T
	mysql sql.Options
	said  []string
	out   bytes.Buffer // what Say and Show print
	in    int32        // the partition under test
	asked func()       // called before the operator agrees
}

func newWorld(t *testing.T) *world {
	w := &world{Kafka: devtest.NewKafka(t), t: t, mysql: sql.DefaultOptions(), asked: func() {}, in: damaged}
	w.mysql.DSN = "nobody@tcp(127.0.0.1:1)/none"
	w.applyTopics()
	return w
}

func (w *world) applyTopics() {
	o := topics.Options{Partitions: partitions, ReplicationFactor: 1}
	_, err := topics.Apply(w.t.Context(), w.Options, o, devtest.Log())
	require.NoError(w.t, err)
}

func (w *world) startDatabase() (db *sqlx.DB) {
	w.mysql, db = devtest.Database(w.t)
	devtest.Migrate(w.t, w.mysql)
	return db
}

func (w *world) Say(line string) error      { w.said = append(w.said, line); return nil }
func (w *world) Show(*audit.Report) error   { return nil }
func (w *world) Agree(string) (bool, error) { w.asked(); return true, nil }

func (w *world) requireSaid(words ...string) {
	for _, word := range words {
		require.Contains(w.t, strings.Join(w.said, "\n"), word)
	}
}

func (w *world) options(depth Depth, change ...func(*Options)) Options {
	o := DefaultOptions()
	o.Depth, o.TransactionTimeout, o.Audit.TempDir = depth, time.Minute, w.t.TempDir()
	o.Audit.Progress = progress.Printer{Name: "rebuild", Out: &w.out}
	for _, f := range change {
		f(&o)
	}
	return o
}

// rebuild returns a run that has connected but done nothing yet.
func (w *world) rebuild(depth Depth) *rebuild {
	b := &rebuild{
		opts: w.options(depth), kafka: w.Options, mysql: w.mysql, person: w, log: devtest.Log(), cl: w.NewClient(),
	}
	require.NoError(w.t, b.lookUp(w.t.Context()))
	return b
}

var rebuilding sync.Mutex // one test at a time: a rebuild locks the whole database server, which all tests share

func (w *world) run(depth Depth, change ...func(*Options)) (*Result, error) {
	rebuilding.Lock()
	defer rebuilding.Unlock()
	w.said = nil
	return Run(w.t.Context(), w.options(depth, change...), w.Options, w.mysql, w, devtest.Log())
}

func (w *world) mustRun(depth Depth, change ...func(*Options)) *Result {
	result, err := w.run(depth, change...)
	require.NoError(w.t, err)
	return result
}

// runKafka runs a rebuild that does its work in Kafka and then cannot reach MySQL.
func (w *world) runKafka(depth Depth) {
	_, err := w.run(depth)
	require.ErrorContains(w.t, err, "127.0.0.1:1", "MySQL fails after the work in Kafka is done")
}

// thePost, the post of these tests, is in the damaged partition.
var thePost, us = postAfter(0), schema.Region{'U', 'S'}

func postAfter(post uint64) uint64 {
	for post++; schema.PartitionFor(post, partitions) != damaged; post++ {
	}
	return post
}

func (w *world) likes(n uint64) {
	var records []*kgo.Record
	for user := range n {
		e := schema.Event{PostID: thePost, UserID: user + 1, Action: schema.Like, TimeMs: 1e12, Region: us}
		key, value := schema.AppendPostKey(nil, e.PostID), schema.AppendEvent(nil, &e)
		for p := range int32(partitions) {
			records = append(records, &kgo.Record{Topic: schema.TopicLikes, Partition: p, Key: key, Value: value})
		}
	}
	w.Write(records...)
}

func (w *world) progress() *schema.Progress {
	p, err := table.LastProgress(w.t.Context(), w.Client, w.in)
	require.NoError(w.t, err)
	return p
}

func (w *world) setProgress(change func(*schema.Progress)) {
	p := w.progress()
	change(p)
	w.Write(devtest.ProgressRecord(w.in, *p))
}

// publish appends a record to like-updates that covers likes up to an offset.
func (w *world) publish(seq uint64, source int64) {
	u := schema.ProgressUpdate(0, false)
	u.Seq, u.SourceOffset = seq, source
	w.Write(devtest.UpdateRecord(w.in, 0, u))
}

func (w *world) updates() (all []schema.Update) {
	for _, rec := range w.Records(schema.TopicUpdates, damaged) {
		var u schema.Update
		require.NoError(w.t, schema.DecodeUpdate(rec.Value, &u))
		all = append(all, u)
	}
	return all
}

func (w *world) commit(offset int64) {
	offsets := kadm.Offsets{}
	offsets.AddOffset(schema.TopicLikes, w.in, offset, -1)
	require.NoError(w.t, kadm.NewClient(w.Client).CommitAllOffsets(w.t.Context(), schema.GroupFold, offsets))
}

// committed is the committed offset, or -1.
func (w *world) committed() int64 {
	offset, ok, err := kafka.CommittedOffset(w.t.Context(), w.Client, schema.GroupFold, schema.TopicLikes, w.in)
	require.NoError(w.t, err)
	if !ok {
		return -1
	}
	return offset
}

// written returns the ends of the topics that a rebuild writes to.
func (w *world) written() [2]int64 {
	return [2]int64{w.End(schema.TopicState, damaged), w.End(schema.TopicUpdates, damaged)}
}

// epochsEndAt0 makes the broker report that every leader epoch ended at offset 0.
func (w *world) epochsEndAt0() {
	w.Broker.ControlKey(int16(kmsg.OffsetForLeaderEpoch), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		w.Broker.KeepControl()
		resp := kreq.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
		p, likes := kmsg.NewOffsetForLeaderEpochResponseTopicPartition(), kmsg.NewOffsetForLeaderEpochResponseTopic()
		p.Partition, p.EndOffset = damaged, 0
		likes.Topic, likes.Partitions = schema.TopicLikes, append(likes.Partitions, p)
		resp.Topics = append(resp.Topics, likes)
		return resp, nil, true
	})
}

// forget deletes the records of a partition before an offset; -1 means all.
func (w *world) forget(topic string, partition int32, before int64) {
	require.NoError(w.t, w.Broker.DeleteRecords(topic, partition, before))
}

func (w *world) recreateUpdates() {
	require.NoError(w.t, w.Broker.DeleteTopic(schema.TopicUpdates))
	w.applyTopics()
}

// standing is up to where likes/1, with 10 events, was folded according to each source; -1 if it has no record.
type standing struct{ progress, committed, published int64 }

func newStanding(t *testing.T, s standing, damage damage) *world {
	w := newWorld(t)
	w.likes(10)
	if s.progress >= 0 {
		w.setProgress(func(p *schema.Progress) { p.NextOffset = s.progress })
	} else {
		w.forget(schema.TopicState, damaged, -1)
	}
	if s.committed >= 0 {
		w.commit(s.committed)
	}
	if s.published >= 0 {
		w.publish(0, s.published)
	}
	damage(w)
	return w
}

type damage func(*world)

func both(damages ...damage) damage {
	return func(w *world) {
		for _, d := range damages {
			d(w)
		}
	}
}

func nothing(*world) {}

func lose(before int64) damage {
	return func(w *world) { w.forget(schema.TopicLikes, damaged, before) }
}

func loseElsewhere(before int64) damage {
	return func(w *world) { w.forget(schema.TopicLikes, 0, before) }
}

// numbered sets the next sequence number in the state table; in like-updates it is 1 if there is an update.
func numbered(seq uint64) damage { return changed(func(p *schema.Progress) { p.NextSeq = seq }) }

func changed(change func(*schema.Progress)) damage { return func(w *world) { w.setProgress(change) } }

var (
	ofAnotherCluster = changed(func(p *schema.Progress) { p.ClusterID = "another" })
	ofAnotherLikes   = changed(func(p *schema.Progress) { p.SourceID[0]++ })
	ofAnotherTable   = changed(func(p *schema.Progress) { p.StateID[0]++ })
	ofOtherUpdates   = changed(func(p *schema.Progress) { p.UpdatesID[0]++ })
	of8Partitions    = changed(func(p *schema.Progress) { p.Partitions = 8 })
	ofAnotherLayout  = changed(func(p *schema.Progress) { p.Layouts = 1 })
	isMigrating      = changed(func(p *schema.Progress) { p.Migrating, p.Layouts = true, 1 })
	knowsItsEpoch    = changed(func(p *schema.Progress) { p.LeaderEpoch = 0 })
)
