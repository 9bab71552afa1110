package wire

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"kudos/schema"
)

func TestEncodersAreAsEncodingJSON(t *testing.T) {
	positions := []Position{{}, {Partition: 3, Offset: 1018}, {Partition: math.MaxInt32, Offset: math.MaxInt64}}
	for _, p := range []PostLikes{
		{},
		{PostID: 42, Counts: schema.Counts{Likes: 3, Dislikes: 1}, AsOf: positions[1]},
		{
			PostID: math.MaxUint64, AsOf: positions[2],
			Counts: schema.Counts{Likes: math.MinInt64, Dislikes: math.MaxInt64},
		},
	} {
		want, err := json.Marshal(p)
		require.NoError(t, err)
		require.Equal(t, string(want), string(p.AppendJSON(nil)))
	}
	type postCounts struct {
		PostID   uint64 `json:"post_id,string"`
		Likes    int64  `json:"likes"`
		Dislikes int64  `json:"dislikes"`
	}
	many := struct {
		Posts []postCounts `json:"posts"`
		AsOf  []Position   `json:"as_of"`
	}{[]postCounts{}, []Position{}}
	var posts []uint64
	var counts []schema.Counts
	for i := range 4 {
		want, err := json.Marshal(many)
		require.NoError(t, err)
		require.Equal(t, string(want), string(AppendManyLikes(nil, posts, counts, many.AsOf, nil, nil)))
		c := schema.Counts{Likes: int64(i), Dislikes: -int64(i)}
		posts, counts = append(posts, math.MaxUint64-uint64(i)), append(counts, c)
		many.Posts = append(many.Posts, postCounts{math.MaxUint64 - uint64(i), c.Likes, c.Dislikes})
		many.AsOf = append(many.AsOf, positions[i%len(positions)])
	}
}

func TestPositionsText(t *testing.T) {
	require.Empty(t, PositionsText(nil))
	p := Position{Partition: 3, Offset: 1018}
	require.Equal(t, "3:1018", p.String())
	require.Equal(t, "3:1018,4:0", PositionsText([]Position{p, {Partition: 4}}))
}

func TestMillis(t *testing.T) {
	for ms, want := range map[Millis]string{
		1763719200123:   `"2025-11-21T10:00:00.123Z"`,
		1763719200000:   `"2025-11-21T10:00:00.000Z"`,
		0:               `"1970-01-01T00:00:00.000Z"`,
		253402300800000: `"10000-01-01T00:00:00.000Z"`,
	} {
		got, err := ms.MarshalJSON()
		require.NoError(t, err)
		require.Equal(t, want, string(got))
	}
}
