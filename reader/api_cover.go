package reader

import (
	"cmp"
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

// coverOne waits until a place is covered which may name no partition: then it is in the
// only one of homes.
func (a *api) coverOne(ctx context.Context, held *slot, want []wire.Position, homes func() ([]int32, error)) error {
	if len(want) == 1 && want[0].Partition == someHome {
		partitions, err := homes()
		if err != nil {
			return err
		}
		if len(partitions) > 1 {
			return invalid(problem.FieldError{Field: minOffset, Reason: query.OutOfRange,
				Detail: fmt.Sprintf("names no partition, and the post is in %d of them (it has user buckets): give partition:offset", len(partitions))})
		}
		want[0].Partition = partitions[0]
	}
	return a.cover(ctx, held, want)
}

// coverPost is coverOne of an event of the post.
func (a *api) coverPost(ctx context.Context, held *slot, post uint64, want []wire.Position) error {
	return a.coverOne(ctx, held, want, func() ([]int32, error) { return a.likes.Homes(post) })
}

// cover waits, MaxWait at most, until the copy is as of these positions or later. It does not wait for what is
// beyond the end of likes.
func (a *api) cover(ctx context.Context, held *slot, want []wire.Position) error {
	missing, err := a.missing(want)
	if err != nil || len(missing) == 0 {
		return err
	}
	if err := a.wait(held); err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, a.options.MaxWait)
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
			return invalid(problem.FieldError{Field: minOffset, Reason: query.OutOfRange, Detail: beyond.Error()})
		case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
			return a.notCovered(want)
		default:
			return err
		}
	}
	return nil
}

// missing is what of these positions the copy is not as of yet.
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
			return nil, invalid(problem.FieldError{Field: minOffset, Reason: query.OutOfRange,
				Detail: fmt.Sprintf("partition %d does not exist; the topic %s has %d, from 0 on",
					p.Partition, schema.TopicLikes, partitions)})
		}
		if asOf, err := a.likes.AsOf(p.Partition); err != nil || asOf.Offset < p.Offset {
			missing = append(missing, p)
		}
	}
	return missing, nil
}

// notCovered says how far the partitions are that were waited for.
func (a *api) notCovered(want []wire.Position) error {
	no := unavailable(problem.New(http.StatusServiceUnavailable, "not-covered", "The event is not here yet",
		"the reader has not come to %s within %s (reader.max_wait); as_of is how far it is", minOffset, a.options.MaxWait))
	want = slices.Clone(want)
	slices.SortFunc(want, func(x, y wire.Position) int { return cmp.Compare(x.Partition, y.Partition) })
	want = slices.CompactFunc(want, func(x, y wire.Position) bool { return x.Partition == y.Partition })
	for _, p := range want {
		asOf, err := a.likes.AsOf(p.Partition)
		if err != nil {
			return err
		}
		no.AsOf = append(no.AsOf, asOf)
	}
	return no
}
