package ranker

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/ranker/window"
	"kudos/schema"
	"kudos/stream/kafka"
)

type source struct {
	reported bool // at least one seal has arrived
	window.Clock
	gap     schema.Minute
	origin  origin
	layout  layout
	pending map[window.Key]bool // keys with new lists that are not sealed yet
}

func newSource(from origin) source {
	seal := window.Seal{Clock: schema.NoMinute, Mark: window.Mark{Watermark: schema.NoMinute, Idle: schema.NoMinute}}
	clock := window.Clock{Since: schema.NoMinute, Seal: seal}
	return source{Clock: clock, gap: schema.NoMinute, origin: from, pending: map[window.Key]bool{}}
}

// fields are all fields except Marks, which have their own rows, and pending, which follows from the rows of the lists.
func (s *source) fields(c *codec) {
	c.flag(&s.reported)
	c.origin(&s.origin)
	signed(c, &s.Since)
	c.seal(&s.Seal)
	signed(c, &s.gap)
	c.layout(&s.layout)
}

// findSources adds the partitions that like-updates has now.
func (w *trending) findSources(ctx context.Context) error {
	topics, err := kafka.LookUpTopics(ctx, w.txn.Client(), schema.TopicUpdates)
	if err != nil {
		return err
	}
	for len(w.sources) < int(topics.ByName[schema.TopicUpdates].Partitions) {
		w.sources = append(w.sources, newSource(origin{}))
	}
	return nil
}

// takeList stores a list. It becomes valid with the next seal.
func (w *trending) takeList(key window.Key, p int32, rec *kgo.Record) error {
	var l localList
	if err := decode(rec.Value, l.fields); err != nil {
		return w.parkAt(rec, actionUpgrade, err)
	}
	if err := w.checkOrigin(p, l.origin); err != nil {
		return err
	}
	w.set(versionKey{key, p, l.End, l.Offset, l.exclusions}.row(), bytes.Clone(rec.Value))
	w.listed(key, l.End)
	w.sources[p].pending[key] = true
	return nil
}

func (w *trending) takeSeal(p int32, rec *kgo.Record) error {
	var l localSeal
	if err := decode(rec.Value, l.fields); err != nil {
		return w.parkAt(rec, actionUpgrade, err)
	}
	if err := w.checkOrigin(p, l.origin); err != nil {
		return err
	}
	s := &w.sources[p]
	if !s.reported {
		s.reported, s.Since = true, l.Watermark
	}
	s.Seal, s.gap, s.layout, s.Marks = l.Seal, l.gap, l.layout, append(s.Marks, l.marks...)
	for _, m := range l.marks {
		w.set(markKey(p, m.Watermark), encode(func(c *codec) { c.mark(&m) }))
	}
	for key := range s.pending {
		w.key(key).dirty = true
	}
	clear(s.pending)
	return nil
}

// checkOrigin deletes all that a partition has reported if it has restarted from an empty table or with other settings.
func (w *trending) checkOrigin(p int32, from origin) error {
	s := &w.sources[p]
	if s.origin == from {
		return nil
	}
	if s.origin != (origin{}) {
		w.log.Info("a partition's lists were reset: discarding the old ones", "topic", schema.TopicUpdates, "partition", p)
	}
	if from.Settings != w.settings {
		w.log.Warn("a partition's lists were computed with other settings than this process has: "+
			"rankings wait until all rankers have the same", "topic", schema.TopicUpdates, "partition", p)
	}
	for _, rec := range w.tx.rows {
		if row, err := parseVersionKey(rec.Key[1:]); err == nil && rec.Key[0] == rowVersion[0] && row.partition == p {
			w.set(rec.Key, nil)
		}
	}
	for key, k := range w.keys {
		k.dirty = true
		err := w.scan(versionPrefix(key, p), nil, func(row, _ []byte) error {
			w.set(bytes.Clone(row), nil)
			return nil
		})
		if err != nil {
			return err
		}
	}
	w.dropMarks(p, s.Marks)
	*s = newSource(from)
	w.keepSource(p)
	return nil
}

func (w *trending) keepSource(p int32) {
	w.set(partitionKey(rowSource, p), encode(w.sources[p].fields))
}

func (w *trending) dropMarks(p int32, marks []window.Mark) {
	for _, m := range marks {
		w.set(markKey(p, m.Watermark), nil)
	}
}

func (w *trending) loadSource(key, value []byte) error {
	s, err := w.sourceOf(key)
	if err != nil {
		return err
	}
	return decode(value, s.fields)
}

func (w *trending) loadMark(key, value []byte) error {
	s, err := w.sourceOf(key)
	if err != nil || len(key) != 4+8 {
		return fmt.Errorf("row key %x is not that of a mark: %w", key, err)
	}
	m := window.Mark{Watermark: parseOrdered(key[4:])}
	err = decode(value, func(c *codec) { c.mark(&m) })
	s.Marks = append(s.Marks, m)
	return err
}

func (w *trending) sourceOf(key []byte) (*source, error) {
	if len(key) < 4 || int(binary.BigEndian.Uint32(key)) >= len(w.sources) {
		return nil, fmt.Errorf("row key %x does not name a partition", key)
	}
	return &w.sources[binary.BigEndian.Uint32(key)], nil
}
