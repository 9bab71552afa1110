package void

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync"

	"kudos/ops/follow"
	"kudos/ops/progress"
	"kudos/schema"
	"kudos/stream/kafka"
)

// List are the users whose reactions do not count.
type List struct {
	Users []string `json:"users"` // strings, because numbers in browsers are exact only up to 2^53
	// Incomplete are voided in some partitions only: a run was stopped.
	Incomplete []string `json:"incomplete"`
}

// ReadList reads the state table up to its current end.
func ReadList(ctx context.Context, kafka kafka.Options, begin func(what, unit string, total int64) *progress.Phase,
	log *slog.Logger,
) (*List, error) {
	cl, err := kafka.NewClient(log)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	topics, err := follow.LookUp(ctx, cl, kafka)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	in := map[uint64]map[int32]bool{} // by user and partition: is voided
	var parts []*follow.Partition
	for p := range topics.ByName[schema.TopicState].Partitions {
		parts = append(parts, &follow.Partition{Number: p, Keep: func(key, value []byte) (err error) {
			user, ok := schema.ParseVoidKey(key)
			if !ok {
				return nil
			}
			void := false
			if value != nil {
				if void, err = schema.DecodeVoid(value); err != nil {
					return err
				}
			}
			mu.Lock()
			defer mu.Unlock()
			if in[user] == nil {
				in[user] = map[int32]bool{}
			}
			in[user][p] = void
			return nil
		}})
	}
	if err := follow.Scan(ctx, cl, parts, begin, func(*follow.Partition) error { return nil }); err != nil {
		return nil, err
	}
	list := &List{Users: []string{}, Incomplete: []string{}}
	for _, user := range slices.Sorted(maps.Keys(in)) {
		n := 0
		for _, void := range in[user] {
			if void {
				n++
			}
		}
		switch n {
		case 0:
		case len(parts):
			list.Users = append(list.Users, strconv.FormatUint(user, 10))
		default:
			list.Incomplete = append(list.Incomplete, strconv.FormatUint(user, 10))
		}
	}
	return list, nil
}
