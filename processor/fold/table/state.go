package table

import (
	"fmt"

	"kudos/processor/fold"
	"kudos/schema"
	"kudos/stream/store"
)

// State is the fold's view of the state table of one partition.
type State struct {
	Store *store.Store
	key   []byte // buffer
}

func (t *State) Pairs(keys []fold.PairKey, found func(int, schema.Pair)) error {
	return t.Store.Lookup(len(keys),
		func(i int) []byte {
			t.key = schema.AppendPairKey(t.key[:0], keys[i].PostID, keys[i].UserID)
			return t.key
		},
		func(i int, value []byte) error {
			var p schema.Pair
			if err := schema.DecodePair(value, &p); err != nil {
				return fmt.Errorf("post %d, user %d: %w", keys[i].PostID, keys[i].UserID, err)
			}
			found(i, p)
			return nil
		})
}

func (t *State) Counts(posts []uint64, found func(int, schema.Counts)) error {
	return t.Store.Lookup(len(posts),
		func(i int) []byte {
			t.key = schema.AppendCountsKey(t.key[:0], posts[i])
			return t.key
		},
		func(i int, value []byte) error {
			c, err := schema.DecodeCounts(value)
			if err != nil {
				return fmt.Errorf("post %d: %w", posts[i], err)
			}
			found(i, c)
			return nil
		})
}

// ReadCounts returns the counts of a post; found reports whether the partition has a record of them.
func ReadCounts(store *store.Store, post uint64) (c schema.Counts, found bool, err error) {
	found, err = store.Find(schema.AppendCountsKey(nil, post), func(value []byte) (err error) {
		c, err = schema.DecodeCounts(value)
		return err
	})
	return c, found, err
}

// ReadVoided returns the users of the partition whose reactions do not count.
func ReadVoided(s *store.Store) (map[uint64]struct{}, error) {
	users := map[uint64]struct{}{}
	from, to := schema.VoidKeys()
	err := store.Scan(s, from, to, func(key, value []byte) (more bool, err error) {
		user, ok := schema.ParseVoidKey(key)
		if !ok {
			return true, nil
		}
		void, err := schema.DecodeVoid(value)
		if void {
			users[user] = struct{}{}
		}
		return true, err
	})
	return users, err
}

// ReadProgress returns the partition's progress record; ok is false if there is none.
func ReadProgress(store *store.Store) (p schema.Progress, ok bool, err error) {
	ok, err = store.Find([]byte(schema.StateProgressKey), func(value []byte) error {
		return schema.DecodeProgress(value, &p)
	})
	return p, ok, err
}
