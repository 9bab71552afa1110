package schema

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"kudos/schema/kudosv1"
)

// differsFromGenerated says how a decoded Protobuf event differs from what the generated code decodes; "" if not.
func differsFromGenerated(value []byte, got *Event) string {
	var m kudosv1.LikeEvent
	if err := proto.Unmarshal(value, &m); err != nil {
		return fmt.Sprintf("generated code rejects it: %v", err)
	}
	region, wellFormed := ParseRegion(m.Region)
	want := Event{PostID: m.PostId, UserID: m.UserId, Action: Action(m.Action), TimeMs: m.TimeMs, Region: region,
		RegionMalformed: !wellFormed}
	if *got != want {
		return fmt.Sprintf("got %+v, generated code decodes %+v", *got, want)
	}
	return ""
}

// FuzzDecodeEvent: no panics; an accepted event round-trips, and equals what the generated code decodes, if it does.
func FuzzDecodeEvent(f *testing.F) {
	for _, tt := range eventCases {
		f.Add([]byte("7"), marshal(f, tt.proto))
	}
	f.Add([]byte(nil), []byte(`{"post_id":"7","userId":9,"action":true,"time_ms":1,"region":"us"}`))
	f.Add([]byte("007"), []byte("\x10\x02\x18\x82\x80\x80\x80\x10\x2a\x02us"))
	f.Add([]byte("x"), []byte("\x33\x08\x01\x34"))
	f.Add([]byte("7"), []byte("\x00\x00\x00\x01\x02\x00\x10\x02\x18\x01"))
	f.Fuzz(func(t *testing.T, key, value []byte) {
		var e Event
		if err := DecodeEvent(key, value, &e); err != nil {
			var poison *PoisonError
			require.ErrorAs(t, err, &poison)
			require.Contains(t, PoisonReasons, poison.Reason)
		} else {
			require.NoError(t, e.Check())
			var again Event
			require.NoError(t, DecodeEvent(AppendPostKey(nil, e.PostID), AppendEvent(nil, &e), &again))
			e.RegionMalformed = false // it is encoded as the unknown region
			require.Equal(t, e, again)
		}
		if len(value) > 0 && value[0] == '{' {
			return
		}

		// The bare message, without the further checks of DecodeEvent.
		var bare Event
		bare.Region = UnknownRegion
		errBare := bare.decodeProto(value)
		var m kudosv1.LikeEvent
		if proto.Unmarshal(value, &m) != nil {
			return // the generated code is stricter in places (field numbers above the maximum)
		}
		require.NoError(t, errBare, "generated code accepts it")
		if m.Action < 0 || m.Action > 254 {
			require.False(t, bare.Action.known())
			return
		}
		require.Empty(t, differsFromGenerated(value, &bare))
	})
}

// FuzzDecodeUpdate is like FuzzDecodeEvent, but a malformed region in a delta is an error: kudos never writes one.
func FuzzDecodeUpdate(f *testing.F) {
	for _, tt := range updateCases {
		f.Add(marshal(f, tt.proto))
	}
	f.Add([]byte("\x22\x06\x0a\x04Mars"))
	f.Add([]byte("\x0a\x01\x07\x20\x01"))
	f.Fuzz(func(t *testing.T, value []byte) {
		var u Update
		err := DecodeUpdate(value, &u)
		if err == nil {
			var again Update
			require.NoError(t, DecodeUpdate(AppendUpdate(nil, &u), &again))
			require.True(t, equalUpdates(&u, &again), "%+v\n%+v", u, again)
		}
		var m kudosv1.LikeUpdate
		if proto.Unmarshal(value, &m) != nil {
			return
		}
		want, regionErr := updateFromGenerated(&m)
		if regionErr != nil {
			return // an earlier value of the same field may have had it, too
		}
		if err != nil {
			require.ErrorContains(t, err, "is malformed", "generated code accepts it")
			return
		}
		require.True(t, equalUpdates(want, &u), "got %+v, generated code decodes %+v", u, want)
	})
}

func updateFromGenerated(m *kudosv1.LikeUpdate) (*Update, error) {
	u := &Update{Seq: m.Seq, Counts: Counts{m.LikeCount, m.DislikeCount}, SourceOffset: m.SourceOffset,
		Buckets: m.UserBuckets, Moved: m.Moved != nil, Other: m.GetMoved()}
	for _, d := range m.Deltas {
		region, wellFormed := ParseRegion(d.Region)
		if !wellFormed {
			return nil, errors.New("malformed region")
		}
		u.Deltas = append(u.Deltas, Delta{region, d.Minute, d.Likes, d.Dislikes})
	}
	return u, nil
}

func equalUpdates(a, b *Update) bool { // fewer than two buckets are as good as none
	return a.Seq == b.Seq && a.Counts == b.Counts && a.SourceOffset == b.SourceOffset &&
		max(1, a.Buckets) == max(1, b.Buckets) && a.Moved == b.Moved && a.Other == b.Other &&
		slices.Equal(a.Deltas, b.Deltas)
}
