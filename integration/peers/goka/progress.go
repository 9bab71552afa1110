package main

import (
	"sync"

	"github.com/lovoo/goka"
)

// progress tells messages that come for the first time from those that are delivered once more, which must not be
// counted twice in the lines. Each event becomes one message to the loop, and that becomes one delta or none: so the
// events that are counted are the loop's messages without a delta and the deltas that are counted.
type progress struct {
	mu struct {
		sync.Mutex
		next map[place]int64 // offset
	}
}

type place struct {
	topic     goka.Stream
	partition int32
}

func newProgress() *progress {
	p := &progress{}
	p.mu.next = map[place]int64{}
	return p
}

// first is 1 for a message that comes for the first time and 0 otherwise.
func (p *progress) first(ctx goka.Context) int64 {
	at := place{ctx.Topic(), ctx.Partition()}
	p.mu.Lock()
	defer p.mu.Unlock()
	if ctx.Offset() < p.mu.next[at] {
		return 0
	}
	p.mu.next[at] = ctx.Offset() + 1
	return 1
}
