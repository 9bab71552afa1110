package store

import (
	"strconv"
	"sync"

	"github.com/cockroachdb/pebble/v2"
	"github.com/prometheus/client_golang/prometheus"

	"kudos/stream/store/buffer"
)

// This file reports the sizes of stores, at any time and to any goroutine.

// shownStore is the part of a store that other goroutines may read while the store is opened and closed.
type shownStore struct {
	mu     sync.Mutex
	db     *pebble.DB     // nil: not open
	buffer *buffer.Buffer // nil: it has none
}

func (s *shownStore) show(db *pebble.DB, b *buffer.Buffer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.db, s.buffer = db, b
}

// size returns the store's bytes on disk and its number of keys there, -1 if it does not count them.
func (s *shownStore) size() (bytes uint64, keys float64, open bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.db == nil {
		return 0, 0, false
	}
	keys = -1
	if s.buffer != nil {
		keys = float64(s.buffer.Keys())
	}
	return s.db.Metrics().DiskSpaceUsage(), keys, true
}

// closeDB hides the store from other goroutines, then closes Pebble, which does not wait for compactions.
func (s *Store) closeDB() error {
	s.shown.show(nil, nil)
	s.pace.stop.Store(true)
	err := s.db.Close()
	s.db = nil
	return err
}

type sizeCollector struct {
	stores                *Set
	bytes, keys, replayed *prometheus.Desc
}

// NewCollector returns a Prometheus collector of the sizes of open stores, and of the records replayed to bring stores
// up to date. role distinguishes it from others in the same process.
func NewCollector(role string, stores *Set) prometheus.Collector {
	constant := prometheus.Labels{"role": role}
	return sizeCollector{
		stores: stores,
		bytes: prometheus.NewDesc("kudos_state_bytes", "Bytes on disk of the local copy of a table topic's partition.",
			[]string{"topic", "partition"}, constant),
		keys: prometheus.NewDesc("kudos_state_entries",
			"Keys on disk in the local copy of a table topic's partition, within about 1%, including those deleted "+
				"since. Lower just after it was opened, while keys are counted.",
			[]string{"topic", "partition"}, constant),
		replayed: prometheus.NewDesc("kudos_state_replayed_records_total",
			"Changelog records that were read to bring local copies up to date.", nil, constant),
	}
}

func (c sizeCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.bytes
	ch <- c.keys
	ch <- c.replayed
}

func (c sizeCollector) Collect(ch chan<- prometheus.Metric) {
	ch <- prometheus.MustNewConstMetric(c.replayed, prometheus.CounterValue, float64(c.stores.Replayed()))
	for id, s := range c.stores.all() {
		bytes, keys, open := s.shown.size()
		if !open {
			continue
		}
		partition := strconv.Itoa(int(id.partition))
		ch <- prometheus.MustNewConstMetric(c.bytes, prometheus.GaugeValue, float64(bytes), id.topic, partition)
		if keys >= 0 {
			ch <- prometheus.MustNewConstMetric(c.keys, prometheus.GaugeValue, keys, id.topic, partition)
		}
	}
}
