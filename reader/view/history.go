package view

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/schema"
	"kudos/stream"
	"kudos/stream/kafka"
	"kudos/stream/store"
)

// History is the materialized view of how the likes of each post have changed, by hour and region, from like-updates.
// It has the last days only. A late event counts in the hour of its event time.
type History struct {
	keep   time.Duration
	stores *store.Set
	view   *stream.View
	owners *owners
}

const historyCacheBytes = 16 << 20 // few posts are looked at

// The format of a partition of the view, a directory of its own. post: 8 bytes, hour: of the day.
//
//	h day post region hour    likes and dislikes, as in the counts
//	_since                    Unix milliseconds from which nothing is missing, and the next seq: varints
const (
	historyDir    = "history-1"
	historyPrefix = 'h'
	sinceKey      = "_since"

	hoursADay = 24
	// forgetAtOnce bounds how many old entries are deleted with each batch: far more than a batch adds on average.
	forgetAtOnce = 2000
)

// newHistory returns the view; it starts nothing.
func newHistory(opts Options, owners *owners, kafka kafka.Options, log *slog.Logger) *History {
	h := &History{keep: opts.History, owners: owners}
	part := func(partition int32) stream.Copy { return &historyCopy{history: h} }
	h.stores, h.view = opts.newView(schema.TopicUpdates, historyDir, historyCacheBytes, kafka, part, log)
	return h
}

func (h *History) collector() prometheus.Collector {
	return stream.NewRoleCollector("reader-history", h.view.Status)
}

func (h *History) run(ctx context.Context) error {
	defer h.stores.Close()
	return h.view.Run(ctx)
}

// HourCounts is the net change of a post's likes and dislikes by events of one hour.
type HourCounts struct {
	Hour time.Time
	schema.Counts
}

// Of returns the hours in [from, to) in which a post has changed in a region, in order, and since when nothing is
// missing. schema.Global is all regions together.
func (h *History) Of(post uint64, region schema.Region, from, to time.Time) (
	hours []HourCounts, since time.Time, err error,
) {
	n, err := h.view.Partitions()
	if err != nil {
		return nil, since, err
	}
	sums := map[int64]schema.Counts{}
	for _, partition := range h.owners.now(n).append(nil, post) {
		own, err := h.in(partition, post, region, from, to, sums)
		if err != nil {
			return nil, since, err
		}
		if own.After(since) {
			since = own
		}
	}
	for hour, c := range sums {
		if c != (schema.Counts{}) {
			hours = append(hours, HourCounts{time.Unix(hour*3600, 0).UTC(), c})
		}
	}
	slices.SortFunc(hours, func(a, b HourCounts) int { return a.Hour.Compare(b.Hour) })
	return hours, since, nil
}

// in adds what one partition has to sums, by Unix hour.
func (h *History) in(
	partition int32, post uint64, region schema.Region, from, to time.Time, sums map[int64]schema.Counts,
) (since time.Time, err error) {
	var r *store.Reader
	pin := func(s *store.Store, c stream.Copy) (err error) {
		since = time.UnixMilli(c.(*historyCopy).sinceMs).UTC()
		r, err = s.NewReader()
		return err
	}
	err = h.view.Read(partition, pin, func() error {
		defer r.Close()
		first, last := from.Unix()/3600, (to.Unix()-1)/3600
		for day := first / hoursADay; day <= last/hoursADay; day++ {
			prefix := appendHistoryPost(nil, day, post)
			if region != schema.Global {
				prefix = append(prefix, region[:]...)
			}
			err := r.Scan(prefix, store.PrefixEnd(prefix), func(key, value []byte) (bool, error) {
				hour := day*hoursADay + int64(key[len(key)-1])
				if hour < first || hour > last {
					return true, nil
				}
				c, err := decodeCounts(value)
				sums[hour] = sums[hour].Plus(c)
				return true, err
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	return since, err
}

func appendHistoryPost(b []byte, day int64, post uint64) []byte {
	b = binary.BigEndian.AppendUint32(append(b, historyPrefix), uint32(day))
	return binary.BigEndian.AppendUint64(b, post)
}

func appendHistoryKey(b []byte, hour int64, post uint64, region schema.Region) []byte {
	b = append(appendHistoryPost(b, hour/hoursADay, post), region[:]...)
	return append(b, byte(hour%hoursADay))
}

// historyCopy is one partition of History.
type historyCopy struct {
	history *History
	sinceMs int64  // from when nothing is missing
	nextSeq uint64 // of like-updates

	next struct { // what Apply stages and Applied makes visible
		sinceMs int64
		nextSeq uint64
	}
}

func (c *historyCopy) Open(s *store.Store) error {
	c.sinceMs, c.nextSeq = 0, 0
	_, err := s.Find([]byte(sinceKey), func(value []byte) error {
		since, n := binary.Varint(value)
		seq, m := binary.Uvarint(value[max(n, 0):])
		if n <= 0 || m <= 0 {
			return fmt.Errorf("%s: %w", sinceKey, errLayout)
		}
		c.sinceMs, c.nextSeq = since, seq
		return nil
	})
	return err
}

// Whole applies records as they come: a batch is a sum of deltas.
func (c *historyCopy) Whole(records []*kgo.Record) int { return len(records) }

// Apply adds up the deltas. Where compaction has removed updates, what is left is not the whole history.
func (c *historyCopy) Apply(s *store.Store, w *store.Write, records []*kgo.Record) error {
	c.next.sinceMs, c.next.nextSeq = c.sinceMs, c.nextSeq
	if len(records) == 0 {
		return nil
	}
	oldest := time.Now().Add(-c.history.keep).Unix() / 3600
	sums := map[string]schema.Counts{}
	var u schema.Update
	var key []byte
	for _, rec := range records {
		if err := schema.DecodeUpdate(rec.Value, &u); err != nil {
			return fmt.Errorf("record at offset %d: %w", rec.Offset, err)
		}
		if u.Seq != c.next.nextSeq {
			c.next.sinceMs = rec.Timestamp.UnixMilli()
		}
		c.next.nextSeq = u.Seq + 1
		post, _ := schema.ParsePostKey(rec.Key) // a progress record has no deltas
		for _, d := range u.Deltas {
			if hour := d.Minute / 60; hour >= oldest {
				key = appendHistoryKey(key[:0], hour, post, d.Region)
				sums[string(key)] = sums[string(key)].Plus(schema.Counts{Likes: d.Likes, Dislikes: d.Dislikes})
			}
		}
	}
	if err := addSums(s, w, sums); err != nil {
		return err
	}
	if err := forget(s, w, oldest/hoursADay); err != nil {
		return err
	}
	value := binary.AppendVarint(nil, c.next.sinceMs)
	return w.Set([]byte(sinceKey), binary.AppendUvarint(value, c.next.nextSeq))
}

func addSums(s *store.Store, w *store.Write, sums map[string]schema.Counts) error {
	keys := slices.Sorted(maps.Keys(sums))
	err := s.Lookup(len(keys), func(i int) []byte { return []byte(keys[i]) }, func(i int, value []byte) error {
		before, err := decodeCounts(value)
		sums[keys[i]] = sums[keys[i]].Plus(before)
		return err
	})
	if err != nil {
		return err
	}
	var value []byte
	for _, key := range keys {
		sum := sums[key]
		if value = appendCounts(value[:0], sum); sum == (schema.Counts{}) {
			value = nil
		}
		if err := w.Set([]byte(key), value); err != nil {
			return err
		}
	}
	return nil
}

// forget deletes some of the entries of days before one, oldest first.
func forget(s *store.Store, w *store.Write, day int64) error {
	n := 0
	to := binary.BigEndian.AppendUint32([]byte{historyPrefix}, uint32(day))
	return store.Scan(s, []byte{historyPrefix}, to, func(key, _ []byte) (bool, error) {
		n++
		return n < forgetAtOnce, w.Set(key, nil)
	})
}

func (c *historyCopy) Applied() { c.sinceMs, c.nextSeq = c.next.sinceMs, c.next.nextSeq }

// Published has nobody to notify.
func (c *historyCopy) Published(bool) {}
