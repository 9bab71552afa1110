package processor_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/ops/rebuild"
	"kudos/ops/topics"
	"kudos/schema"
)

// likesFrom are likes of a post in a partition by users from the first one on, one for each region.
func likesFrom(partition int32, first uint64, regions ...string) (records []*kgo.Record) {
	for i, region := range regions {
		r, _ := schema.ParseRegion(region)
		records = append(records, record(schema.Event{PostID: postIn(partition), UserID: first + uint64(i),
			Action: schema.Like, TimeMs: 1, Region: r}))
	}
	return records
}

// likesBy returns the likes in MySQL by region.
func (s *system) likesBy() map[string]int64 {
	likes := map[string]int64{}
	for hour, c := range s.hourly() {
		likes[hour.Region] += c.Likes
	}
	return likes
}

func (s *system) applyRegions(o topics.Options, regions ...string) *topics.Report {
	s.t.Helper()
	o.Partitions, o.ReplicationFactor, o.Regions = partitions, 1, regions
	report, err := topics.Apply(s.t.Context(), s.Options, o, s.log)
	require.NoError(s.t, err)
	s.oracle.Regions = regions // what it has not read yet comes later
	return report
}

// heard keeps what a rebuild says.
type heard struct {
	agreeable
	said []string
}

func (h *heard) Say(text string) error { h.said = append(h.said, text); return nil }

// Which regions count as themselves is decided by the log: a change holds for the events after it, also when all of
// them are folded again.
func TestRegionsChangeFromAnOffsetOn(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	named := []string{"US", "US-CA", "XK", "QQ", "QQ-1", ""}
	s.produce(likesFrom(1, 1, named...)...)
	p := s.run()
	s.waitExact(p)
	require.Equal(t, map[string]int64{"US": 2, "ZZ": 4}, s.likesBy())
	p.waitIdle()
	require.Equal(t, 3, p.metric("kudos_events_bad_region_total"), "XK, QQ and QQ-1")

	report := s.applyRegions(topics.Options{}, "us-ca", "XK")
	require.Len(t, report.Lines, partitions)
	require.Contains(t, report.Lines[0],
		"partition 0: from offset 0 of likes on, countries and [US-CA,XK] count as themselves")
	require.Contains(t, report.Lines[1], "partition 1: from offset 6 of likes on")
	s.oracle.Regions = []string{"US-CA", "XK"} // as the oracle writes them
	s.produce(likesFrom(1, 11, named...)...)
	s.produce(record(schema.Event{PostID: postIn(1), UserID: 2, Action: schema.Unlike, TimeMs: 2}))
	s.waitExact(p)
	require.Equal(t, map[string]int64{"US": 2, "US-CA": 1, "XK": 1, "ZZ": 7}, s.likesBy(),
		"the like of user 2 is taken back where it counted")
	require.EqualValues(t, "0:1:;6:1:US-CA,XK", s.progress(1).Regions)
	require.EqualValues(t, "0:1:US-CA,XK", s.progress(0).Regions, "no event came before")
	require.Empty(t, s.applyRegions(topics.Options{}, "US-CA", "XK").Lines, "the second run does nothing")

	p.stop()
	says := &heard{}
	s.rebuild(rebuild.Events, says)
	require.Contains(t, strings.Join(says.said, "\n"), "partition 1: the state table matches likes")
}

// In a state table of an earlier version every region counts as itself, until an operator bounds them.
func TestRegionsOfAnEarlierStateTable(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	for partition := range int32(partitions) {
		earlier := s.progress(partition)
		earlier.Regions = ""
		for _, topic := range []string{schema.TopicState, schema.TopicCounts} {
			s.produce(&kgo.Record{Topic: topic, Partition: partition, Key: []byte(schema.StateProgressKey),
				Value: schema.AppendProgress(nil, earlier)})
		}
	}
	s.oracle.Regions = []string{"US-CA", "QQ"}
	s.produce(likesFrom(1, 1, "US", "US-CA", "QQ")...)
	p := s.run()
	s.waitExact(p)
	require.Equal(t, map[string]int64{"US": 1, "US-CA": 1, "QQ": 1}, s.likesBy())

	report := s.applyRegions(topics.Options{}, "US-CA")
	require.Empty(t, report.Lines)
	require.Len(t, report.Warnings, 1)
	require.Contains(t, report.Warnings[0], "run: kudos topics apply --fix-regions")
	checked, err := topics.Check(t.Context(), s.Options, optionsOf(fourPartitions, 1), s.log)
	require.NoError(t, err)
	require.Empty(t, checked.Lines)
	require.Equal(t, report.Warnings, checked.Warnings)

	require.Len(t, s.applyRegions(topics.Options{FixRegions: true}, "US-CA").Lines, partitions)
	s.produce(likesFrom(1, 11, "US", "US-CA", "QQ")...)
	s.waitExact(p)
	require.Equal(t, map[string]int64{"US": 2, "US-CA": 2, "QQ": 1, "ZZ": 1}, s.likesBy())
	require.True(t, slices.ContainsFunc(s.checkTopics(1), func(line string) bool {
		return strings.Contains(line, "partition 1 counts other regions than topics.regions as themselves: [US-CA]; "+
			"run: kudos topics apply")
	}))
}
