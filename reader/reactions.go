package reader

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"kudos/httpserver/problem"
	"kudos/reader/query"
	"kudos/reader/view"
	"kudos/reader/wire"
	"kudos/schema"
	"kudos/stream"
)

// This file answers questions about reactions. Each partition that is concerned is asked by itself: here, if this
// reader keeps it, otherwise at a reader that does.

const (
	pageSize, pageToken = "page_size", "page_token"
	defaultPageSize     = 100
	maxPageSize         = 1000

	userID = "user_id"
)

var errNoReactions error = refuse(problem.New(http.StatusNotFound, "no-reactions", "This reader keeps counts only",
	"this reader does not keep reactions (reader.reactions is false)"))

// question is what one partition is asked: a user's reactions to posts, or, with a Limit, a page of who likes a post.
type question struct {
	User    uint64      `json:"user_id,string,omitempty"`
	Posts   []uint64    `json:"post_ids"`
	After   uint64      `json:"after,string,omitempty"`
	Limit   int         `json:"limit,omitempty"`
	Covered int64       `json:"covered,omitempty"` // the answer must reflect all events before this offset
	Layout  view.Layout `json:"layout"`

	places []int // of Posts, in the request
}

// partAnswer is a partition's answer to a question.
type partAnswer struct {
	Reactions []partReaction `json:"reactions,omitempty"` // in the order of Posts
	Likers    []partLiker    `json:"likers,omitempty"`
	Next      uint64         `json:"next,string,omitempty"` // the user after whom the next page begins; 0: the last
	AsOf      wire.Position  `json:"as_of"`
}

type partReaction struct {
	Reaction schema.Reaction `json:"reaction"`
	SinceMs  int64           `json:"since_ms"`
	Region   string          `json:"region"`
}

type partLiker struct {
	UserID  uint64 `json:"user_id,string"`
	SinceMs int64  `json:"since_ms"`
	Region  string `json:"region"`
}

func (a *api) getReaction(q *request) (reply, error) {
	post, user, covered := q.PathID("post_id"), q.PathID(userID), q.minOffset()
	list, _, err := a.userReactions(q, user, []uint64{post}, covered)
	if err != nil {
		return reply{}, err
	}
	body := wire.UserReaction{PostID: post, UserID: user, AsOf: list[0].asOf}
	body.Reaction, body.Since, body.Region = list[0].shown()
	return encode(q, private, body)
}

func (a *api) getManyReactions(q *request) (reply, error) {
	raw, err := a.readJSON(q)
	if err != nil {
		return reply{}, err
	}
	fields, covered := q.readBody(raw, userID)
	user := q.readID(userID, fields[userID])
	list, asOf, err := a.userReactions(q, user, q.posts, covered)
	if err != nil {
		return reply{}, err
	}
	body := wire.UserReactions{UserID: user, Reactions: make([]wire.PostReaction, len(list)), AsOf: asOf}
	for i, r := range list {
		body.Reactions[i].PostID = q.posts[i]
		body.Reactions[i].Reaction, body.Reactions[i].Since, body.Reactions[i].Region = r.shown()
	}
	return encode(q, private, body)
}

func (a *api) listLikers(q *request) (reply, error) {
	post, limit, covered := q.PathID("post_id"), q.Number(pageSize, maxPageSize, defaultPageSize), q.minOffset()
	var from cursor
	if token := q.Value(pageToken); token != "" && post != 0 {
		var wrong string
		if from, wrong = parsePageToken(token, post); wrong != "" {
			q.Refuse(pageToken, string(schema.Undecodable), "%s; start again without it", wrong)
		}
	}
	owners := func() ([]int32, error) { return a.reactions.PartitionsOf(post) }
	covered, err := a.forwardedReactions(q, covered, owners)
	if err != nil {
		return reply{}, err
	}
	questions, err := a.route(q, func() (map[int32]*question, error) {
		owners, err := owners()
		questions := map[int32]*question{}
		for _, p := range owners {
			questions[p] = &question{Posts: []uint64{post}, After: from.after, Limit: limit}
		}
		return questions, err
	}, covered)
	if err != nil {
		return reply{}, err
	}
	if of := questions[from.asOf.Partition]; of != nil { // another reader must not be behind the previous page
		of.Covered = max(of.Covered, from.asOf.Offset)
	}
	answers, err := a.ask(q, questions)
	if err != nil {
		return reply{}, err
	}
	var pages []view.Page
	partitions := slices.Sorted(maps.Keys(answers))
	for _, p := range partitions {
		page := view.Page{Next: answers[p].Next}
		for _, l := range answers[p].Likers {
			liker := wire.Liker{UserID: l.UserID, Since: wire.Millis(l.SinceMs), Region: l.Region}
			page.Likers = append(page.Likers, liker)
		}
		pages = append(pages, page)
	}
	page, asOf := view.MergePages(pages, limit), answers[partitions[0]].AsOf
	body := wire.Likers{PostID: post, Likers: append([]wire.Liker{}, page.Likers...), AsOf: asOf} // [], not null
	if page.Next != 0 {
		body.NextPageToken = newPageToken(post, cursor{page.Next, asOf})
	}
	return encode(q, private, body)
}

// userReaction is a user's reaction to a post, as of a position in the partition that has it, or may have it.
type userReaction struct {
	is   view.Reaction
	asOf wire.Position
}

// shown returns the members of a response.
func (r *userReaction) shown() (name string, since *wire.Millis, region string) {
	if r.is.Reaction != schema.NoReaction {
		since, region = new(wire.Millis(r.is.SinceMs)), r.is.Region.String()
	}
	return wire.ReactionName(r.is.Reaction), since, region
}

func (a *api) withoutReactions() error {
	if a.reactions == nil {
		return errNoReactions
	}
	return nil
}

// reactionsOf returns a user's reactions to posts, in their order, and the position of each partition asked.
func (a *api) reactionsOf(q *request, user uint64, posts []uint64, covered []wire.Position,
) (list []userReaction, asOf []wire.Position, err error) {
	if err := cmp.Or(q.refusal(), a.withoutReactions()); err != nil {
		return nil, nil, err
	}
	questions, err := a.route(q, func() (map[int32]*question, error) {
		questions := map[int32]*question{}
		for i, post := range posts {
			owners, err := a.reactions.PartitionsOfUser(post, user)
			if err != nil {
				return nil, err
			}
			for _, p := range owners {
				if questions[p] == nil {
					questions[p] = &question{User: user}
				}
				questions[p].Posts = append(questions[p].Posts, post)
				questions[p].places = append(questions[p].places, i)
			}
		}
		return questions, nil
	}, covered)
	if err != nil {
		return nil, nil, err
	}
	answers, err := a.ask(q, questions)
	if err != nil {
		return nil, nil, err
	}
	list = make([]userReaction, len(posts))
	known := make([]bool, len(posts))
	for _, p := range slices.Sorted(maps.Keys(answers)) {
		asOf = append(asOf, answers[p].AsOf)
		for i, r := range answers[p].Reactions {
			at := questions[p].places[i]
			if known[at] && r.Reaction == schema.NoReaction {
				continue
			}
			region, _ := schema.ParseRegion(r.Region)
			is := view.Reaction{Reaction: r.Reaction, SinceMs: r.SinceMs, Region: region}
			list[at] = userReaction{is, answers[p].AsOf}
			known[at] = true
		}
	}
	return list, asOf, nil
}

// viewed returns a user's reactions to posts for a live stream, which has no request any more.
func (a *api) viewed(ctx context.Context, client netip.Addr, user uint64, posts []uint64, covered []wire.Position,
) (list []wire.UserReaction, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
	if err != nil {
		return nil, err
	}
	q := &request{Input: query.Read(r), client: client}
	defer a.release(q)
	if err := a.work(q); err != nil {
		return nil, err
	}
	reactions, _, err := a.reactionsOf(q, user, posts, covered)
	for i, of := range reactions {
		shown := wire.UserReaction{PostID: posts[i], UserID: user, AsOf: of.asOf}
		shown.Reaction, shown.Since, shown.Region = of.shown()
		list = append(list, shown)
	}
	return list, err
}

// userReactions is reactionsOf for positions of events that may have been forwarded.
func (a *api) userReactions(q *request, user uint64, posts []uint64, covered []wire.Position,
) (list []userReaction, asOf []wire.Position, err error) {
	covered, err = a.forwardedReactions(q, covered, ownersOf(posts, func(post uint64) ([]int32, error) {
		return a.reactions.PartitionsOfUser(post, user)
	}))
	if err != nil {
		return nil, nil, err
	}
	return a.reactionsOf(q, user, posts, covered)
}

func (a *api) forwardedReactions(q *request, covered []wire.Position, owners func() ([]int32, error),
) ([]wire.Position, error) {
	if err := cmp.Or(q.refusal(), a.withoutReactions()); err != nil {
		return nil, err
	}
	return a.withForwarded(q, covered, owners)
}

// route returns a question to each partition that is concerned, by one layout, which must cover these positions.
func (a *api) route(q *request, questions func() (map[int32]*question, error), covered []wire.Position,
) (map[int32]*question, error) {
	if err := a.awaitPartitions(q, a.reactions, covered); err != nil {
		return nil, err
	}
	for {
		layout := a.reactions.Layout()
		to, err := questions()
		if err != nil {
			return nil, err
		}
		if a.reactions.Layout() != layout {
			continue
		}
		for _, of := range to {
			of.Layout = layout
		}
		for _, want := range covered {
			if of := to[want.Partition]; of != nil {
				of.Covered = max(of.Covered, want.Offset)
			}
		}
		return to, nil
	}
}

// ask asks each partition its question, all at once those that other readers keep.
func (a *api) ask(q *request, questions map[int32]*question) (map[int32]*partAnswer, error) {
	answers, mu := map[int32]*partAnswer{}, sync.Mutex{}
	g, ctx := errgroup.WithContext(q.Request.Context())
	var here []int32
	for p, of := range questions {
		if a.keeps(p) {
			here = append(here, p)
			continue
		}
		g.Go(func() error {
			answer, err := a.peers.ask(ctx, q.client.String(), p, of)
			mu.Lock()
			defer mu.Unlock()
			answers[p] = answer
			return err
		})
	}
	var err error
	for _, p := range here {
		var answer *partAnswer
		if answer, err = a.answer(q, p, questions[p]); err != nil {
			break
		}
		mu.Lock()
		answers[p] = answer
		mu.Unlock()
	}
	return answers, cmp.Or(err, g.Wait())
}

// keeps reports whether a partition is to be read here.
func (a *api) keeps(partition int32) bool {
	if a.peers == nil {
		return true
	}
	_, err := a.reactions.AsOf(partition)
	return err == nil
}

// answer answers a question to a partition that this reader keeps.
func (a *api) answer(q *request, partition int32, of *question) (*partAnswer, error) {
	if _, err := a.reactions.AsOf(partition); err != nil && (of.Covered == 0 || stream.IsNotKept(err)) {
		return nil, err
	}
	if err := a.awaitLayout(q, partition, of.Layout); err != nil {
		return nil, err
	}
	if of.Covered > 0 {
		covered := []wire.Position{{Partition: partition, Offset: of.Covered}}
		if err := a.cover(q, a.reactions, covered, nil); err != nil {
			return nil, err
		}
	}
	answer := &partAnswer{}
	if of.Limit > 0 {
		page, asOf, err := a.reactions.Likers(partition, of.Posts[0], of.After, of.Limit)
		for _, l := range page.Likers {
			answer.Likers = append(answer.Likers, partLiker{l.UserID, int64(l.Since), l.Region})
		}
		answer.Next, answer.AsOf = page.Next, asOf
		return answer, err
	}
	list, asOf, err := a.reactions.Of(partition, of.User, of.Posts)
	for _, r := range list {
		answer.Reactions = append(answer.Reactions, partReaction{r.Reaction, r.SinceMs, r.Region.String()})
	}
	answer.AsOf = asOf
	return answer, err
}

// awaitLayout waits, at most MaxWait, until a partition has reached the layout by which it was asked.
func (a *api) awaitLayout(q *request, partition int32, want view.Layout) error {
	ctx, cancel := context.WithCancel(q.Request.Context())
	cancel() // do not wait, mostly
	if a.reactions.AwaitLayout(ctx, partition, want) == nil {
		return nil
	}
	if err := q.take(a.waiting); err != nil {
		return err
	}
	ctx, cancel = context.WithTimeout(q.Request.Context(), a.options.MaxWait)
	defer cancel()
	err := a.reactions.AwaitLayout(ctx, partition, want)
	if errors.Is(err, context.DeadlineExceeded) {
		return unavailable(problem.New(http.StatusServiceUnavailable, "not-ready", "Reader not ready",
			"partition %d has not reached the partition layout within %s (reader.max_wait)", partition,
			a.options.MaxWait))
	}
	return err
}
