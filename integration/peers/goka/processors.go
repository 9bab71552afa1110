package main

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"sync"

	"github.com/lovoo/goka"
	"github.com/lovoo/goka/codec"

	"kudos/integration/peers/peer"
	"kudos/schema"
)

const (
	groupPairs  goka.Group  = "goka-pairs"
	groupCounts goka.Group  = "goka-counts"
	deltas      goka.Stream = "goka-deltas"
	likes       goka.Stream = schema.TopicLikes
)

type callbacks struct {
	lines  *peer.Lines
	counts *peer.Counts

	mu   sync.Mutex
	next map[place]int64 // offset
}

type place struct {
	topic     goka.Stream
	partition int32
}

// first is 1 for a message that comes for the first time, and 0 for one that is delivered once more, which must not be
// counted twice in the lines. Each event becomes one message to the loop, and that becomes one delta or none: so the
// events that are counted are the loop's messages without a delta and the deltas that are counted.
func (c *callbacks) first(ctx goka.Context) int64 {
	at := place{ctx.Topic(), ctx.Partition()}
	c.mu.Lock()
	defer c.mu.Unlock()
	if ctx.Offset() < c.next[at] {
		return 0
	}
	c.next[at] = ctx.Offset() + 1
	return 1
}

// pairs is the group that knows who likes what.
func (c *callbacks) pairs() *goka.GroupGraph {
	return goka.DefineGroup(groupPairs,
		goka.Input(likes, new(codec.Bytes), c.rekey), // they are decoded with their key
		goka.Loop(byteCodec{}, c.latest),
		goka.Output(deltas, byteCodec{}),
		goka.Persist(byteCodec{}),
	)
}

// counting is the group that knows how many like a post.
func (c *callbacks) counting() *goka.GroupGraph {
	return goka.DefineGroup(groupCounts, goka.Input(deltas, byteCodec{}, c.count), goka.Persist(countCodec{}))
}

func (c *callbacks) rekey(ctx goka.Context, message any) {
	e, err := peer.Decode([]byte(ctx.Key()), message.([]byte))
	if err != nil {
		ctx.Fail(err)
	}
	c.lines.Read(c.first(ctx))
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
		if err := c.counts.Set(ctx.Context(), nil, c.first(ctx), nil); err != nil {
			ctx.Fail(err)
		}
		return
	}
	c.first(ctx)
	ctx.Emit(deltas, strconv.FormatUint(postOf(ctx.Key()), 10), action-before) // none before is as an unlike
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
	changed := []peer.Count{{Post: post, Likes: now}}
	if err := c.counts.Set(ctx.Context(), changed, c.first(ctx), func() { done(nil) }); err != nil {
		done(err)
		ctx.Fail(err)
	}
}

// pairKeySize tells pairs from goka's own record.
const pairKeySize = 16

// pairKey is the key of a pair: post and user, big-endian.
func pairKey(post, user uint64) string {
	key := binary.BigEndian.AppendUint64(make([]byte, 0, pairKeySize), post)
	return string(binary.BigEndian.AppendUint64(key, user))
}

func postOf(pair string) uint64 { return binary.BigEndian.Uint64([]byte(pair[:8])) }

// byteCodec is a number of one byte: whether somebody likes (1, 0), or a delta (1, −1).
type byteCodec struct{}

func (byteCodec) Encode(value any) ([]byte, error) { return []byte{byte(value.(int8))}, nil }

func (byteCodec) Decode(value []byte) (any, error) {
	if len(value) != 1 {
		return nil, fmt.Errorf("got %d bytes, want 1", len(value))
	}
	return int8(value[0]), nil
}

// countCodec is a count, as a varint.
type countCodec struct{}

func (countCodec) Encode(value any) ([]byte, error) {
	return binary.AppendVarint(nil, value.(int64)), nil
}

func (countCodec) Decode(value []byte) (any, error) {
	count, n := binary.Varint(value)
	if n != len(value) || n == 0 {
		return nil, fmt.Errorf("%x is not a count", value)
	}
	return count, nil
}
