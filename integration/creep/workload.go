package creep

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"

	"kudos/processor/fold"
	"kudos/schema"
)

// Workload is a part of the program and work for it.
type Workload struct {
	Name        string
	Events      int // per repetition; figures are per event
	Repetitions int // that are counted, after as many that are not
	// Prepare sets up what one repetition needs; close releases it.
	Prepare func() (repeat func() error, close func() error, err error)
}

// Workloads are all measured workloads.
func Workloads() []Workload {
	list := []Workload{foldOf("fold/hot", 1), foldOf("fold/1000_posts", 1000), foldOf("fold/uniform", 1<<40)}
	list = append(list, codecs()...)
	return append(list, stores()...)
}

// foldBatch is the number of events per batch under load.
const foldBatch = 10_000

// seeded gives the same numbers each time.
func seeded() *rand.Rand { return rand.New(rand.NewPCG(1, 1)) }

// events makes likes, one in ten an unlike, spread over posts.
func events(n int, posts uint64) []schema.Event {
	r := seeded()
	list := make([]schema.Event, n)
	for i := range list {
		list[i] = schema.Event{PostID: 1 + r.Uint64N(posts), UserID: 1 + r.Uint64N(1<<24), Action: schema.Like,
			TimeMs: 1_700_000_000_000 + int64(i), Region: schema.Region{'U', 'S', '-', 'C', 'A'}}
		if r.IntN(10) == 0 {
			list[i].Action = schema.Unlike
		}
	}
	return list
}

// halfKnown is a state that has every second user's reaction, at no cost.
type halfKnown struct{}

func (halfKnown) Pairs(keys []fold.PairKey, found func(int, schema.Pair)) error {
	for i := range keys {
		if keys[i].UserID%2 == 0 {
			found(i, schema.Pair{Reaction: schema.Liked, TimeMs: 1_600_000_000_000, SinceMs: 1_600_000_000_000,
				Region: schema.Region{'D', 'E'}})
		}
	}
	return nil
}

func (halfKnown) Counts(posts []uint64, found func(int, schema.Counts)) error {
	for i := range posts {
		found(i, schema.Counts{Likes: 1000})
	}
	return nil
}

func foldOf(name string, posts uint64) Workload {
	prepare := func() (func() error, func() error, error) {
		batch := make([]fold.Event, 0, foldBatch)
		for i, e := range events(foldBatch, posts) {
			batch = append(batch, fold.Event{Event: e, Offset: int64(i)})
		}
		var f fold.Engine
		return func() error { _, err := f.Fold(batch, halfKnown{}); return err }, nothing, nil
	}
	return Workload{Name: name, Events: foldBatch, Repetitions: 2, Prepare: prepare}
}

func nothing() error { return nil }

// codecEvents is how many distinct values one repetition of a codec works on.
const codecEvents = 1000

// codec applies one operation to many values. The cheaper it is, the more repetitions dominate the process's start.
func codec(name string, repetitions int, prepare func() (one func(i int) error)) Workload {
	return Workload{Name: name, Events: codecEvents, Repetitions: repetitions,
		Prepare: func() (func() error, func() error, error) {
			one := prepare()
			return func() error {
				for i := range codecEvents {
					if err := one(i); err != nil {
						return fmt.Errorf("value %d: %w", i, err)
					}
				}
				return nil
			}, nothing, nil
		}}
}

func codecs() []Workload {
	return []Workload{
		codec("event/decode", 40, func() func(int) error {
			return decodeEvents(func(e *schema.Event) []byte { return schema.AppendEvent(nil, e) })
		}),
		codec("event/decode_json", 20, func() func(int) error {
			return decodeEvents(func(e *schema.Event) []byte {
				return fmt.Appendf(nil, `{"post_id":%d,"user_id":"%d","action":%q,"time_ms":%d,"region":"US-CA"}`,
					e.PostID, e.UserID, e.Action, e.TimeMs)
			})
		}),
		codec("event/append", 100, func() func(int) error {
			list, buf := events(codecEvents, 1<<40), make([]byte, 0, 128)
			return func(i int) error { buf = schema.AppendEvent(buf[:0], &list[i]); return nil }
		}),
		codec("update/decode", 40, func() func(int) error {
			values, u := valuesOf(func(i int) []byte { return schema.AppendUpdate(nil, update(i)) }), new(schema.Update)
			return func(i int) error { return schema.DecodeUpdate(values[i], u) }
		}),
		codec("update/append", 40, func() func(int) error {
			buf, list := make([]byte, 0, 512), valuesOf(update)
			return func(i int) error { buf = schema.AppendUpdate(buf[:0], list[i]); return nil }
		}),
		codec("pair/decode", 400, func() func(int) error {
			values, p := valuesOf(func(i int) []byte { return schema.AppendPair(nil, pair(i)) }), new(schema.Pair)
			return func(i int) error { return schema.DecodePair(values[i], p) }
		}),
		codec("pair/append", 600, func() func(int) error {
			buf, list := make([]byte, 0, 64), valuesOf(pair)
			return func(i int) error { buf = schema.AppendPair(buf[:0], list[i]); return nil }
		}),
	}
}

func valuesOf[T any](of func(i int) T) []T {
	values := make([]T, codecEvents)
	for i := range values {
		values[i] = of(i)
	}
	return values
}

func decodeEvents(encode func(*schema.Event) []byte) func(int) error {
	list := events(codecEvents, 1<<40)
	keys, values := make([][]byte, len(list)), make([][]byte, len(list))
	for i := range list {
		keys[i], values[i] = strconv.AppendUint(nil, list[i].PostID, 10), encode(&list[i])
	}
	e := new(schema.Event)
	return func(i int) error { return schema.DecodeEvent(keys[i], values[i], e) }
}

// update returns an update of a busy post, with changes in one to four regions.
func update(i int) *schema.Update {
	u := &schema.Update{Seq: 1<<30 + uint64(i), Counts: schema.Counts{Likes: 1<<20 + int64(i), Dislikes: 1 << 10},
		SourceOffset: 1<<32 + int64(i)}
	for _, region := range []schema.Region{{'B', 'R'}, {'D', 'E'}, {'J', 'P'}, {'U', 'S', '-', 'C', 'A'}}[:1+i%4] {
		u.Deltas = append(u.Deltas, schema.Delta{Region: region, Minute: 28_333_333, Likes: 120, Dislikes: -3})
	}
	return u
}

func pair(i int) *schema.Pair {
	ms := 1_700_000_000_000 + int64(i)
	return &schema.Pair{Reaction: schema.Liked, TimeMs: ms, Offset: 1<<32 + int64(i), SinceMs: ms,
		Region: schema.Region{'D', 'E'}}
}

// Run runs a workload a number of times.
func Run(name string, repetitions int) error {
	list := Workloads()
	i := slices.IndexFunc(list, func(w Workload) bool { return w.Name == name })
	if i < 0 {
		return fmt.Errorf("unknown workload %q", name)
	}
	return list[i].run(func(repeat func() error) error {
		for range repetitions {
			if err := repeat(); err != nil {
				return err
			}
		}
		return nil
	})
}

func (w *Workload) run(do func(repeat func() error) error) error {
	repeat, close, err := w.Prepare()
	if err != nil {
		return fmt.Errorf("preparing workload %s: %w", w.Name, err)
	}
	if err := errors.Join(do(repeat), close()); err != nil {
		return fmt.Errorf("workload %s: %w", w.Name, err)
	}
	return nil
}

// Allocations counts the allocations per repetition of each workload, by name.
func Allocations() (map[string]float64, error) {
	counts := map[string]float64{}
	for _, w := range Workloads() {
		err := w.run(func(repeat func() error) error {
			if err := repeat(); err != nil { // lets buffers grow
				return err
			}
			before := mallocs()
			for range w.Repetitions {
				if err := repeat(); err != nil {
					return err
				}
			}
			counts[w.Name] = float64(mallocs()-before) / float64(w.Repetitions)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return counts, nil
}

func mallocs() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}
