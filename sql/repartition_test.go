package sql

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Partitions that were added start; those before stay where they are, and go on.
func TestAddPartitions(t *testing.T) {
	onEachPair(t, func(t *testing.T, a, b database) {
		o := sharded(a, b)
		require.NoError(t, Migrate(t.Context(), o, discardLog()))
		s, src := openShards(t, o), likesTopic()
		more := src
		more.Partitions = 7
		require.NoError(t, s.AddPartitions(t.Context(), more), "to databases that have counted nothing there is nothing to add")
		require.Equal(t, "0", a.scalar(t, "SELECT COUNT(*) FROM applied_offset"))
		for _, partition := range []int32{0, 1} { // at both
			_, err := s.Of(partition).Position(t.Context(), src, partition)
			require.NoError(t, err)
		}
		require.NoError(t, s.Of(2).Apply(t.Context(), src, 2, at(0, 0), at(10, 5), oneLike, nil))
		for range 2 { // a run that was stopped does it again
			require.NoError(t, s.AddPartitions(t.Context(), more))
			require.Equal(t, "0 2 4 6", a.scalar(t, "SELECT GROUP_CONCAT(partition_id ORDER BY partition_id SEPARATOR ' ') FROM applied_offset WHERE partitions = 7"))
			require.Equal(t, "1 3 5", b.scalar(t, "SELECT GROUP_CONCAT(partition_id ORDER BY partition_id SEPARATOR ' ') FROM applied_offset WHERE partitions = 7"))
		}
		_, err := s.Of(2).Position(t.Context(), src, 2)
		var changed *SourceChangedError
		require.ErrorAs(t, err, &changed)
		require.ErrorIs(t, s.Of(2).Apply(t.Context(), src, 2, at(10, 5), at(11, 6), oneLike, nil), ErrPositionMoved, "who does not know of them yet reads its position again")
		position, err := s.Of(2).Position(t.Context(), more, 2)
		require.NoError(t, err)
		require.Equal(t, at(10, 5), position)
		position, err = s.Of(6).Position(t.Context(), more, 6)
		require.NoError(t, err)
		require.Equal(t, start, position)

		require.ErrorAs(t, s.AddPartitions(t.Context(), src), &changed, "fewer than before")
		more.Partitions++
		more.TopicID[0]++
		require.ErrorAs(t, s.AddPartitions(t.Context(), more), &changed, "of another log")
		require.Equal(t, "4", a.scalar(t, "SELECT COUNT(*) FROM applied_offset WHERE partitions = 7"))
	})
}
