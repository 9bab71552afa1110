package main

import (
	"strconv"

	"github.com/lovoo/goka"

	"kudos/integration/peers/peer"
	"kudos/schema"
)

const (
	groupPairs  goka.Group  = "goka-pairs"
	groupCounts goka.Group  = "goka-counts"
	deltas      goka.Stream = "goka-deltas"
	likes       goka.Stream = schema.TopicLikes
)

// callbacks are what both groups do with a message.
type callbacks struct {
	lines    *peer.Lines
	counts   *peer.Counts
	progress *progress
}

// pairs is the group that knows who likes what.
func (c *callbacks) pairs() *goka.GroupGraph {
	return goka.DefineGroup(groupPairs,
		goka.Input(likes, rawCodec{}, c.rekey),
		goka.Loop(byteCodec{}, c.latest),
		goka.Output(deltas, byteCodec{}),
		goka.Persist(byteCodec{}),
	)
}

// counting is the group that knows how many like a post.
func (c *callbacks) counting() *goka.GroupGraph {
	return goka.DefineGroup(groupCounts,
		goka.Input(deltas, byteCodec{}, c.count),
		goka.Persist(countCodec{}),
	)
}

func (c *callbacks) rekey(ctx goka.Context, message any) {
	e, err := peer.Decode([]byte(ctx.Key()), message.([]byte))
	if err != nil {
		ctx.Fail(err)
	}
	c.lines.Read(c.progress.first(ctx))
	var action int8
	if e.Like {
		action = 1
	}
	ctx.Loopback(pairKey(e.Post, e.User), action)
}

func (c *callbacks) latest(ctx goka.Context, message any) {
	action := message.(int8)
	before, known := ctx.Value().(int8)
	if !known || before != action {
		ctx.SetValue(action)
	}
	if before == action {
		// Nothing to count, of which MySQL need not hear before this event is done.
		if err := c.counts.Set(ctx.Context(), nil, c.progress.first(ctx), nil); err != nil {
			ctx.Fail(err)
		}
		return
	}
	c.progress.first(ctx)
	post := strconv.FormatUint(postOf(ctx.Key()), 10)
	ctx.Emit(deltas, post, action-before) // none before is as an unlike
}

func (c *callbacks) count(ctx goka.Context, message any) {
	before, _ := ctx.Value().(int64)
	now := before + int64(message.(int8))
	ctx.SetValue(now)
	post, err := strconv.ParseUint(ctx.Key(), 10, 64)
	if err != nil {
		ctx.Fail(err)
	}
	// The offset is committed when MySQL has the count.
	done := ctx.DeferCommit()
	if err := c.counts.Set(ctx.Context(), []peer.Count{{Post: post, Likes: now}}, c.progress.first(ctx), func() { done(nil) }); err != nil {
		done(err)
		ctx.Fail(err)
	}
}
