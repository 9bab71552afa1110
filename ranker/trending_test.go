package ranker

import (
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/ranker/window"
	"kudos/schema"
	"kudos/stream"
	"kudos/stream/store"
)

// merge is a worker of trending without a broker or a table. It gets seals only.
type merge struct {
	*trending
	t *testing.T
}

func newMerge(t *testing.T, partitions int) *merge {
	return &merge{newTrending(bareTable(), partitions), t}
}

// bareTable has neither a broker nor a store.
func bareTable() table {
	config := &window.Config{Windows: []window.Window{window.New(10, 0)}, Lateness: 2, TopN: 5, MinLikes: 1}
	return table{state: "group-table", log: discardLog(), exclusions: newExclusions(), config: config}
}

func newTrending(tab table, partitions int) *trending {
	w := &trending{table: tab}
	w.reset()
	for range partitions {
		w.sources = append(w.sources, newSource(origin{}))
	}
	return w
}

// sealAt is the seal of a partition that has just reached a watermark.
func (m *merge) sealAt(at schema.Minute) *localSeal {
	mark := window.Mark{Watermark: at, Offset: int64(at), Idle: schema.NoMinute}
	return &localSeal{
		origin: origin{Settings: m.settings}, Seal: window.Seal{Clock: at + 2, Mark: mark},
		gap: schema.NoMinute, marks: []window.Mark{mark},
	}
}

func (m *merge) take(p int32, s *localSeal) {
	m.t.Helper()
	require.NoError(m.t, m.takeSeal(p, &kgo.Record{Value: encode(s.fields)}))
}

// published is the window end after publishing.
func (m *merge) published() schema.Minute {
	m.t.Helper()
	require.NoError(m.t, m.publish())
	require.Len(m.t, m.ends, 1)
	return m.ends["10m"]
}

// TestPublishesOnceAllPartitionsReported, with the settings of this process.
func TestPublishesOnceAllPartitionsReported(t *testing.T) {
	m := newMerge(t, 2)
	m.take(0, m.sealAt(100))
	require.NoError(t, m.checkOrigin(1, origin{Settings: m.settings})) // a list has arrived, but no seal yet
	require.Equal(t, schema.NoMinute, m.published())
	other := m.sealAt(100)
	other.origin.Settings++
	m.take(1, other)
	require.Equal(t, schema.NoMinute, m.published())
	m.take(1, m.sealAt(100))
	require.EqualValues(t, 101, m.published())
}

// TestSealsCoverAllUpdates: since when, the marks, and which lists are valid.
func TestSealsCoverAllUpdates(t *testing.T) {
	m := newMerge(t, 1)
	key, s := window.Key{Region: schema.Global, Window: "10m"}, &m.sources[0]
	m.take(0, m.sealAt(100))
	require.EqualValues(t, 100, s.Since)
	list := localList{Version: window.Version{Key: key, End: 101, Offset: 101}, origin: s.origin}
	require.NoError(t, m.takeList(key, 0, &kgo.Record{Value: encode(list.fields)}))
	require.False(t, m.keys[key].dirty, "it is not sealed")
	m.take(0, m.sealAt(101))
	require.True(t, m.keys[key].dirty)
	require.Empty(t, s.pending)
	require.EqualValues(t, 100, s.Since)
	require.Len(t, s.Marks, 2)
	require.EqualValues(t, 101, s.Seal.Offset)
}

// TestRestartedPartitionIsForgotten: what a partition reported before its table or settings changed is discarded.
func TestRestartedPartitionIsForgotten(t *testing.T) {
	m := newMerge(t, 1)
	m.take(0, m.sealAt(100))
	again := m.sealAt(50)
	again.origin.Table[0] = 1
	m.take(0, again)
	require.EqualValues(t, 50, m.sources[0].Since)
	require.Equal(t, again.marks, m.sources[0].Marks)
	var last []byte // the last value written for the mark at 100
	for _, rec := range m.tx.rows {
		if string(rec.Key) == string(markKey(0, 100)) {
			last = rec.Value
		}
	}
	require.Nil(t, last, "deleted from the table, too")
}

// TestRankingsWaitForOneLayout: while posts migrate, no ranking is computed until all partitions report the end.
func TestRankingsWaitForOneLayout(t *testing.T) {
	m := newMerge(t, 2)
	at := schema.Minute(100)
	for _, tt := range []struct {
		name string
		a, b layout
		ok   bool
	}{
		{"the first layout", layout{}, layout{}, true},
		{"locked", layout{1, true}, layout{}, false},
		{"migrating", layout{1, true}, layout{1, true}, false},
		{"done here, but not there", layout{1, false}, layout{1, true}, false},
		{"not started there", layout{1, false}, layout{}, false},
		{"the next layout", layout{1, false}, layout{1, false}, true},
	} {
		at += 10
		for p, l := range []layout{tt.a, tt.b} {
			s := m.sealAt(at)
			s.layout = l
			m.take(int32(p), s)
			require.Equal(t, l, m.sources[p].layout, tt.name)
		}
		before := m.ends["10m"]
		require.Equal(t, tt.ok, m.published() != before, tt.name)
	}
}

// TestExcludedPostsWithUserBucketsStayInPartialLists: otherwise, while partitions apply an exclusion one after the
// other, a post with user buckets would be ranked by part of its likes. The merge removes it.
func TestExcludedPostsWithUserBucketsStayInPartialLists(t *testing.T) {
	own, shared := window.LeaderOf(1, 5, 1), window.LeaderOf(2, 3, 1)
	for excluded, want := range map[uint64][]window.Post{1: {shared}, 2: {own, shared}} {
		totals := newTotals(&table{
			config:     &window.Config{TopN: 5, MinLikes: 1},
			exclusions: &exclusions{posts: map[uint64]Excluded{excluded: {}}},
		})
		totals.regions[schema.Global] = &region{leaders: &window.Leaders{Best: []window.Post{own}}, dirty: true}
		totals.shared[2] = map[schema.Region]window.Post{schema.Global: shared}
		lists, err := totals.lists(7)
		require.NoError(t, err)
		require.Len(t, lists, 1)
		require.Equal(t, want, lists[0].Posts, "without %d", excluded)
	}
}

// tableOf is a table without a broker, with rows on disk. If damaged, a part of each file cannot be read.
func tableOf(t *testing.T, damaged bool, rows map[string][]byte) table {
	t.Helper()
	disk, written := vfs.NewMem(), atomic.Bool{}
	stores := store.NewSetOn(errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if !damaged || !written.Load() || op.Kind != errorfs.OpFileReadAt || !strings.HasSuffix(op.Path, ".sst") {
			return nil
		}
		info, err := disk.Stat(op.Path)
		if err == nil && op.Offset > info.Size()/4 && op.Offset < info.Size()/2 {
			return syscall.EIO
		}
		return err
	})), "state", 1<<20, discardLog())
	t.Cleanup(stores.Close)
	write := stores.New("group-table", 0)
	require.NoError(t, write.Open())
	w := write.NewWrite()
	for _, key := range slices.Sorted(maps.Keys(rows)) {
		require.NoError(t, w.Set([]byte(key), rows[key]))
	}
	require.NoError(t, w.Commit(int64(len(rows))))
	require.NoError(t, write.Close())
	written.Store(true)

	tab := bareTable()
	tab.store = stores.New("group-table", 0)
	require.NoError(t, tab.store.Open())
	t.Cleanup(tab.Leave)
	return tab
}

func totalKey(post uint64) string {
	return string(appendRowKey(nil, rowTotal, window.RowKey{Region: schema.Global, Post: post}))
}

// newLocal is a worker of trending-local that was not opened.
func newLocal(tab table) *local {
	w := &local{table: tab, windows: window.NewPartition(tab.config)}
	w.totals = newTotals(&w.table)
	return w
}

var globalList = window.Key{Region: schema.Global, Window: "10m"}

// TestDiskFailureWhileReadingIsTheCause: the cause must not be an unknown version: no version could read the rows.
func TestDiskFailureWhileReadingIsTheCause(t *testing.T) {
	const many = 5000 // rows, so that those that must be readable are in other blocks
	requireDiskError := func(t *testing.T, err error) {
		t.Helper()
		require.ErrorIs(t, err, syscall.EIO)
		require.Equal(t, stream.Failure{Cause: stream.CauseUnavailable, Reason: err.Error()}, stream.FailureOf(err))
	}
	t.Run("the likes of leaders", func(t *testing.T) {
		leaders := leadersRow{ids: []uint64{2000}}
		rows := map[string][]byte{rowLeaders + string(schema.Global[:]): encode(leaders.fields)}
		for post := range uint64(many) {
			one := total{likes: int64(post), reached: int64(post)}
			rows[totalKey(post)] = encode(one.fields)
		}
		requireDiskError(t, newLocal(tableOf(t, true, rows)).load())
		w := newLocal(tableOf(t, false, rows))
		require.NoError(t, w.load())
		require.Equal(t, []window.Post{window.LeaderOf(2000, 2000, 2000)}, w.totals.regions[schema.Global].leaders.Best)
	})
	t.Run("obsolete lists", func(t *testing.T) {
		rows := map[string][]byte{}
		for end := range schema.Minute(many) {
			rows[string(versionKey{key: globalList, end: end}.row())] = []byte("list")
		}
		w := newTrending(tableOf(t, true, rows), 1)
		w.listed(globalList, 0)
		list := localList{origin: origin{Settings: w.settings}}
		rec := &kgo.Record{Key: listKey(globalList, 0), Value: encode(list.fields)}
		requireDiskError(t, w.take(t.Context(), []*kgo.Record{rec}))
	})
}

// TestUnreadableRowsPark: some are only read when a transaction needs them.
func TestUnreadableRowsPark(t *testing.T) {
	list := versionKey{key: globalList}
	for name, c := range map[string]struct {
		key  string
		find func(tab table) error
		says string
	}{
		"a total that changes": {totalKey(7), func(tab table) error {
			w := newLocal(tab)
			w.totals.add(7, &schema.Update{Counts: schema.Counts{Likes: 1}}, 1)
			return w.totals.settle()
		}, "total of post 7 in global: version 3 is unknown"},
		"a total of a post that becomes shared": {totalKey(7), func(tab table) error {
			w := newLocal(tab)
			w.totals.region(schema.Global)
			return w.totals.share(7, true)
		}, "total of post 7 in global: version 3 is unknown"},
		"the totals of a region": {totalKey(7), func(tab table) error {
			_, err := newLocal(tab).totals.search(schema.Global)
			return err
		}, "total of post 7 in global: version 3 is unknown"},
		"a list": {string(list.row()), func(tab table) error {
			w := newTrending(tab, 1)
			w.sources[0].Seal.Offset, w.sources[0].Seal.Exclusions = 1, 1
			_, err := w.listOf(globalList, 0, 1)
			return err
		}, "list global/10m of partition 0: version 3 is unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.find(tableOf(t, false, map[string][]byte{c.key: {wireVersion + 1}}))
			require.ErrorContains(t, err, "group-table/0: "+c.says)
			require.Equal(t, stream.CauseRecord, stream.FailureOf(err).Cause)
			require.Equal(t, actionUpgrade, stream.FailureOf(err).Action)
		})
	}
}

// TestRowsOfAMissingPartitionPark: no version could merge them, because like-updates has been recreated.
func TestRowsOfAMissingPartitionPark(t *testing.T) {
	list := versionKey{key: globalList, partition: 1}
	for _, key := range []string{string(list.row()), string(partitionKey(rowSource, 1)), string(markKey(1, 5))} {
		err := newTrending(tableOf(t, false, map[string][]byte{key: {wireVersion}}), 1).load()
		require.Equal(t, stream.Failure{Cause: stream.CauseTopics, Action: actionReset,
			Reason: "there are lists of partition 1, but like-updates has only 1 partitions"}, stream.FailureOf(err))
	}
}
