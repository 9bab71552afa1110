package forget

import (
	"kudos/ops/follow"
	"kudos/schema"
)

// asked reports whether a reaction is to be withdrawn.
type asked func(post, user uint64) bool

func newAsked(kind Kind, ids []uint64) asked {
	set := make(map[uint64]bool, len(ids))
	for _, id := range ids {
		set[id] = true
	}
	if kind == User {
		return func(_, user uint64) bool { return set[user] }
	}
	return func(post, _ uint64) bool { return set[post] }
}

type pairKey struct{ post, user uint64 }

// known is the part of a pair kept in memory.
type known struct {
	timeMs   int64
	reaction schema.Reaction
}

// part has a state-table partition's matching pairs, 60 bytes for each that ever existed. Not safe for concurrent use.
type part struct {
	follow.Partition
	asked asked
	pairs map[pairKey]known
}

// keep stores a record; the last one of a key wins.
func (p *part) keep(key, value []byte) error {
	post, user, ok := schema.ParsePairKey(key)
	if !ok || !p.asked(post, user) {
		return nil
	}
	if value == nil { // only a rebuild of the state table deletes a pair
		delete(p.pairs, pairKey{post, user})
		return nil
	}
	var pair schema.Pair
	if err := schema.DecodePair(value, &pair); err != nil {
		return err
	}
	p.pairs[pairKey{post, user}] = known{pair.TimeMs, pair.Reaction}
	return nil
}
