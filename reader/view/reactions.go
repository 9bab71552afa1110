package view

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"

	"kudos/reader/wire"
	"kudos/schema"
	"kudos/stream"
	"kudos/stream/kafka"
	"kudos/stream/kafka/tracing"
	"kudos/stream/store"
)

// Reactions is the lane of who likes what, from the state table. A reader keeps all partitions, or its share of them.
type Reactions struct {
	*Lane
	replicas *stream.Replicas // nil: it keeps all
	holders  atomic.Pointer[holders]
}

type holders struct {
	of         [][]stream.Holder // by partition
	generation int32
}

func newReactions(opts Options, owners *owners, kafka kafka.Options, log *slog.Logger) *Reactions {
	r := &Reactions{}
	part := func(partition int32) stream.Copy { return &reactionsCopy{laneCopy: newLaneCopy(r.Lane, partition)} }
	r.Lane = opts.newLane(schema.TopicState, reactionsDir, actionBegin, owners, kafka, part, log)
	r.holders.Store(&holders{})
	if share := opts.Share; share.Replicas > 0 {
		r.replicas = stream.NewReplicas(stream.ReplicaOptions{
			Kafka: kafka, Group: schema.GroupReactions, Topic: schema.TopicState, Replicas: share.Replicas,
			ProcessID: stream.ProcessID(opts.StateDir), Address: share.Address, Zone: share.Zone,
			SessionTimeout: share.SessionTimeout,
			Ready:          r.view.Readable,
			Assign: func(ctx context.Context, own []int32) error {
				return r.view.Keep(ctx, func(p int32) bool { return slices.Contains(own, p) })
			},
			Changed: func(of [][]stream.Holder, generation int32) { r.holders.Store(&holders{of, generation}) },
		}, log)
		r.view.KeepNone() // until the group assigns some
	}
	return r
}

const actionBegin = "kudos topics apply"

// Ready returns nil when all partitions that it keeps can be read; if they are shared, when others can be asked.
func (r *Reactions) Ready() error {
	if r.replicas == nil {
		return r.Lane.Ready()
	}
	if err := r.replicas.Err(); err != nil {
		return fmt.Errorf("waiting for group %s to share out the reactions: %w", schema.GroupReactions, err)
	}
	return nil
}

func (r *Reactions) run(ctx context.Context, cl *kgo.Client) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return r.Lane.run(ctx, cl) })
	if r.replicas != nil {
		g.Go(func() error { return r.replicas.Run(ctx) })
	}
	return g.Wait()
}

// Holders returns the addresses of the readers that keep a partition, those that are ready first, and the generation
// of the group that says so.
func (r *Reactions) Holders(partition int32) (addresses []string, generation int32) {
	h := r.holders.Load()
	if partition >= 0 && int(partition) < len(h.of) {
		for _, holder := range h.of[partition] {
			addresses = append(addresses, holder.Address)
		}
	}
	return addresses, h.generation
}

// PartitionsOf returns the partitions that have a post's reactions, in order; see Lane.
func (r *Reactions) PartitionsOf(post uint64) ([]int32, error) {
	now, err := r.places()
	if err != nil {
		return nil, err
	}
	return now.append(nil, post), nil
}

// PartitionsOfUser is PartitionsOf for one user's reaction.
func (r *Reactions) PartitionsOfUser(post, user uint64) ([]int32, error) {
	now, err := r.places()
	if err != nil {
		return nil, err
	}
	return now.appendOfUser(nil, post, user), nil
}

func (r *Reactions) places() (places, error) {
	n, err := r.view.Partitions()
	now := r.owners.now(n)
	if err == nil && now.present == nil {
		err = &NotReadyError{Topic: schema.TopicCounts, Partition: -1, Behind: -1, Action: actionComplete,
			Reason: "the partition layout is not known yet"}
	}
	return now, err
}

// AwaitLayout waits until a partition has all reactions that it owns by a layout, or returns ctx's error.
func (r *Reactions) AwaitLayout(ctx context.Context, partition int32, want Layout) error {
	return r.await(ctx, partition, func(p *schema.Progress) bool {
		return p.Layouts > want.Number || p.Layouts == want.Number && !(want.Settled && p.Migrating)
	})
}

// Of returns a user's reactions to posts, as far as a partition has them, in the requested order. The zero Reaction is
// none.
func (r *Reactions) Of(partition int32, user uint64, posts []uint64) (list []Reaction, asOf wire.Position, err error) {
	list = make([]Reaction, len(posts))
	order := make([]int, len(posts)) // by post: one iterator is several times as fast as single look-ups
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(posts[a], posts[b]) })
	var key [17]byte
	asOf, err = r.read(partition, func(reader *store.Reader) error {
		return reader.Lookup(len(posts),
			func(i int) []byte { return appendReactionKey(key[:0], posts[order[i]], user) },
			func(i int, value []byte) (err error) {
				list[order[i]], err = decodeReaction(value)
				return err
			})
	})
	return list, asOf, err
}

// Page is a page of likers, in order. Next is the user after whom the next one begins, 0 on the last.
type Page struct {
	Likers []wire.Liker
	Next   uint64
}

// Likers returns up to limit users above after whose likes of a post count, as far as a partition has them. A page may
// have fewer users and not be the last.
func (r *Reactions) Likers(partition int32, post, after uint64, limit int) (page Page, asOf wire.Position, err error) {
	asOf, err = r.read(partition, func(reader *store.Reader) (err error) {
		page, err = likers(reader, post, after, limit)
		return err
	})
	return page, asOf, err
}

// MergePages returns the page of a post of which each partition has returned one.
func MergePages(pages []Page, limit int) (page Page) {
	if len(pages) == 1 {
		return pages[0]
	}
	for _, p := range pages {
		if p.Next != 0 && (page.Next == 0 || p.Next < page.Next) {
			page.Next = p.Next // after it, that partition may have more
		}
		page.Likers = append(page.Likers, p.Likers...)
	}
	slices.SortFunc(page.Likers, func(a, b wire.Liker) int { return cmp.Compare(a.UserID, b.UserID) })
	if next := page.Next; next != 0 {
		page.Likers = slices.DeleteFunc(page.Likers, func(l wire.Liker) bool { return l.UserID > next })
	}
	if len(page.Likers) > limit {
		page.Likers = page.Likers[:limit]
		page.Next = page.Likers[limit-1].UserID
	}
	return page
}

const scanFactor = 20 // bounds the reactions scanned per page, as a multiple of limit: nearly all may dislike the post

func likers(r *store.Reader, post, after uint64, limit int) (page Page, err error) {
	from := appendReactionKey(nil, post, after)
	to := append(appendReactionKey(nil, post, ^uint64(0)), 0) // after the largest user
	looked, last := 0, uint64(0)
	err = r.Scan(from, to, func(key, value []byte) (bool, error) {
		if bytes.Equal(key, from) { // the last of the previous page
			return true, nil
		}
		if len(page.Likers) == limit || looked == scanFactor*limit {
			page.Next = last
			return false, nil
		}
		looked++
		last = userOf(key)
		reaction, err := decodeReaction(value)
		if err == nil && reaction.Reaction == schema.Liked && !reaction.Void {
			since, region := wire.Millis(reaction.SinceMs), reaction.Region.String()
			page.Likers = append(page.Likers, wire.Liker{UserID: last, Since: since, Region: region})
		}
		return true, err
	})
	return page, err
}

// reactionsCopy is one partition of Reactions.
type reactionsCopy struct {
	laneCopy
	spans []trace.Span // of the traced likes that Apply stages
}

// Apply stages the reactions. (A record without a value is from `kudos rebuild --from-events`, which deletes what likes
// does not have.)
func (c *reactionsCopy) Apply(_ *store.Store, w *store.Write, records []*kgo.Record) (err error) {
	c.stage()
	c.spans = tracing.Follow(records, "reactions", time.Now())
	var key, value []byte
	for _, rec := range records {
		if len(rec.Key) == schema.PairKeySize {
			key, value, err = applyPair(w, rec, key[:0], value[:0])
		} else {
			err = c.apply(w, rec)
		}
		if err != nil {
			return fmt.Errorf("record at offset %d: %w", rec.Offset, err)
		}
	}
	return nil
}

// applyPair stages one reaction. It returns key and value so that their memory can be reused.
func applyPair(w *store.Write, rec *kgo.Record, key, value []byte) (k, v []byte, err error) {
	var pair schema.Pair
	if rec.Value != nil {
		if err := schema.DecodePair(rec.Value, &pair); err != nil {
			return key, value, err
		}
	}
	post, user, _ := schema.ParsePairKey(rec.Key)
	key = appendReactionKey(key, post, user)
	if pair.Reaction == schema.NoReaction {
		return key, value, w.Set(key, nil)
	}
	value = appendReaction(value, &pair)
	return key, value, w.Set(key, value)
}

// Applied makes the new state visible and wakes whoever waits for it.
func (c *reactionsCopy) Applied() {
	c.applied()
	tracing.End(c.spans, nil)
}

// Published has nobody to notify.
func (c *reactionsCopy) Published(bool) {}
