package ranker

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/ranker/window"
	"kudos/schema"
	"kudos/stream"
	"kudos/stream/kafka"
)

// trending is the worker of the group trending for one partition. It keeps the lists of all partitions of like-updates
// for its rankings, aligns and merges them (merge.go), and publishes the rankings.
type trending struct {
	table

	settings uint64 // hash of config
	sources  []source
	keys     map[window.Key]*ranking
	ends     map[string]schema.Minute // last published end of each window; NoMinute if never published
	due      bool                     // publish without waiting for the next interval
}

type ranking struct {
	dirty  bool            // may have changed since last
	last   *schema.Ranking // as published; nil if never published
	newest schema.Minute   // the largest window end of its lists
}

// Open catches up the state and loads it into memory.
func (w *trending) Open(ctx context.Context) (kafka.Position, error) {
	w.reset()
	return w.open(ctx, func() error {
		if err := w.findSources(ctx); err != nil {
			return err
		}
		return w.load()
	}, w.pollExclusions)
}

func (w *trending) reset() {
	w.settings, w.sources, w.due = w.config.Settings(), nil, false
	w.keys, w.ends = map[window.Key]*ranking{}, map[string]schema.Minute{}
	for _, win := range w.config.Windows {
		w.ends[win.Name] = schema.NoMinute
	}
}

func (w *trending) load() error {
	return w.loadRows(
		rows{rowVersion, func(key, _ []byte) error {
			row, err := parseVersionKey(key)
			if err != nil {
				return err
			}
			s, err := w.source(uint32(row.partition))
			if err != nil {
				return err
			}
			w.listed(row.key, row.end).dirty = true
			s.pending[row.key] = true
			return nil
		}},
		rows{rowSource, w.loadSource},
		rows{rowMark, w.loadMark},
		rows{rowEnd, func(key, value []byte) error {
			var end schema.Minute
			err := decode(value, func(c *codec) { signed(c, &end) })
			w.ends[string(key)] = end
			return err
		}},
		rows{rowRanking, func(_, value []byte) error {
			last, err := schema.DecodeRanking(value)
			if err != nil {
				return err
			}
			key, err := parseKey(last.Region, last.Window)
			if err != nil {
				return err
			}
			k := w.key(key)
			k.last, k.dirty = last, true
			return nil
		}},
	)
}

func (w *trending) key(key window.Key) *ranking {
	k := w.keys[key]
	if k == nil {
		k = &ranking{newest: schema.NoMinute}
		w.keys[key] = k
	}
	return k
}

// listed records that a ranking has a list with this window end.
func (w *trending) listed(key window.Key, end schema.Minute) *ranking {
	k := w.key(key)
	k.newest = max(k.newest, end)
	return k
}

// Process commits the lists that arrived, since rankings are computed from the table, then publishes those due.
func (w *trending) Process(ctx context.Context, b *stream.Batch) error {
	if err := w.pollExclusions(ctx); err != nil {
		return err
	}
	if len(b.Records) > 0 {
		if err := w.take(ctx, b.Records); err != nil {
			return err
		}
		if err := w.commit(ctx, b.Next); err != nil {
			return fmt.Errorf("%s/%d up to offset %d: %w", w.input, w.partition, b.Next.Offset, err)
		}
	}
	// Half an interval later than the partitions publish their lists.
	interval := w.interval(time.Now().Add(-w.opts.EmitInterval / 2))
	if interval == w.emitted && !w.due {
		return nil
	}
	if err := w.publish(); err != nil {
		return err
	}
	published := len(w.tx.output)
	if len(w.tx.rows) > 0 {
		if err := w.commit(ctx, b.Next); err != nil {
			return fmt.Errorf("publishing %d rankings of %s/%d: %w", published, w.input, w.partition, err)
		}
	}
	w.emitted, w.due = interval, false
	w.metrics.rankings.Add(float64(published))
	return nil
}

func (w *trending) take(ctx context.Context, records []*kgo.Record) error {
	sealed, changed := map[int32]bool{}, false
	for _, rec := range records {
		key, p, seal, err := parseLocalKey(rec.Key)
		if err != nil {
			return w.parkAt(rec, actionUpgrade, err)
		}
		if int(p) >= len(w.sources) {
			if err := w.findSources(ctx); err != nil {
				return err
			}
		}
		s, err := w.source(uint32(p))
		if err != nil {
			return err
		}
		before := *s
		if !seal {
			err = w.takeList(key, p, rec)
		} else {
			err = w.takeSeal(p, rec)
			sealed[p] = true
		}
		if err != nil {
			return err
		}
		changed = changed || s.layout != before.layout || s.origin != before.origin
	}
	for p := range sealed {
		w.keepSource(p)
	}
	if changed { // rankings must also wait for new partitions that have not reported yet
		return w.findSources(ctx)
	}
	return nil
}

// publish publishes the rankings that have changed, once all partitions can be aligned.
func (w *trending) publish() error {
	clocks := make([]window.Clock, len(w.sources))
	for i := range w.sources {
		s := &w.sources[i]
		if !s.reported || s.origin.Settings != w.settings {
			return nil // its lists are still to come
		}
		if s.layout.migrating || s.layout != w.sources[0].layout {
			return nil // posts are migrating between partitions
		}
		clocks[i] = s.Clock
	}
	oldest := schema.NoMinute
	for i := range w.config.Windows {
		win := &w.config.Windows[i]
		last := w.ends[win.Name]
		end, ok := window.Align(win, clocks, last)
		if oldest == schema.NoMinute || end < oldest {
			oldest = end
		}
		if !ok {
			continue
		}
		if end != last {
			w.ends[win.Name] = end
			w.set([]byte(rowEnd+win.Name), encode(func(c *codec) { signed(c, &end) }))
		}
		basis := w.basis(win, clocks, end)
		for _, key := range w.dirty(win.Name, last, end) {
			if err := w.rank(key, win, end, basis); err != nil {
				return err
			}
		}
	}
	for _, key := range w.dirty(schema.LeaderboardAll, 0, 0) {
		if err := w.rank(key, nil, 0, w.basisOfAll(clocks, key.Region)); err != nil {
			return err
		}
	}
	for p := range w.sources { // no window needs earlier marks
		w.dropMarks(int32(p), w.sources[p].Forget(oldest))
	}
	return nil
}

func (w *trending) pollExclusions(ctx context.Context) error {
	return w.exclusions.poll(ctx, w.txn.Client(), time.Now(), w.log, func(uint64, bool) {
		w.due = true
		for _, k := range w.keys {
			k.dirty = true
		}
	})
}
