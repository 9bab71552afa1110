package live

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"kudos/reader/wire"
)

// viewer is a user whose own reactions a stream shows, too. Counts never wait for them: a goroutine of its own asks for
// them when counts have changed. With each heartbeat it asks, too: if others react at the same time, a reaction can
// change although the counts do not.
type viewer struct {
	changed chan struct{} // holds one element while counts have been sent since the last question

	mu       sync.Mutex
	covered  []wire.Position // of the counts that were sent
	messages []*message      // to be sent
}

// viewerEvery is the least time between two questions of a stream, however often counts change.
const viewerEvery = time.Second

// view follows the viewer's reactions until the function that it returns is called, or the stream ends.
func (s *stream) view(q *wanted, o Options) (stop func()) {
	v := &viewer{changed: make(chan struct{}, 1)}
	s.viewer = v
	ctx, cancel := context.WithCancel(s.ctx)
	var following sync.WaitGroup
	following.Go(func() {
		v.follow(ctx, func(covered []wire.Position) ([]wire.UserReaction, error) {
			return o.Reactions(ctx, q.client, q.viewer, q.posts, covered)
		}, o.Heartbeat, func() { signal(s.wake) })
	})
	return func() { cancel(); following.Wait() }
}

func (v *viewer) follow(ctx context.Context, ask func(covered []wire.Position) ([]wire.UserReaction, error),
	interval time.Duration, wake func(),
) {
	shown := map[uint64]wire.UserReaction{} // by post
	for ctx.Err() == nil {
		v.mu.Lock()
		covered := v.covered
		v.mu.Unlock()
		list, err := ask(covered)
		var messages []*message
		for _, r := range list {
			if before, known := shown[r.PostID]; known && same(before, r) {
				continue
			}
			data, err := json.Marshal(r)
			if err != nil {
				continue // impossible
			}
			shown[r.PostID] = r
			messages = append(messages, newMessage("reaction", r.AsOf.Offset, data))
		}
		if len(messages) > 0 {
			v.mu.Lock()
			v.messages = append(v.messages, messages...)
			v.mu.Unlock()
			wake()
		}
		pause := time.After(viewerEvery)
		if err == nil {
			select {
			case <-v.changed:
			case <-time.After(interval):
			case <-ctx.Done():
			}
		}
		select {
		case <-pause:
		case <-ctx.Done():
		}
	}
}

// same compares what a viewer sees.
func same(a, b wire.UserReaction) bool {
	since := func(r wire.UserReaction) wire.Millis {
		if r.Since == nil {
			return -1
		}
		return *r.Since
	}
	return a.Reaction == b.Reaction && since(a) == since(b) && a.Region == b.Region
}

// counted notes the positions of the counts that were sent.
func (v *viewer) counted(groups []*group) {
	var covered []wire.Position
	for _, g := range groups {
		if g.covered > 0 {
			covered = append(covered, wire.Position{Partition: g.partition, Offset: g.covered})
		}
	}
	v.mu.Lock()
	moved := !slices.Equal(covered, v.covered)
	v.covered = covered
	v.mu.Unlock()
	if moved {
		signal(v.changed)
	}
}

// take returns the messages to be sent now.
func (v *viewer) take() (messages []*message) {
	v.mu.Lock()
	defer v.mu.Unlock()
	messages, v.messages = v.messages, nil
	return messages
}
