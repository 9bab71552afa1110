package view

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/reader/wire"
	"kudos/schema"
	"kudos/stream"
	"kudos/stream/kafka"
	"kudos/stream/store"
)

// Rankings is the local copy of trending: the newest ranking of each region and window.
// They are few, and all in memory too.
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
	r := &Rankings{stores: store.NewSet(filepath.Join(opts.StateDir, "rankings-1"), rankingsCacheBytes, log), log: log}
	r.stores.FitMemtables(memtableBytes, rankingsCacheBytes)
	r.view = stream.NewView(stream.ViewOptions{Kafka: kafka, Topic: schema.TopicTrending, Stores: r.stores, Copy: r.copy}, log)
	return r
}

func (r *Rankings) copy(partition int32) stream.Copy {
	c := &rankingsCopy{partition: partition, watch: r.watch, log: r.log}
	c.mu.byKey = map[string]*Ranking{}
	return c
}

// Watch has fn called with each new ranking, after it can be read, from a goroutine for
// each partition. fn must not block. Call it before Run, once.
func (r *Rankings) Watch(fn func(*Ranking)) { r.watch = fn }

// Run keeps the copy until ctx ends. Run it once.
func (r *Rankings) Run(ctx context.Context) error {
	defer r.stores.Close()
	return r.view.Run(ctx)
}

// Ready is nil when all partitions can be read.
func (r *Rankings) Ready() error { return r.view.Ready() }

// Get returns the newest ranking, or nil if there is none.
func (r *Rankings) Get(region, window string) (ranking *Ranking, err error) {
	partition, err := r.Partition(region, window)
	if err != nil {
		return nil, err
	}
	err = r.read(partition, func(c *rankingsCopy) { ranking = c.mu.byKey[schema.RankingKey(region, window)] })
	return ranking, err
}

// List returns the newest ranking of each region and window, in order of these.
func (r *Rankings) List() (all []*Ranking, err error) {
	n, err := r.view.Partitions()
	if err != nil {
		return nil, err
	}
	for p := range n {
		err := r.read(p, func(c *rankingsCopy) { all = slices.AppendSeq(all, maps.Values(c.mu.byKey)) })
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

// Wait waits until a partition is covered up to a position, or returns ctx's error.
func (r *Rankings) Wait(ctx context.Context, want wire.Position) error {
	return wait(ctx, want.Offset, func() (next int64, moved <-chan struct{}, err error) {
		err = r.read(want.Partition, func(c *rankingsCopy) {
			next, moved = c.mu.next, c.mu.moved.wait()
		})
		return next, moved, err
	})
}

// Epoch names the log that a partition's positions are of: 8 hex digits, others when
// trending was deleted and made anew.
func (r *Rankings) Epoch(partition int32) (e string, err error) {
	err = r.view.Read(partition, func(s *store.Store, _ stream.Copy) error {
		e = epoch(s.LogID().TopicID)
		return nil
	}, nil)
	return e, err
}

func (r *Rankings) read(partition int32, use func(c *rankingsCopy)) error {
	return r.view.Read(partition, func(_ *store.Store, c stream.Copy) error {
		copy := c.(*rankingsCopy)
		copy.mu.Lock()
		defer copy.mu.Unlock()
		use(copy)
		return nil
	}, nil)
}

// rankingsCopy is one partition of Rankings. Its store has the records as they are,
// with their offset in front.
type rankingsCopy struct {
	partition int32
	watch     func(*Ranking)
	log       *slog.Logger

	// next is what Apply has laid out and Applied makes known; nil: it is no more.
	next   map[string]*Ranking
	offset int64 // of the record after these

	mu struct {
		sync.Mutex
		byKey map[string]*Ranking
		next  int64 // offset of the next record
		moved moved
	}
}

// Open reads what the store has.
func (c *rankingsCopy) Open(s *store.Store) error {
	byKey := map[string]*Ranking{}
	reader, err := s.NewReader()
	if err != nil {
		return err
	}
	defer reader.Close()
	err = reader.Scan([]byte{rankingPrefix}, []byte{rankingPrefix + 1}, func(key, value []byte) (bool, error) {
		offset, record, err := decodeStoredRanking(value)
		if err != nil {
			return false, err
		}
		byKey[string(key[1:])] = &Ranking{Ranking: record, AsOf: wire.Position{Partition: c.partition, Offset: offset + 1}}
		return true, nil
	})
	if err != nil {
		return err
	}
	next := int64(0)
	if last, ok := s.Offset(); ok {
		next = last + 1
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.byKey, c.mu.next = byKey, next
	c.next, c.offset = nil, next
	return nil
}

// Whole: each ranking stands for itself.
func (c *rankingsCopy) Whole(records []*kgo.Record) int { return len(records) }

// Apply keeps the last of each key; what came before it is not even decoded.
func (c *rankingsCopy) Apply(_ *store.Store, w *store.Write, records []*kgo.Record) error {
	last := map[string]*kgo.Record{}
	for _, rec := range records {
		last[string(rec.Key)] = rec
		c.offset = rec.Offset + 1
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
			c.log.Error("a ranking does not read right and is passed over", "key", key, "partition", c.partition, "offset", rec.Offset, "error", err)
			continue
		}
		c.next[key] = &Ranking{Ranking: ranking, AsOf: wire.Position{Partition: c.partition, Offset: rec.Offset + 1}}
		if err := w.Set(rankingKey(key), appendStoredRanking(nil, rec.Offset, rec.Value)); err != nil {
			return err
		}
	}
	return nil
}

// Applied makes them known.
func (c *rankingsCopy) Applied() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, ranking := range c.next {
		if ranking == nil {
			delete(c.mu.byKey, key)
		} else {
			c.mu.byKey[key] = ranking
		}
	}
	c.mu.next = max(c.mu.next, c.offset)
	c.mu.moved.tell()
}

// Published tells the live streams; after an unready time, of all.
func (c *rankingsCopy) Published(anew bool) {
	if c.watch == nil {
		return
	}
	changed := c.next
	if anew {
		c.mu.Lock()
		changed = maps.Clone(c.mu.byKey)
		c.mu.Unlock()
	}
	for _, ranking := range changed {
		if ranking != nil {
			c.watch(ranking)
		}
	}
}
