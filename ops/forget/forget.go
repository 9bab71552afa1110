// Package forget withdraws reactions to given posts or of given users through the log, and reports what remains where.
//
//	state table ──► matching reactions ──► bulk.Sender: UNLIKE ──► likes
//	     ▲                                                           │
//	     └────────────────────── processors ◄────────────────────────┘
//
// It writes nothing but ordinary events, which the fold counts. Counts, rankings and local views therefore follow as
// after any withdrawal, and running it again does no harm. It then continues to read the state table until the fold has
// reached its events, and checks whether anything is left.
package forget

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/ops/follow"
	"kudos/ops/progress"
	"kudos/producer/bulk"
	"kudos/schema"
	"kudos/stream/kafka"
)

// Kind is the kind of the ids.
type Kind string

const (
	Post Kind = "post"
	User Kind = "user"
)

// Options of one run.
type Options struct {
	Kind    Kind
	IDs     []uint64
	DryRun  bool          // only count what would be withdrawn
	Layout  schema.Layout // of likes
	Timeout time.Duration // how long the processors may fold nothing of what was sent
	// Begin shows the progress of a step with total units of work, or 0 if unknown.
	Begin func(what, unit string, total int64) *progress.Phase
}

// DefaultOptions lack Kind and IDs.
func DefaultOptions() Options {
	return Options{Timeout: 5 * time.Minute, Begin: progress.Printer{}.Begin}
}

// Validate reports invalid options.
func (o Options) Validate() error {
	if o.Timeout <= 0 {
		return errors.New("timeout must be above zero")
	}
	return nil
}

const maxRounds = 5 // bounds how often reactions are withdrawn that arrived during the previous round

func sum(c schema.Counts) int64 { return c.Likes + c.Dislikes }

// Report is the outcome of a run.
type Report struct {
	Kind      Kind          `json:"kind"`
	IDs       []string      `json:"ids"` // strings, because numbers in browsers are exact only up to 2^53
	DryRun    bool          `json:"dry_run"`
	Withdrawn schema.Counts `json:"withdrawn"` // withdrawals that Kafka has acknowledged
	// Left are the current reactions in the state table as read so far; in a dry run, what would be withdrawn.
	Left     schema.Counts `json:"left"`
	Rounds   int           `json:"rounds"`   // how often withdrawals were sent; above 1 if reactions arrived meanwhile
	Complete bool          `json:"complete"` // nothing is left, and the fold has reached everything that was sent
	Remains  []Remain      `json:"remains"`  // what still exists, and where; empty if the run ended earlier
	Seconds  float64       `json:"seconds"`
}

type forget struct {
	opts  Options
	kafka kafka.Options
	log   *slog.Logger

	cl     *kgo.Client
	topics kafka.Topics
	parts  []*part // the relevant partitions of the state table
	follow []*follow.Partition
}

// Run withdraws the reactions. The options must be valid. The report is accurate even on an error, which says why
// something may be left. Run may be stopped by ctx at any point, and run again.
func Run(ctx context.Context, o Options, kafka kafka.Options, log *slog.Logger) (*Report, error) {
	began := time.Now()
	f := &forget{opts: o, kafka: kafka, log: log.With("component", "forget")}
	r := &Report{Kind: o.Kind, DryRun: o.DryRun, Remains: []Remain{}}
	r.IDs = strings.Fields(strings.Trim(fmt.Sprint(o.IDs), "[]"))
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

// lookUpTopics looks up the topics and the partitions that own the posts.
func (f *forget) lookUpTopics(ctx context.Context) (err error) {
	if f.topics, err = follow.LookUp(ctx, f.cl, f.kafka, schema.TopicDLT); err != nil {
		return err
	}
	n := f.topics.ByName[schema.TopicLikes].Partitions
	asked := newAsked(f.opts.Kind, f.opts.IDs)
	layout := f.opts.Layout
	layout.Partitions = n // the actual number
	for p := range n {
		concerned := func(post uint64) bool { return slices.Contains(layout.PartitionsOf(post), p) }
		if f.opts.Kind == User || slices.ContainsFunc(f.opts.IDs, concerned) {
			part := &part{asked: asked, pairs: map[pairKey]known{}}
			part.Number, part.Keep = p, part.keep
			f.parts, f.follow = append(f.parts, part), append(f.follow, &part.Partition)
		}
	}
	return nil
}

// scan reads the state table up to its current end.
func (f *forget) scan(ctx context.Context) error {
	return follow.Scan(ctx, f.cl, f.follow, f.opts.Begin, func(p *follow.Partition) error {
		return p.Check(f.topics.ByName[schema.TopicLikes].ID, f.opts.Layout.UserBuckets())
	})
}

// withdrawAll withdraws the reactions, waits until the withdrawals are folded, and repeats if others arrived meanwhile.
func (f *forget) withdrawAll(ctx context.Context, r *Report) error {
	for {
		if err := f.withdraw(ctx, r); err != nil {
			return err
		}
		if err := f.waitFolded(ctx); err != nil {
			return err
		}
		switch left := sum(f.left()); {
		case left == 0:
			return nil
		case r.Rounds == maxRounds:
			return fmt.Errorf("new reactions keep arriving: %d are left after %d rounds; stop their writers, "+
				"then run this again", left, r.Rounds)
		}
	}
}

func (f *forget) left() (c schema.Counts) {
	for _, p := range f.parts {
		for _, k := range p.pairs {
			c = c.Plus(k.reaction.Counts())
		}
	}
	return c
}

// withdraw sends an UNLIKE for each current reaction.
func (f *forget) withdraw(ctx context.Context, r *Report) error {
	total := sum(f.left())
	if total == 0 {
		return nil // there may be likes that are not folded yet
	}
	r.Rounds++
	sender, err := bulk.Connect(ctx, f.kafka, f.opts.Layout, f.log)
	if err != nil {
		return err
	}
	defer sender.Close()
	phase := f.opts.Begin("withdrawing", "reactions", total)
	defer phase.End()
	var mu sync.Mutex // guards the counts in r and each part's want against concurrent acknowledgments
	for _, p := range f.parts {
		for key, k := range p.pairs {
			if ctx.Err() != nil || sender.Failure() != nil {
				break
			}
			if k.reaction == schema.NoReaction {
				continue
			}
			e := withdrawal(key, k.timeMs, time.Now().UnixMilli())
			sender.Send(&e, func(rec *kgo.Record, err error) error {
				if err != nil {
					return fmt.Errorf("withdrawing the reaction of user %d to post %d: not acknowledged by Kafka: %w",
						key.user, key.post, err)
				}
				mu.Lock()
				defer mu.Unlock()
				r.Withdrawn = r.Withdrawn.Plus(k.reaction.Counts())
				p.Want = max(p.Want, rec.Offset+1)
				phase.Add(1)
				return nil
			})
		}
	}
	if err := sender.Flush(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return fmt.Errorf("stopped after %d of %d withdrawals; run this again: %w",
			sum(r.Withdrawn), total, context.Cause(ctx))
	}
	return nil
}

// withdrawal is the event that withdraws a reaction. It is later than the reaction, whose time may be ahead of this
// machine's clock. It has no region, which the remaining record does not need.
func withdrawal(key pairKey, reactionMs, nowMs int64) schema.Event {
	return schema.Event{PostID: key.post, UserID: key.user, Action: schema.Unlike,
		TimeMs: max(nowMs, reactionMs+1), Region: schema.UnknownRegion}
}

// waitFolded reads the state table until it covers all that was sent, and all that was in likes when this run started.
func (f *forget) waitFolded(ctx context.Context) error {
	var total int64
	for _, p := range f.parts {
		total += max(0, p.Want-p.Progress.NextOffset)
	}
	phase := f.opts.Begin("waiting for the processors", "events", total)
	defer phase.End()
	return follow.Await(ctx, f.cl, f.follow, f.opts.Timeout, phase)
}
