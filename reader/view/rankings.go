package view

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/reader/wire"
	"kudos/schema"
	"kudos/stream"
	"kudos/stream/kafka"
	"kudos/stream/store"
)

// Rankings is the local copy of trending: the newest ranking of each region and window. They are few, and all in memory
// too.
type Rankings struct {
	stores *store.Set
	view   *stream.View
	watch  func(*Ranking)
	log    *slog.Logger
}

// rankingsCacheBytes is little: rankings are read from memory.
const rankingsCacheBytes = 1 << 20

// NewRankings makes the copy; it starts nothing.
func NewRankings(opts Options, kafka kafka.Options, log *slog.Logger) *Rankings {
	r := &Rankings{log: log}
	part := func(partition int32) stream.Copy { return &rankingsCopy{rankings: r, partition: partition} }
	r.stores, r.view = opts.newView(schema.TopicTrending, "rankings-1", rankingsCacheBytes, kafka, part, log)
	return r
}

// Watch has fn called with each new ranking, after it can be read, by a goroutine for each partition. fn must not
// block. Call it before Run, once.
func (r *Rankings) Watch(fn func(*Ranking)) { r.watch = fn }

// Run keeps the copy until ctx ends. Run it once.
func (r *Rankings) Run(ctx context.Context) error {
	defer r.stores.Close()
	return r.view.Run(ctx)
}

// Ready is nil when all partitions can be read.
func (r *Rankings) Ready() error { return r.view.Ready() }

// Collector makes a Prometheus collector of the partitions as what is followed.
func (r *Rankings) Collector() prometheus.Collector {
	return stream.NewRoleCollector("reader-rankings", r.view.Status)
}

// Get returns the newest ranking, or nil if there is none.
func (r *Rankings) Get(region, window string) (ranking *Ranking, err error) {
	partition, err := r.Partition(region, window)
	if err != nil {
		return nil, err
	}
	err = r.read(partition, func(c *rankingsCopy) { ranking = c.byKey[schema.RankingKey(region, window)] })
	return ranking, err
}

// List returns the newest ranking of each region and window, in order of these.
func (r *Rankings) List() (all []*Ranking, err error) {
	n, err := r.view.Partitions()
	if err != nil {
		return nil, err
	}
	for p := range n {
		err := r.read(p, func(c *rankingsCopy) { all = slices.AppendSeq(all, maps.Values(c.byKey)) })
		if err != nil {
			return nil, err
		}
	}
	slices.SortFunc(all, func(a, b *Ranking) int {
		return cmp.Or(cmp.Compare(a.Region, b.Region), cmp.Compare(a.Window, b.Window))
	})
	return all, nil
}

// Partition returns the one of trending that a region and window is in.
func (r *Rankings) Partition(region, window string) (int32, error) {
	n, err := r.view.Partitions()
	if err != nil {
		return 0, err
	}
	return schema.KeyPartition([]byte(schema.RankingKey(region, window)), n), nil
}

// Epoch names the log that a partition's positions are of.
func (r *Rankings) Epoch(partition int32) (e string, err error) {
	err = r.view.Read(partition, func(s *store.Store, _ stream.Copy) error {
		e = epoch(s.LogID().TopicID)
		return nil
	}, nil)
	return e, err
}

func (r *Rankings) read(partition int32, use func(c *rankingsCopy)) error {
	return r.view.Read(partition, func(_ *store.Store, c stream.Copy) error {
		use(c.(*rankingsCopy))
		return nil
	}, nil)
}

// rankingsCopy is one partition of Rankings. Its store has the records as they are, with their offset in front. The
// view's lock guards it: Open and Applied exclude readers.
type rankingsCopy struct {
	rankings  *Rankings
	partition int32

	next  map[string]*Ranking // what Apply has staged and Applied makes visible; nil: deleted
	byKey map[string]*Ranking
}

// Open reads what the store has.
func (c *rankingsCopy) Open(s *store.Store) error {
	c.byKey, c.next = map[string]*Ranking{}, nil
	reader, err := s.NewReader()
	if err != nil {
		return err
	}
	defer reader.Close()
	return reader.Scan([]byte{rankingPrefix}, []byte{rankingPrefix + 1}, func(key, value []byte) (bool, error) {
		offset, record, err := decodeStoredRanking(value)
		if err != nil {
			return false, err
		}
		c.byKey[string(key[1:])] = c.ranking(record, offset)
		return true, nil
	})
}

// ranking is one whose record is at an offset.
func (c *rankingsCopy) ranking(r *schema.Ranking, offset int64) *Ranking {
	return &Ranking{Ranking: r, AsOf: wire.Position{Partition: c.partition, Offset: offset + 1}}
}

// Whole: each ranking stands for itself.
func (c *rankingsCopy) Whole(records []*kgo.Record) int { return len(records) }

// Apply stages the last record of each key; those before it are not even decoded.
func (c *rankingsCopy) Apply(_ *store.Store, w *store.Write, records []*kgo.Record) error {
	last := map[string]*kgo.Record{}
	for _, rec := range records {
		last[string(rec.Key)] = rec
	}
	c.next = make(map[string]*Ranking, len(last))
	for key, rec := range last {
		if rec.Value == nil {
			c.next[key] = nil
			if err := w.Set(rankingKey(key), nil); err != nil {
				return err
			}
			continue
		}
		ranking, err := schema.DecodeRanking(rec.Value)
		if err != nil {
			// The ranking before it stays, and other keys go on.
			c.rankings.log.Error("a ranking does not read right and is passed over",
				"key", key, "partition", c.partition, "offset", rec.Offset, "error", err)
			continue
		}
		c.next[key] = c.ranking(ranking, rec.Offset)
		if err := w.Set(rankingKey(key), appendStoredRanking(nil, rec.Offset, rec.Value)); err != nil {
			return err
		}
	}
	return nil
}

// Applied makes visible what was staged.
func (c *rankingsCopy) Applied() {
	for key, ranking := range c.next {
		if ranking == nil {
			delete(c.byKey, key)
		} else {
			c.byKey[key] = ranking
		}
	}
}

// Published tells the live streams; after an unready time, of all.
func (c *rankingsCopy) Published(anew bool) {
	if c.rankings.watch == nil {
		return
	}
	changed := c.next
	if anew {
		changed = c.byKey
	}
	for _, ranking := range changed {
		if ranking != nil {
			c.rankings.watch(ranking)
		}
	}
}
