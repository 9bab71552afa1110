// Package forget withdraws the reactions to posts, or those of users, through the log, and says what remains of them
// and where.
//
//	state table ──► who reacts (of those asked for) ──► bulk.Sender: UNLIKE ──► likes
//	     ▲                                                                       │
//	     └──────────────────────────── processors ◄──────────────────────────────┘
//
// It decides nothing itself: it sends events as any other, which the fold counts; so counts, rankings and copies follow
// as they follow any withdrawal, and doing it again does no harm. Then it reads on in the state table until the fold
// has come to its own events, and looks whether anything is left.
package forget

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"kudos/ops/progress"
	"kudos/producer/bulk"
	"kudos/schema"
	"kudos/stream/kafka"
)

// Kind is what the ids are of.
type Kind string

const (
	Post Kind = "post"
	User Kind = "user"
)

// Options of one run.
type Options struct {
	Kind Kind
	IDs  []uint64
	// DryRun only counts what would be withdrawn.
	DryRun bool
	// Layout is that of likes.
	Layout schema.Layout
	// Timeout bounds each wait for the processors to fold what was sent.
	Timeout time.Duration
	// Begin shows a step of the work, of so many units (0: nobody knows how many).
	Begin func(what, unit string, total int64) *progress.Phase
}

// DefaultOptions lack kind and ids.
func DefaultOptions() Options {
	return Options{Timeout: 5 * time.Minute, Begin: progress.Printer{}.Begin}
}

// Validate says what is wrong with the options.
func (o Options) Validate() error {
	if o.Timeout <= 0 {
		return errors.New("timeout must be above zero")
	}
	return nil
}

const (
	// maxRounds is how often reactions are withdrawn that came while the last ones were.
	maxRounds = 5
	// parallel is how many partitions are read concurrently.
	parallel = 4
)

// Reactions are likes and dislikes.
type Reactions struct {
	Likes    int64 `json:"likes"`
	Dislikes int64 `json:"dislikes"`
}

func (r Reactions) sum() int64 { return r.Likes + r.Dislikes }

func (r *Reactions) add(reaction schema.Reaction) {
	switch reaction {
	case schema.Liked:
		r.Likes++
	case schema.Disliked:
		r.Dislikes++
	}
}

// Report is how it went.
type Report struct {
	Kind   Kind     `json:"kind"`
	IDs    []string `json:"ids"` // text: a browser's numbers end at 2^53
	DryRun bool     `json:"dry_run"`
	// Withdrawn counts the withdrawals that Kafka has.
	Withdrawn Reactions `json:"withdrawn"`
	// Left are the current reactions, as far as the state table was read. After a dry run: what would be withdrawn.
	Left Reactions `json:"left"`
	// Rounds is how often withdrawals were sent: more than once if reactions came meanwhile.
	Rounds int `json:"rounds"`
	// Complete says that nothing is left, and that the fold has come to all that was sent.
	Complete bool `json:"complete"`
	// Remains is what there still is, and where; empty if it did not come to that.
	Remains []Remain `json:"remains"`
	Seconds float64  `json:"seconds"`
}

// forget is one run.
type forget struct {
	opts  Options
	kafka kafka.Options
	log   *slog.Logger

	cl     *kgo.Client
	topics map[string]kafka.TopicInfo
	parts  []*part // those of the state table that matter
}

// Run withdraws the reactions, by options that are valid. The report is true in any case; the error says why something
// may be left. It may be stopped by ctx at any point, and run again.
func Run(ctx context.Context, o Options, kafka kafka.Options, log *slog.Logger) (*Report, error) {
	began := time.Now()
	f := &forget{opts: o, kafka: kafka, log: log.With("component", "forget")}
	r := &Report{Kind: o.Kind, DryRun: o.DryRun, Remains: []Remain{}}
	for _, id := range o.IDs {
		r.IDs = append(r.IDs, strconv.FormatUint(id, 10))
	}
	err := f.run(ctx, r)
	r.Left = f.left()
	r.Seconds = time.Since(began).Seconds()
	if err != nil && ctx.Err() != nil && !errors.Is(err, context.Cause(ctx)) {
		err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	return r, err
}

func (f *forget) run(ctx context.Context, r *Report) (err error) {
	if f.cl, err = f.kafka.NewClient(f.log); err != nil {
		return err
	}
	defer f.cl.Close()
	if err := f.lookUpTopics(ctx); err != nil {
		return err
	}
	if err := f.scan(ctx); err != nil {
		return err
	}
	if !f.opts.DryRun {
		if err := f.withdrawAll(ctx, r); err != nil {
			return err
		}
		r.Complete = true
	}
	r.Remains, err = f.remains(ctx)
	return err
}

// lookUpTopics finds out where the posts live.
func (f *forget) lookUpTopics(ctx context.Context) error {
	f.topics = map[string]kafka.TopicInfo{}
	for _, name := range []string{schema.TopicLikes, schema.TopicState, schema.TopicDLT} {
		topics, err := kafka.LookUpTopics(ctx, f.cl, name)
		switch {
		case errors.Is(err, kerr.UnknownTopicOrPartition):
			return fmt.Errorf(`topic %s does not exist on %v; create the topics with "kudos topics apply"`,
				name, f.kafka.Brokers)
		case err != nil:
			return fmt.Errorf("ask Kafka at %v: %w", f.kafka.Brokers, err)
		}
		f.topics[name] = topics.ByName[name]
	}
	n := f.topics[schema.TopicLikes].Partitions
	if state := f.topics[schema.TopicState].Partitions; state != n {
		return fmt.Errorf("%s has %d partitions and %s has %d, so that nobody can tell where a post lives; "+
			`see "kudos topics check"`, schema.TopicLikes, n, schema.TopicState, state)
	}
	asked := newAsked(f.opts.Kind, f.opts.IDs)
	layout := f.opts.Layout
	layout.Partitions = n // as they are
	for p := range n {
		concerned := func(post uint64) bool { return slices.Contains(layout.Homes(post), p) }
		if f.opts.Kind == User || slices.ContainsFunc(f.opts.IDs, concerned) {
			f.parts = append(f.parts, &part{number: p, asked: asked, pairs: map[pairKey]known{}})
		}
	}
	return nil
}

// scan reads the state table up to its end as of now.
func (f *forget) scan(ctx context.Context) error {
	var total int64
	for _, p := range f.parts {
		if err := p.findBounds(ctx, f.cl); err != nil {
			return err
		}
		total += p.end - p.next
	}
	phase := f.opts.Begin("reading the state table", "records", total)
	defer phase.End()
	return f.eachPart(ctx, func(ctx context.Context, p *part) error {
		if p.next < p.end {
			err := p.read(ctx, f.cl, func(c kafka.LogChunk, read int64) (enough bool, err error) {
				phase.Add(read)
				return c.Next >= p.end, nil
			})
			if err != nil {
				return err
			}
		}
		return p.checkProgress(f.topics[schema.TopicLikes].ID, f.opts.Layout.UserBuckets())
	})
}

// withdrawAll withdraws what there is, waits until the fold has come to it, and looks again: reactions may have come
// meanwhile.
func (f *forget) withdrawAll(ctx context.Context, r *Report) error {
	for {
		if err := f.withdraw(ctx, r); err != nil {
			return err
		}
		if err := f.waitFolded(ctx); err != nil {
			return err
		}
		switch left := f.left().sum(); {
		case left == 0:
			return nil
		case r.Rounds == maxRounds:
			return fmt.Errorf("reactions keep coming: %d are there after %d rounds; stop what writes them, "+
				"then run this again", left, r.Rounds)
		}
	}
}

// left are the current reactions.
func (f *forget) left() (r Reactions) {
	for _, p := range f.parts {
		for _, k := range p.pairs {
			r.add(k.reaction)
		}
	}
	return r
}

// withdraw sends an UNLIKE for each current reaction.
func (f *forget) withdraw(ctx context.Context, r *Report) error {
	total := f.left().sum()
	if total == 0 {
		return nil // perhaps there are likes that are not folded yet
	}
	r.Rounds++
	sender, err := bulk.Connect(ctx, f.kafka, f.opts.Layout, f.log)
	if err != nil {
		return err
	}
	defer sender.Close()
	phase := f.opts.Begin("withdrawing", "reactions", total)
	defer phase.End()
	var mu sync.Mutex // of the counts in r and of the parts' want, while answers come
	for _, p := range f.parts {
		for key, k := range p.pairs {
			if ctx.Err() != nil || sender.Failure() != nil {
				break
			}
			if k.reaction == schema.NoReaction {
				continue
			}
			e := withdrawal(key, k.timeMs, time.Now().UnixMilli())
			sender.Send(&e, func(at bulk.Place, err error) error {
				if err != nil {
					return fmt.Errorf("withdrawing the reaction of user %d to post %d: not acknowledged by Kafka: %w",
						key.user, key.post, err)
				}
				mu.Lock()
				defer mu.Unlock()
				r.Withdrawn.add(k.reaction)
				p.want = max(p.want, at.Offset+1)
				phase.Add(1)
				return nil
			})
		}
	}
	if err := sender.Flush(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return fmt.Errorf("stopped after %d of %d withdrawals, run this again: %w",
			r.Withdrawn.sum(), total, context.Cause(ctx))
	}
	return nil
}

// withdrawal is the event that takes a reaction back. It is later than the reaction's own, whose time may be ahead of
// this machine's clock. Its region is not given: the record that stays needs none.
func withdrawal(key pairKey, reactionMs, nowMs int64) schema.Event {
	return schema.Event{
		PostID: key.post, UserID: key.user, Action: schema.Unlike,
		TimeMs: max(nowMs, reactionMs+1), Region: schema.UnknownRegion,
	}
}

var errPatience = errors.New("the time for the wait is over")

// waitFolded reads on in the state table until it has all that was sent, and all that was in likes when this run began.
func (f *forget) waitFolded(ctx context.Context) error {
	var total int64
	for _, p := range f.parts {
		total += max(0, p.want-p.progress.NextOffset)
	}
	phase := f.opts.Begin("waiting for the processors", "events", total)
	defer phase.End()
	bounded, cancel := context.WithTimeoutCause(ctx, f.opts.Timeout, errPatience)
	defer cancel()
	err := f.eachPart(bounded, func(ctx context.Context, p *part) error { return p.awaitFold(ctx, f.cl, phase) })
	if err == nil || ctx.Err() != nil || !errors.Is(context.Cause(bounded), errPatience) {
		return err
	}
	for _, p := range f.parts {
		if p.progress.NextOffset < p.want {
			return fmt.Errorf("waited %s for the processors (--timeout): %s/%d is folded up to offset %d "+
				"and not yet up to %d; what was withdrawn is in Kafka and will be counted. "+
				`See that "kudos processor" runs (/readyz and its log tell what holds it up), `+
				"then run this again to see the end of it",
				f.opts.Timeout, schema.TopicLikes, p.number, p.progress.NextOffset, p.want)
		}
	}
	return err // the end of the log was not reached: Kafka itself is away
}

// eachPart does something for the partitions, a few concurrently.
func (f *forget) eachPart(ctx context.Context, do func(context.Context, *part) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for _, p := range f.parts {
		g.Go(func() error { return do(ctx, p) })
	}
	return g.Wait()
}
