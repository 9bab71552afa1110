package ranker_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"

	"kudos/dev/devtest"
	"kudos/dev/testkit"
	"kudos/integration/rankings/day"
	"kudos/ranker"
	"kudos/schema"
)

// TestOtherRegionsPark: likes that were counted as ZZ cannot be divided by region later. Both actions work.
func TestOtherRegionsPark(t *testing.T) {
	t.Parallel()
	for name, restored := range map[string]bool{"restored": true, "reset": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			regions := []string{day.Regions[0].String(), day.Regions[1].String()}
			a := newArena(t, func(o *ranker.Options) { o.Regions = regions })
			a.feedAll(aDay(500, day.DefaultBatching(partitions))(t), 1000)
			a.start()
			a.waitCommitted(1)
			a.opts.Regions = []string{regions[1], regions[0]} // the order means nothing
			a.opts.TopN++
			a.start()
			waitCaughtUp(t, a.run.Ready, a.run.reg)

			a.opts.Regions = nil
			a.start()
			devtest.WaitReadiness(t, a.run.Ready, "like-updates/1 parked: ranker.regions has changed since the likes "+
				"of like-updates/1 were counted by region (action: restore ranker.regions; or stop the rankers, then: "+
				"kudos ranker reset, and kudos topics apply")
			if restored {
				a.opts.Regions = regions
				a.start()
				waitCaughtUp(t, a.run.Ready, a.run.reg)
				return
			}
			a.run.stop()
			a.reset(partitions)
			a.start()
			a.waitSettled()
		})
	}
}

// reset does what the action says.
func (a *arena) reset(count int32) {
	a.t.Helper()
	require.NoError(a.t, ranker.Reset(testkit.Context(a.t), a.Options, a.log))
	adm := kadm.NewClient(a.Client)
	for topic, n := range map[string]int32{schema.TopicTrendingLocal: partitions, schema.TopicTrendingTable: partitions,
		schema.TopicTrendingLocalTable: count} {
		_, err := adm.CreateTopic(a.t.Context(), n, 1, nil, topic)
		require.NoError(a.t, err)
	}
	for p := range int32(partitions) { // the next rankings are the first of their keys
		a.passed[p] = len(a.read(schema.TopicTrending, p))
	}
}

// TestFewerPartitionsPark: somebody recreated topics with fewer partitions, while rankers run or not.
func TestFewerPartitionsPark(t *testing.T) {
	t.Parallel()
	const fewer = partitions / 2
	for _, recreated := range [][]string{{schema.TopicUpdates}, {schema.TopicTrendingLocal},
		{schema.TopicUpdates, schema.TopicTrendingLocalTable}, {schema.TopicTrendingLocal, schema.TopicTrendingTable},
		{schema.TopicUpdates, schema.TopicTrendingLocal, schema.TopicTrendingLocalTable}} {
		for _, running := range []bool{false, true} {
			t.Run(fmt.Sprint(recreated, running), func(t *testing.T) {
				t.Parallel()
				a := newArena(t, nil)
				tapes, at := likesAt(29_000_000, 20), make([]int, partitions)
				a.start()
				a.feed(tapes, at, 10)
				a.waitSettled()
				if !running {
					a.run.stop()
				}
				adm := kadm.NewClient(a.Client)
				create := func(count int32, topics ...string) {
					_, err := adm.DeleteTopics(t.Context(), topics...)
					require.NoError(t, err)
					for _, topic := range topics {
						_, err = adm.CreateTopic(t.Context(), count, 1, nil, topic)
						require.NoError(t, err)
					}
				}
				create(fewer, recreated...)
				if !running {
					a.start()
				}
				devtest.WaitReadiness(t, a.run.Ready, "kudos ranker reset")
				a.run.stop()
				a.reset(int32(len(a.Broker.PartitionInfos(schema.TopicUpdates))))
				a.start()
				devtest.WaitReady(t, a.run.Ready)
			})
		}
	}
}
