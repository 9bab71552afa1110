package rebuild_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/ops/audit"
	"kudos/ops/rebuild"
	"kudos/ops/topics"
	"kudos/processor/fold/table"
	"kudos/schema"
	"kudos/sql"
	"kudos/stream/kafka"
)

// offsetsSystem has a broker in this process, where the fold of likes/1 has come to offset 6 of 10.
type offsetsSystem struct {
	t      *testing.T
	broker *kfake.Cluster
	kafka  kafka.Options
	cl     *kgo.Client
	adm    *kadm.Client
	said   []string // by a rebuild
}

// offsetsCase is how state table, like-updates, committed offset and likes stand to each other.
type offsetsCase struct {
	committed       int64 // -1: none
	seq             uint64
	source          int64 // of the last update
	begins, before0 int64 // where likes/1 and likes/0 begin
	layouts         uint32
}

// agreed is one where nothing is wrong: each case changes something.
func agreed(change func(*offsetsCase)) offsetsCase {
	c := offsetsCase{committed: 6, seq: 2, source: 6}
	change(&c)
	return c
}

func newOffsetsSystem(t *testing.T, c offsetsCase) *offsetsSystem {
	broker, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.BrokerConfigs(map[string]string{"log.cleaner.backoff.ms": "100000000000"}))
	require.NoError(t, err)
	t.Cleanup(broker.Close)
	s := &offsetsSystem{t: t, broker: broker, kafka: kafka.DefaultOptions()}
	s.kafka.Brokers = broker.ListenAddrs()
	s.cl, err = s.kafka.NewClient(slog.New(slog.DiscardHandler), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(t, err)
	t.Cleanup(s.cl.Close)
	s.adm = kadm.NewClient(s.cl)
	s.applyTopics()

	p := s.progress()
	p.NextOffset, p.NextSeq, p.LeaderEpoch, p.Layouts = 6, 3, 0, c.layouts
	u := schema.ProgressUpdate(c.layouts, false)
	u.Seq, u.SourceOffset = c.seq, c.source
	records := []*kgo.Record{
		{Topic: schema.TopicState, Partition: 1, Key: []byte(schema.StateProgressKey), Value: schema.AppendProgress(nil, p)},
		{Topic: schema.TopicUpdates, Partition: 1, Key: []byte(schema.ProgressKey), Value: schema.AppendUpdate(nil, &u)},
	}
	for range 10 {
		for partition := range int32(2) {
			records = append(records, &kgo.Record{Topic: schema.TopicLikes, Partition: partition, Value: []byte("an event")})
		}
	}
	require.NoError(t, s.cl.ProduceSync(t.Context(), records...).FirstErr())
	if c.committed >= 0 {
		offsets := kadm.Offsets{}
		offsets.AddOffset(schema.TopicLikes, 1, c.committed, -1)
		require.NoError(t, s.adm.CommitAllOffsets(t.Context(), schema.GroupFold, offsets))
	}
	require.NoError(t, broker.DeleteRecords(schema.TopicLikes, 1, c.begins))
	require.NoError(t, broker.DeleteRecords(schema.TopicLikes, 0, c.before0))
	return s
}

func (s *offsetsSystem) applyTopics() {
	s.t.Helper()
	_, err := topics.Apply(s.t.Context(), s.kafka, schema.Layout{Partitions: 2}, 1, slog.New(slog.DiscardHandler))
	require.NoError(s.t, err)
}

func (s *offsetsSystem) progress() *schema.Progress {
	s.t.Helper()
	p, err := table.LastProgress(s.t.Context(), s.cl, 1)
	require.NoError(s.t, err)
	return p
}

func (s *offsetsSystem) committed() int64 {
	s.t.Helper()
	offset, ok, err := kafka.CommittedOffset(s.t.Context(), s.cl, schema.GroupFold, schema.TopicLikes, 1)
	require.NoError(s.t, err)
	if !ok {
		return -1
	}
	return offset
}

// written is where the topics that a rebuild writes to end.
func (s *offsetsSystem) written() (ends [2]int64) {
	return [2]int64{s.broker.PartitionInfo(schema.TopicState, 1).HighWatermark, s.broker.PartitionInfo(schema.TopicUpdates, 1).HighWatermark}
}

// Say, Show and Agree: the person who says yes.
func (s *offsetsSystem) Say(line string) error      { s.said = append(s.said, line); return nil }
func (s *offsetsSystem) Show(*audit.Report) error   { return nil }
func (s *offsetsSystem) Agree(string) (bool, error) { return true, nil }
func (s *offsetsSystem) requireSaid(words ...string) {
	s.t.Helper()
	for _, word := range words {
		require.Contains(s.t, strings.Join(s.said, "\n"), word)
	}
}

func (s *offsetsSystem) rebuild(depth rebuild.Depth, change ...func(*rebuild.Options)) error {
	s.t.Helper()
	o, mysql := rebuild.DefaultOptions(), sql.DefaultOptions()
	o.Depth, o.TransactionTimeout, o.Audit.TempDir = depth, time.Minute, s.t.TempDir()
	for _, f := range change {
		f(&o)
	}
	mysql.DSN = "nobody@tcp(127.0.0.1:1)/none"
	s.said = nil
	r, err := rebuild.New(o, s.kafka, mysql, s, slog.New(slog.DiscardHandler))
	require.NoError(s.t, err)
	_, err = r.Run(s.t.Context())
	return err
}

// The committed offset alone is wrong: it is that of the progress record again, whatever likes still holds, and nothing
// else has changed.
func TestOffsetsAreCommittedAgain(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*offsetsCase){
		"set back":                        func(c *offsetsCase) { c.committed = 2 },
		"set ahead":                       func(c *offsetsCase) { c.committed = 9 },
		"set back, likes has lost events": func(c *offsetsCase) { c.committed, c.begins, c.before0 = 2, 4, 9 },
		"set back, nothing before":        func(c *offsetsCase) { c.committed, c.begins = 2, 6 },
		"set back, repartitioned":         func(c *offsetsCase) { c.committed, c.layouts = 2, 1 },
		"set back, old and repartitioned": func(c *offsetsCase) { c.committed, c.begins, c.layouts = 0, 5, 3 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newOffsetsSystem(t, agreed(change))
			before, wrong, ends := s.progress(), s.committed(), s.written()
			require.NoError(t, s.rebuild(rebuild.Offsets, func(o *rebuild.Options) { o.DryRun = true }))
			s.requireSaid("partition 1: the state table stands at offset 6 of likes/1", "offset 6 is committed again", "dry run")
			require.Equal(t, wrong, s.committed())
			require.Equal(t, ends, s.written())

			require.NoError(t, s.rebuild(rebuild.Offsets))
			s.requireSaid("partition 0: the committed offset is right")
			require.Equal(t, int64(6), s.committed())
			require.Equal(t, before, s.progress())
			require.Equal(t, ends[1], s.written()[1], "like-updates")

			ends = s.written()
			require.NoError(t, s.rebuild(rebuild.Offsets))
			s.requireSaid("partition 1: the committed offset is right")
			require.Equal(t, ends, s.written(), "the second time there is nothing to do")
		})
	}
}

// A worker of before is fenced, as by each who writes a partition: it cannot commit what it had begun.
func TestOffsetsAreCommittedUnderTheFence(t *testing.T) {
	t.Parallel()
	s := newOffsetsSystem(t, agreed(func(c *offsetsCase) { c.committed = 2 }))
	zombie, err := s.kafka.NewClient(slog.New(slog.DiscardHandler), kgo.TransactionalID(schema.FoldTransactionalID(1)), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(t, err)
	defer zombie.Close()
	require.NoError(t, zombie.BeginTransaction())
	record := func() *kgo.Record {
		return &kgo.Record{Topic: schema.TopicState, Partition: 1, Key: []byte("a key that is of nobody"), Value: []byte("of a zombie")}
	}
	_, _, err = zombie.ProducerID(t.Context())
	require.NoError(t, err)
	require.NoError(t, s.rebuild(rebuild.Offsets))
	require.Error(t, zombie.ProduceSync(t.Context(), record()).FirstErr())
	require.Equal(t, int64(6), s.committed())
}

// What a committed offset does not set right is refused, with what helps on this cluster.
func TestOffsetsAreRefused(t *testing.T) {
	t.Parallel()
	const (
		wentBack   = "and published up to 8: the state table was lost or went back"
		torn       = "and published up to 5: Kafka committed a transaction in part, or like-updates went back"
		fromEvents = "stop the processors, then: kudos rebuild --from-events"
		updates    = "stop the processors, delete like-updates, then: kudos topics apply, and kudos rebuild --updates"
		gone       = "restore the topic latest-like-action-table, or, if offsets 6 to 6 of likes/1 are lost for good: " +
			"stop the processors, delete like-updates, then: kudos topics apply, kudos rebuild --accept-loss, and kudos rebuild --updates"
	)
	for name, c := range map[string]struct {
		is   offsetsCase
		says []string
	}{
		"published further":                   {offsetsCase{committed: 8, seq: 4, source: 8}, []string{wentBack, fromEvents}},
		"published further, old":              {offsetsCase{committed: 8, seq: 4, source: 8, begins: 4}, []string{wentBack, updates}},
		"published further, old elsewhere":    {offsetsCase{committed: 8, seq: 4, source: 8, before0: 1}, []string{wentBack, updates}},
		"published further, repartitioned":    {offsetsCase{committed: 8, seq: 4, source: 8, layouts: 1}, []string{wentBack, updates}},
		"published further, and it is gone":   {offsetsCase{committed: 8, seq: 4, source: 8, begins: 7}, []string{wentBack, gone}},
		"published less":                      {offsetsCase{committed: 5, seq: 1, source: 5}, []string{torn, fromEvents}},
		"published less, old":                 {offsetsCase{committed: 5, seq: 1, source: 5, begins: 1}, []string{torn, updates}},
		"numbered alike, of another position": {offsetsCase{committed: 5, seq: 2, source: 5}, []string{torn, fromEvents}},
		"the next events are gone":            {offsetsCase{committed: 2, seq: 2, source: 6, begins: 7}, []string{"offsets 6 to 6 were deleted before they were folded", "kudos rebuild --accept-loss"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newOffsetsSystem(t, c.is)
			wrong, ends := s.committed(), s.written()
			err := s.rebuild(rebuild.Offsets)
			for _, says := range c.says {
				require.ErrorContains(t, err, says)
			}
			require.Equal(t, wrong, s.committed())
			require.Equal(t, ends, s.written())
		})
	}
}

// No committed offset is none that is wrong: they expire.
func TestOffsetsThatHaveExpired(t *testing.T) {
	t.Parallel()
	s := newOffsetsSystem(t, agreed(func(c *offsetsCase) { c.committed = -1 }))
	ends := s.written()
	require.NoError(t, s.rebuild(rebuild.Offsets))
	require.Equal(t, int64(-1), s.committed())
	require.Equal(t, ends, s.written())
}

// Of several things that are wrong, each has a remedy that does not wait for that of another.
func TestOffsetsBesideOtherDamage(t *testing.T) {
	t.Parallel()
	t.Run("the next events are gone, too", func(t *testing.T) {
		t.Parallel()
		s := newOffsetsSystem(t, agreed(func(c *offsetsCase) { c.committed, c.begins = 2, 7 }))
		require.NoError(t, s.rebuild(rebuild.Loss))
		require.Equal(t, int64(7), s.committed())
		require.Equal(t, int64(7), s.progress().NextOffset)
	})
	t.Run("nothing is lost", func(t *testing.T) {
		t.Parallel()
		s := newOffsetsSystem(t, agreed(func(c *offsetsCase) { c.committed = 2 }))
		require.NoError(t, s.rebuild(rebuild.Loss))
		s.requireSaid("partition 1: nothing is lost, but the state table stands at offset 6", "kudos rebuild --offsets")
		require.Equal(t, int64(2), s.committed())
	})
	t.Run("the state table went back", func(t *testing.T) {
		t.Parallel()
		s := newOffsetsSystem(t, agreed(func(c *offsetsCase) { c.committed, c.seq, c.source, c.begins, c.before0 = 8, 4, 8, 4, 1 }))
		require.ErrorContains(t, s.rebuild(rebuild.Loss), "kudos rebuild --updates")
		refused := s.rebuild(rebuild.Updates)
		require.ErrorContains(t, refused, "published up to 8")
		require.ErrorContains(t, refused, "kudos rebuild --updates")
		err := s.rebuild(rebuild.Events)
		require.ErrorContains(t, err, "likes/0 begins at offset 1")
		require.ErrorContains(t, err, "of partition 1, the state table stands at offset 6")
		require.ErrorContains(t, err, "what helps: stop the processors, delete like-updates")
		require.NoError(t, s.broker.DeleteTopic(schema.TopicUpdates))
		s.applyTopics()
		require.ErrorContains(t, s.rebuild(rebuild.Offsets), "like-updates is not that of the state table")
		require.ErrorContains(t, s.rebuild(rebuild.Updates), "127.0.0.1:1", "MySQL, after all of Kafka was done")
		s.requireSaid("but the group has committed 8", "events are folded from where the state table stands")
		require.Equal(t, int64(6), s.committed())
		require.Equal(t, int64(6), s.progress().NextOffset)
	})
	t.Run("the state table went back to before what likes holds", func(t *testing.T) {
		t.Parallel()
		s := newOffsetsSystem(t, agreed(func(c *offsetsCase) { c.committed, c.seq, c.source, c.begins = 8, 4, 8, 7 }))
		require.ErrorContains(t, s.rebuild(rebuild.Loss), "if offsets 6 to 6 of likes/1 are lost for good")
		require.NoError(t, s.broker.DeleteTopic(schema.TopicUpdates))
		s.applyTopics()
		require.NoError(t, s.rebuild(rebuild.Loss))
		require.ErrorContains(t, s.rebuild(rebuild.Updates), "127.0.0.1:1", "MySQL, after all of Kafka was done")
		require.Equal(t, int64(7), s.committed())
		require.Equal(t, int64(7), s.progress().NextOffset)
	})
}
