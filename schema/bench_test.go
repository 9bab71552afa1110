package schema

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// codecs are the operations that the fold and its consumers run for every event.
func codecs() map[string]func() error {
	event := Event{PostID: 123456789, UserID: 987654321, Action: Like, TimeMs: 1_700_000_000_123,
		Region: Region{'U', 'S', '-', 'C', 'A'}}
	key, inProto := AppendPostKey(nil, event.PostID), AppendEvent(nil, &event)
	inJSON := []byte(`{"post_id":123456789,"user_id":"987654321","action":"LIKE","time_ms":1700000000123,"region":"US-CA"}`)
	// The update of a hot post: changes in four regions within one minute.
	update := &Update{Seq: 1 << 30, Counts: Counts{1 << 20, 1 << 10}, SourceOffset: 1 << 32}
	for _, r := range []string{"US-CA", "DE", "JP", "BR"} {
		region, _ := ParseRegion(r)
		update.Deltas = append(update.Deltas, Delta{region, 28_333_333, 120, -3})
	}
	updateValue, pairValue := AppendUpdate(nil, update), AppendPair(nil, &goldenPair)
	var u Update
	var p Pair
	buf := make([]byte, 0, 512)
	return map[string]func() error{
		"DecodeEvent/proto": func() error { return DecodeEvent(key, inProto, &event) },
		"DecodeEvent/json":  func() error { return DecodeEvent(key, inJSON, &event) },
		"AppendEvent":       func() error { buf = AppendEvent(buf[:0], &event); return nil },
		"DecodeUpdate":      func() error { return DecodeUpdate(updateValue, &u) },
		"AppendUpdate":      func() error { buf = AppendUpdate(buf[:0], update); return nil },
		"DecodePair":        func() error { return DecodePair(pairValue, &p) },
		"AppendPair":        func() error { buf = AppendPair(buf[:0], &goldenPair); return nil },
		"PartitionFor":      func() error { PartitionFor(event.PostID, 16); return nil },
	}
}

func BenchmarkCodecs(b *testing.B) {
	for name, do := range codecs() {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := do(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// An allocation per event would be noticeable.
func TestCodecsDoNotAllocate(t *testing.T) {
	for name, do := range codecs() {
		var err error
		require.Zero(t, testing.AllocsPerRun(100, func() { err = do() }), name)
		require.NoError(t, err, name)
	}
}
