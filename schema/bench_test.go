package schema

import (
	"testing"

	"github.com/stretchr/testify/require"
)

var benchEvent = Event{PostID: 123456789, UserID: 987654321, Action: Like, TimeMs: 1_700_000_000_123, Region: Region{'U', 'S', '-', 'C', 'A'}}

func BenchmarkDecodeEvent(b *testing.B) {
	key := AppendPostKey(nil, benchEvent.PostID)
	for name, value := range map[string][]byte{
		"proto": AppendEvent(nil, &benchEvent),
		"json":  []byte(`{"post_id":123456789,"user_id":"987654321","action":"LIKE","time_ms":1700000000123,"region":"US-CA"}`),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			var e Event
			for b.Loop() {
				if err := DecodeEvent(key, value, &e); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkAppendEvent(b *testing.B) {
	b.ReportAllocs()
	buf := make([]byte, 0, 128)
	for b.Loop() {
		buf = AppendEvent(buf[:0], &benchEvent)
	}
}

// A hot post's update: changes in four regions within one minute.
func benchUpdate() *Update {
	u := &Update{Seq: 1 << 30, Counts: Counts{1 << 20, 1 << 10}, SourceOffset: 1 << 32}
	for _, r := range []string{"US-CA", "DE", "JP", "BR"} {
		region, _ := ParseRegion(r)
		u.Deltas = append(u.Deltas, Delta{region, 28_333_333, 120, -3})
	}
	return u
}

func BenchmarkAppendUpdate(b *testing.B) {
	b.ReportAllocs()
	u, buf := benchUpdate(), make([]byte, 0, 512)
	for b.Loop() {
		buf = AppendUpdate(buf[:0], u)
	}
}

func BenchmarkDecodeUpdate(b *testing.B) {
	b.ReportAllocs()
	value := AppendUpdate(nil, benchUpdate())
	var u Update
	for b.Loop() {
		if err := DecodeUpdate(value, &u); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPair(b *testing.B) {
	buf := AppendPair(nil, &goldenPair)
	b.Run("append", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			buf = AppendPair(buf[:0], &goldenPair)
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		var p Pair
		for b.Loop() {
			if err := DecodePair(buf, &p); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkPartitionFor(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		PartitionFor(benchEvent.PostID, 16)
	}
}

// The fold and the appliers run these for every event: an allocation each would be
// felt.
func TestCodecsDoNotAllocate(t *testing.T) {
	key, value := AppendPostKey(nil, benchEvent.PostID), AppendEvent(nil, &benchEvent)
	inJSON := []byte(`{"post_id":123456789,"user_id":"987654321","action":"LIKE","time_ms":1700000000123,"region":"US-CA"}`)
	update := AppendUpdate(nil, benchUpdate())
	var e Event
	u, buf := benchUpdate(), make([]byte, 0, 512)
	for name, f := range map[string]func(){
		"DecodeEvent":  func() { _ = DecodeEvent(key, value, &e) },
		"JSON":         func() { _ = DecodeEvent(key, inJSON, &e) },
		"AppendEvent":  func() { buf = AppendEvent(buf[:0], &benchEvent) },
		"DecodeUpdate": func() { _ = DecodeUpdate(update, u) },
		"AppendUpdate": func() { buf = AppendUpdate(buf[:0], u) },
		"AppendPair":   func() { buf = AppendPair(buf[:0], &goldenPair) },
		"PartitionFor": func() { PartitionFor(benchEvent.PostID, 16) },
	} {
		require.Zero(t, testing.AllocsPerRun(100, f), name)
	}
}
