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
	Users      []string `json:"users"`      // strings, because numbers in browsers are exact only up to 2^53
	Incomplete []string `json:"incomplete"` // those of them that are voided in some partitions only: a run was stopped
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
	in := map[uint64]int{} // by user: the number of partitions
	var parts []*follow.Partition
	voided := map[int32]map[uint64]struct{}{} // by partition, while it is read
	for p := range topics.ByName[schema.TopicState].Partitions {
		users := map[uint64]struct{}{}
		voided[p] = users
		parts = append(parts, &follow.Partition{Number: p, Keep: func(key, value []byte) (err error) {
			user, ok := schema.ParseVoidKey(key)
			if !ok {
				return nil
			}
			void := false
			if value != nil {
				void, err = schema.DecodeVoid(value)
			}
			if void {
				users[user] = struct{}{}
			} else {
				delete(users, user)
			}
			return err
		}})
	}
	err = follow.Scan(ctx, cl, parts, begin, func(p *follow.Partition) error {
		mu.Lock()
		defer mu.Unlock()
		for user := range voided[p.Number] {
			in[user]++
		}
		delete(voided, p.Number)
		return nil
	})
	if err != nil {
		return nil, err
	}
	list := &List{Users: []string{}, Incomplete: []string{}}
	for _, user := range slices.Sorted(maps.Keys(in)) {
		text := strconv.FormatUint(user, 10)
		list.Users = append(list.Users, text)
		if in[user] < len(parts) {
			list.Incomplete = append(list.Incomplete, text)
		}
	}
	return list, nil
}
