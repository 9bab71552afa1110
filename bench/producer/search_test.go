package producer

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// model is a producer that carries up to a rate.
type model struct {
	capacity float64
	hiccups  map[int]bool // calls that go wrong whatever the rate is
	calls    int
	rates    []float64
	lasted   []time.Duration
}

func (m *model) hold(_ context.Context, rate float64, d time.Duration) (Step, error) {
	m.calls++
	m.rates, m.lasted = append(m.rates, rate), append(m.lasted, d)
	s := Step{PlannedLikesPerSecond: rate, P99Ms: 5}
	if rate > m.capacity {
		s.P99Ms = 260
	}
	if m.hiccups[m.calls] {
		s.Failed, s.FirstFailure = 1, "a hiccup"
	}
	return s, nil
}

func (m *model) search() *search {
	o := DefaultOptions()
	return &search{options: &o, log: slog.New(slog.DiscardHandler), at: m.hold}
}

func TestSearchFindsTheCapacity(t *testing.T) {
	for _, capacity := range []float64{7, 999, 1000, 1001, 1999, 12_345, 640_000} {
		m := model{capacity: capacity}
		found, err := m.search().run(t.Context())
		require.NoError(t, err)
		got := found.Capacity.PlannedLikesPerSecond
		require.True(t, found.Capacity.Carried)
		require.LessOrEqual(t, got, capacity)
		require.Greater(t, got*1.1, capacity, "within a tenth of it")
		require.Equal(t, got/2, found.Half.PlannedLikesPerSecond)
		require.Equal(t, DefaultOptions().HoldFor, m.lasted[len(m.lasted)-1])
		require.Len(t, found.Steps, m.calls-2, "all but the warm-up and the half")
	}
}

func TestSearchLooksTwice(t *testing.T) {
	calm := model{capacity: 12_345}
	want, err := calm.search().run(t.Context())
	require.NoError(t, err)
	m := model{capacity: 12_345, hiccups: map[int]bool{1: true, 3: true, 6: true}}
	found, err := m.search().run(t.Context())
	require.NoError(t, err)
	require.Equal(t, want.Capacity, found.Capacity)
	require.Len(t, found.Steps, len(want.Steps)+2)
}

func TestSearchWithoutALimit(t *testing.T) {
	for _, capacity := range []float64{0, 1e12} {
		m := model{capacity: capacity}
		_, err := m.search().run(t.Context())
		require.ErrorContains(t, err, "no limit was found between 1 and 10000000 likes/s: at ")
	}
	m := model{capacity: 1000, hiccups: map[int]bool{}}
	for i := range 100 {
		m.hiccups[i] = true
	}
	_, err := m.search().run(t.Context())
	require.ErrorContains(t, err, "1 failed (a hiccup)")
}

func TestSearchEndsWithAnError(t *testing.T) {
	broken := errors.New("broken")
	s := (&model{}).search()
	s.at = func(context.Context, float64, time.Duration) (Step, error) { return Step{}, broken }
	_, err := s.run(t.Context())
	require.ErrorIs(t, err, broken)
}

func TestPercentile(t *testing.T) {
	require.Zero(t, percentile(nil, 0.5))
	times := make([]time.Duration, 1000)
	for i := range times {
		times[i] = time.Duration(i + 1)
	}
	for share, want := range map[float64]time.Duration{0: 1, 0.5: 500, 0.99: 990, 0.999: 999, 1: 1000} {
		require.Equal(t, want, percentile(times, share))
	}
	require.Equal(t, time.Duration(1), percentile(times[:1], 0.999))
}
