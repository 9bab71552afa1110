package view

import (
	"cmp"
	"context"
	"fmt"
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

// Rankings is the materialized view of trending: the newest ranking per region and window. All are in memory too.
type Rankings struct {
	stores *store.Set
	view   *stream.View
	watch  func(*Ranking)
	log    *slog.Logger
}

const rankingsCacheBytes = 1 << 20 // small, because rankings are read from memory

// NewRankings returns the view; it starts nothing.
func NewRankings(opts Options, kafka kafka.Options, log *slog.Logger) *Rankings {
	return newRankings(opts, kafka, log, schema.RankingVersion)
}

// newRankings returns a view of rankings of a version. It skips later ones; a program that knows them reads all again.
func newRankings(opts Options, kafka kafka.Options, log *slog.Logger, version int) *Rankings {
	r := &Rankings{log: log}
	part := func(partition int32) stream.Copy { return &rankingsCopy{rankings: r, partition: partition} }
	r.stores, r.view = opts.newView(schema.TopicTrending, fmt.Sprint("rankings-", version), rankingsCacheBytes,
		kafka, part, log)
	return r
}

// Watch registers fn for each new ranking, once it can be read. Each partition calls fn from its own goroutine. fn must
// not block. Call Watch before Run, once.
func (r *Rankings) Watch(fn func(*Ranking)) { r.watch = fn }

// Run maintains the view until ctx ends. Call it once.
func (r *Rankings) Run(ctx context.Context) error {
	defer r.stores.Close()
	return r.view.Run(ctx)
}

// Ready returns nil when all partitions can be read.
func (r *Rankings) Ready() error { return r.view.Ready() }

// Collector returns the metrics of the view's partitions.
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

// List returns the newest ranking of each region and window, sorted by these.
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

// Partition returns the partition of trending that has a region and window.
func (r *Rankings) Partition(region, window string) (int32, error) {
	n, err := r.view.Partitions()
	if err != nil {
		return 0, err
	}
	return schema.KeyPartition([]byte(schema.RankingKey(region, window)), n), nil
}

// Epoch identifies the log that a partition's positions are in.
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

// rankingsCopy is one partition of Rankings. Its store has the values of the records, each after its offset. The lock
// of stream.View guards it: Open and Applied exclude readers.
type rankingsCopy struct {
	rankings  *Rankings
	partition int32

	next  map[string]*Ranking // what Apply stages and Applied makes visible; nil: deleted
	byKey map[string]*Ranking
}

func (c *rankingsCopy) Open(s *store.Store) error {
	c.byKey, c.next = map[string]*Ranking{}, nil
	return store.Scan(s, []byte{rankingPrefix}, []byte{rankingPrefix + 1}, func(key, value []byte) (bool, error) {
		offset, record, err := decodeStoredRanking(value)
		if err != nil {
			return false, err
		}
		c.byKey[string(key[1:])] = c.ranking(record, offset)
		return true, nil
	})
}

func (c *rankingsCopy) ranking(r *schema.Ranking, offset int64) *Ranking {
	return &Ranking{Ranking: r, AsOf: wire.Position{Partition: c.partition, Offset: offset + 1}}
}

// Whole returns all records: each ranking is complete by itself.
func (c *rankingsCopy) Whole(records []*kgo.Record) int { return len(records) }

// Apply stages the last record of each key; earlier ones are not even decoded.
func (c *rankingsCopy) Apply(_ *store.Store, w *store.Write, records []*kgo.Record) error {
	last := map[string]*kgo.Record{}
	for _, rec := range records {
		last[string(rec.Key)] = rec
	}
	c.next = make(map[string]*Ranking, len(last))
	for key, rec := range last {
		var next *Ranking
		var stored []byte
		if rec.Value != nil {
			ranking, err := schema.DecodeRanking(rec.Value)
			if err != nil {
				// The previous ranking stays, and other keys are not affected.
				c.rankings.log.Error("skipped a ranking that cannot be decoded",
					"key", key, "partition", c.partition, "offset", rec.Offset, "error", err)
				continue
			}
			next, stored = c.ranking(ranking, rec.Offset), appendStoredRanking(nil, rec.Offset, rec.Value)
		}
		c.next[key] = next
		if err := w.Set(rankingKey(key), stored); err != nil {
			return err
		}
	}
	return nil
}

func (c *rankingsCopy) Applied() {
	for key, ranking := range c.next {
		if ranking == nil {
			delete(c.byKey, key)
		} else {
			c.byKey[key] = ranking
		}
	}
}

// Published notifies the live streams: of the new rankings, or of all if the partition was not ready before.
func (c *rankingsCopy) Published(recreated bool) {
	if c.rankings.watch == nil {
		return
	}
	changed := c.next
	if recreated {
		changed = c.byKey
	}
	for _, ranking := range changed {
		if ranking != nil {
			c.rankings.watch(ranking)
		}
	}
}
