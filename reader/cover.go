package reader

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"kudos/httpserver/problem"
	"kudos/reader/query"
	"kudos/reader/view"
	"kudos/reader/wire"
	"kudos/schema"
)

// cover rejects an invalid request, and waits, at most MaxWait, until the view covers these positions. It does not wait
// for a position beyond the end of likes. A position without a partition is in the only one that owners returns.
func (a *api) cover(q *request, want []wire.Position, owners func() ([]int32, error)) error {
	if err := q.refusal(); err != nil {
		return err
	}
	if len(want) == 1 && want[0].Partition == somePartition {
		partitions, err := owners()
		if err != nil {
			return err
		}
		if len(partitions) > 1 {
			return invalidMinOffset("names no partition, but the post is in %d of them (it has user buckets): "+
				"use partition:offset", len(partitions))
		}
		want[0].Partition = partitions[0]
	}
	missing, err := a.missing(want)
	if err != nil || len(missing) == 0 {
		return err
	}
	if err := a.wait(q); err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(q.Request.Context(), a.options.MaxWait)
	defer cancel()
	waiting, stop := context.WithCancelCause(bounded)
	defer stop(nil)
	go func() {
		if err := a.likes.CheckEnds(waiting, missing); err != nil {
			stop(err)
		}
	}()
	for _, p := range missing {
		err := a.likes.Wait(waiting, p)
		var beyond *view.BeyondEndError
		switch {
		case err == nil:
		case errors.As(context.Cause(waiting), &beyond):
			return invalidMinOffset("%s", beyond)
		case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
			return a.notCovered(want)
		default:
			return err
		}
	}
	return nil
}

func (a *api) coverPost(q *request, want []wire.Position, post uint64) error {
	return a.cover(q, want, func() ([]int32, error) { return a.likes.PartitionsOf(post) })
}

func (a *api) missing(want []wire.Position) (missing []wire.Position, err error) {
	if len(want) == 0 {
		return nil, nil
	}
	partitions, err := a.likes.Partitions()
	if err != nil {
		return nil, err
	}
	for _, p := range want {
		if p.Partition >= partitions {
			return nil, invalidMinOffset("partition %d does not exist; the topic %s has %d, starting at 0",
				p.Partition, schema.TopicLikes, partitions)
		}
		if asOf, err := a.likes.AsOf(p.Partition); err != nil || asOf.Offset < p.Offset {
			missing = append(missing, p)
		}
	}
	return missing, nil
}

// invalidMinOffset rejects a min_offset that is well-formed but can never be covered.
func invalidMinOffset(format string, args ...any) error {
	wrong := problem.FieldError{Field: minOffset, Reason: query.OutOfRange, Detail: fmt.Sprintf(format, args...)}
	return refuse(problem.InvalidRequest(wrong))
}

// notCovered says how far the partitions of want are.
func (a *api) notCovered(want []wire.Position) error {
	no := unavailable(problem.New(http.StatusServiceUnavailable, "not-covered", "Event not yet visible",
		"the reader did not reach %s within %s (reader.max_wait); as_of is its position",
		minOffset, a.options.MaxWait))
	var partitions []int32
	for _, p := range want {
		partitions = append(partitions, p.Partition)
	}
	slices.Sort(partitions)
	for _, partition := range slices.Compact(partitions) {
		asOf, err := a.likes.AsOf(partition)
		if err != nil {
			return err
		}
		no.AsOf = append(no.AsOf, asOf)
	}
	return no
}
