package reader

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"kudos/httpserver/problem"
	"kudos/reader/query"
	"kudos/reader/view"
	"kudos/reader/wire"
	"kudos/schema"
	"kudos/stream/kafka"
)

// This file parses and checks requests, and waits until a view covers min_offset.

const (
	minOffset     = "min_offset"
	maxOffset     = 1<<63 - 2 // of an event, so that the offset after it fits too
	somePartition = -1        // of an event that does not name one

	maxBody   = 256 << 10 // enough for MaxPosts ids and as many offsets, with white space
	maxBodies = 256       // unfinished ones: they use no more memory than 256 complete ones (64 MiB)
)

// refusal returns everything that is wrong with the request, or nil.
func (q *request) refusal() error {
	if wrong := q.Wrong(); len(wrong) > 0 {
		return refuse(problem.InvalidRequest(wrong...))
	}
	return nil
}

// minOffset parses the position of an event that the response must cover. It returns the smallest as_of that covers it,
// or none if none is required. With one post, the partition may be omitted.
func (q *request) minOffset() []wire.Position {
	s := q.Value(minOffset)
	if s == "" || strings.Contains(s, ":") && !strings.Contains(s, ",") {
		return q.minOffsets()
	}
	n, err := strconv.ParseUint(s, 10, 63)
	if err != nil || n > maxOffset {
		q.Add(problem.NotANumber(minOffset, s))
		return nil
	}
	return []wire.Position{{Partition: somePartition, Offset: int64(n) + 1}}
}

// minOffsets is minOffset for several events.
func (q *request) minOffsets() (covered []wire.Position) {
	s := q.Value(minOffset)
	if s == "" {
		return nil
	}
	if n := strings.Count(s, ",") + 1; n > wire.MaxPosts {
		q.Refuse(minOffset, query.TooMany, "has %d items; at most %d", n, wire.MaxPosts)
		return nil
	}
	for place := range strings.SplitSeq(s, ",") {
		p, ok := wire.ParsePosition(place)
		if !ok || p.Offset > maxOffset {
			q.Refuse(minOffset, string(schema.Undecodable), "%.40q is not partition:offset", place)
			return nil
		}
		p.Offset++
		covered = append(covered, p)
	}
	return covered
}

// readJSON reads the body of a POST and takes the request's slot.
func (a *api) readJSON(q *request) ([]byte, error) {
	if err := q.refusal(); err != nil {
		return nil, err
	}
	if p := problem.RequireMediaType(q.Request, "application/json"); p != nil {
		return nil, refuse(p)
	}
	raw, err := a.bodies.Read(q.w, q.Request, q.client)
	if err != nil {
		return nil, refuse(problem.UnreadBody(err, maxBody))
	}
	return raw, a.work(q)
}

// readBody parses the posts and min_offset in the body of a POST, up to the first error, and returns all fields.
func (q *request) readBody(raw []byte, more ...string) (fields map[string]json.RawMessage, covered []wire.Position) {
	fields, wrong := problem.ParseFields(raw, "body", append([]string{query.PostIDs, minOffset}, more...)...)
	if wrong != nil {
		q.Add(wrong)
		return nil, nil
	}
	q.posts = q.readIDs(fields[query.PostIDs])
	if fields[minOffset] == nil || len(q.Wrong()) > 0 {
		return fields, nil
	}
	return fields, q.readPositions(fields[minOffset])
}

// readID parses an id in a body: a number or a string.
func (q *request) readID(name string, raw json.RawMessage) uint64 {
	if raw == nil {
		q.Refuse(name, problem.Empty, "is missing")
		return 0
	}
	id, wrong := problem.ParseID(name, unquoted(string(raw)))
	q.Add(wrong)
	return id
}

func unquoted(item string) string {
	item = strings.TrimSpace(item)
	if n := len(item); n >= 2 && item[0] == '"' && item[n-1] == '"' {
		var text string
		if strings.Contains(item, `\`) && json.Unmarshal([]byte(item), &text) == nil {
			return text
		}
		item = item[1 : n-1] // a string with a comma is not an id, whole or in parts
	}
	return item
}

// readIDs parses a JSON array of ids, each a number or a string; raw is valid JSON.
func (q *request) readIDs(raw json.RawMessage) []uint64 {
	list, isArray := bytes.CutPrefix(raw, []byte("["))
	if !isArray {
		q.Refuse(query.PostIDs, string(schema.Undecodable), "must be an array of post ids")
		return nil
	}
	text := strings.TrimSpace(string(list[:len(list)-1]))
	if text == "" {
		q.Refuse(query.PostIDs, problem.Empty, "names no post")
		return nil
	}
	return q.IDs(q.posts[:0], text, wire.MaxPosts, unquoted)
}

func (q *request) readPositions(raw json.RawMessage) []wire.Position {
	var places []struct {
		Partition *int32 `json:"partition"`
		Offset    *int64 `json:"offset"`
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&places); err != nil || places == nil {
		q.Refuse(minOffset, string(schema.Undecodable),
			`must be an array of positions such as {"partition":3,"offset":1018}`)
		return nil
	}
	if len(places) > wire.MaxPosts {
		q.Refuse(minOffset, query.TooMany, "has %d items; at most %d", len(places), wire.MaxPosts)
		return nil
	}
	covered := make([]wire.Position, len(places))
	for i, p := range places {
		if p.Partition == nil || p.Offset == nil || *p.Partition < 0 || *p.Offset < 0 || *p.Offset > maxOffset {
			q.Refuse(minOffset, string(schema.Undecodable),
				"item %d is not a position: it needs a partition and an offset, each at least 0", i+1)
			return nil
		}
		covered[i] = wire.Position{Partition: *p.Partition, Offset: *p.Offset + 1}
	}
	return covered
}

// cover rejects an invalid request, and waits, at most MaxWait, until the lane covers these positions. It does not wait
// for a position beyond the end of likes. A position without a partition is in the only one that owners returns.
func (a *api) cover(q *request, of lane, want []wire.Position, owners func() ([]int32, error)) error {
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
	if err := a.awaitPartitions(q, of, want); err != nil {
		return err
	}
	var missing []wire.Position
	for _, p := range want {
		if asOf, err := of.AsOf(p.Partition); err != nil || asOf.Offset < p.Offset {
			missing = append(missing, p)
		}
	}
	return a.await(q, of, want, missing, of.Wait)
}

// awaitPartitions waits until the lane knows the partitions of these positions, which may just have been added.
func (a *api) awaitPartitions(q *request, of lane, want []wire.Position) error {
	if len(want) == 0 {
		return nil
	}
	partitions, err := of.Partitions()
	if err != nil {
		return err
	}
	added := slices.DeleteFunc(slices.Clone(want), func(p wire.Position) bool { return p.Partition < partitions })
	return a.await(q, of, want, added, func(ctx context.Context, p wire.Position) error {
		for ; partitions <= p.Partition && err == nil; partitions, err = of.Partitions() {
			if !kafka.Sleep(ctx, 20*time.Millisecond) {
				return ctx.Err()
			}
		}
		return err
	})
}

// await waits, at most MaxWait, for each of the missing positions.
func (a *api) await(q *request, of lane, want, missing []wire.Position, wait func(context.Context, wire.Position) error,
) error {
	if len(missing) == 0 {
		return nil
	}
	if err := q.take(a.waiting); err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(q.Request.Context(), a.options.MaxWait)
	defer cancel()
	waiting, stop := context.WithCancelCause(bounded)
	defer stop(nil)
	go func() {
		if err := a.checkEnds(waiting, missing); err != nil {
			stop(err)
		}
	}()
	for _, p := range missing {
		err := wait(waiting, p)
		var beyond *view.BeyondEndError
		switch {
		case err == nil:
		case errors.As(context.Cause(waiting), &beyond):
			return invalidMinOffset("%s", beyond)
		case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
			return a.notCovered(of, want)
		default:
			return err
		}
	}
	return nil
}

// coverPosts covers the counts of posts, and returns what it waited for.
func (a *api) coverPosts(q *request, want []wire.Position, posts ...uint64) ([]wire.Position, error) {
	owners := ownersOf(posts, a.counts.PartitionsOf)
	want, err := a.withForwarded(q, want, owners)
	if err != nil {
		return nil, err
	}
	return want, a.cover(q, a.counts, want, owners)
}

// ownersOf returns the partitions that have posts, by what says it of one.
func ownersOf(posts []uint64, of func(post uint64) ([]int32, error)) func() ([]int32, error) {
	return func() (all []int32, err error) {
		for _, post := range posts {
			owners, err := of(post)
			if err != nil {
				return nil, err
			}
			all = append(all, owners...)
		}
		slices.Sort(all)
		return slices.Compact(all), nil
	}
}

// withForwarded adds to the positions that a request must cover what covers their events if these were forwarded: once
// the counts of an event's partition cover it, it has reached its owner, by a layout that is known here, and what the
// owner has up to now includes it. An event in one of several owners was not, unless the layout has ever changed.
func (a *api) withForwarded(q *request, want []wire.Position, owners func() ([]int32, error)) ([]wire.Position, error) {
	if err := a.cover(q, a.counts, want, owners); err != nil || len(want) == 0 {
		return want, err
	}
	now, err := owners()
	if err != nil {
		return nil, err
	}
	elsewhere := func(p wire.Position) bool { return p.Partition != now[0] }
	if len(now) == 1 && !slices.ContainsFunc(want, elsewhere) || len(now) > 1 && a.counts.Layout().Number == 0 {
		return want, nil
	}
	bounded, cancel := context.WithTimeout(q.Request.Context(), a.options.MaxWait)
	defer cancel()
	ends := a.ends(bounded, now)
	if ends == nil {
		return nil, a.notCovered(a.counts, want)
	}
	return append(want, ends...), nil
}

// invalidMinOffset rejects a min_offset that is well-formed but can never be covered.
func invalidMinOffset(format string, args ...any) error {
	wrong := problem.FieldError{Field: minOffset, Reason: query.OutOfRange, Detail: fmt.Sprintf(format, args...)}
	return refuse(problem.InvalidRequest(wrong))
}

// notCovered says how far the partitions of want are.
func (a *api) notCovered(of lane, want []wire.Position) error {
	no := unavailable(problem.New(http.StatusServiceUnavailable, "not-covered", "Event not yet visible",
		"the reader did not reach %s within %s (reader.max_wait); as_of is its position",
		minOffset, a.options.MaxWait))
	var partitions []int32
	for _, p := range want {
		partitions = append(partitions, p.Partition)
	}
	slices.Sort(partitions)
	for _, partition := range slices.Compact(partitions) {
		asOf, err := of.AsOf(partition)
		if err != nil {
			return err
		}
		no.AsOf = append(no.AsOf, asOf)
	}
	return no
}
