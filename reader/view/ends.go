package view

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/reader/wire"
	"kudos/schema"
)

// BeyondEndError says that no event of likes is at a position yet.
type BeyondEndError struct {
	Want wire.Position // as of the event: the offset after its own
	End  int64         // the offset of the next event
}

func (e *BeyondEndError) Error() string {
	return fmt.Sprintf("no event is at partition %d, offset %d; the topic %s ends at %d there",
		e.Want.Partition, e.Want.Offset-1, schema.TopicLikes, e.End)
}

// logEnds asks Kafka where the logs of likes end, for those who wait for an event that may not be there. It
// asks once for all of them. What is known from before they came tells them nothing: their event may be newer.
type logEnds struct {
	list  func(ctx context.Context) (kadm.ListedOffsets, error)
	pause time.Duration
	asked chan struct{} // has one while there is a next look

	mu struct {
		sync.Mutex
		next *endsLook // that has not begun
	}
}

// endsLook is one request to Kafka.
type endsLook struct {
	done chan struct{} // closed once the rest is set
	ends kadm.ListedOffsets
	err  error
}

const (
	// endsPause bounds how often Kafka is asked, whoever asks for what.
	endsPause = 50 * time.Millisecond
	// endsLooks is how many looks must find that there is no such event. A writer that does not wait for all in-sync
	// replicas (acks=1) knows its event's offset a moment before Kafka shows the event to anybody.
	endsLooks = 2
)

func newLogEnds() *logEnds {
	return &logEnds{pause: endsPause, asked: make(chan struct{}, 1)}
}

// run looks when somebody asks, until ctx ends. It is for one client.
func (e *logEnds) run(ctx context.Context, cl *kgo.Client) error {
	e.list = func(ctx context.Context) (kadm.ListedOffsets, error) {
		bounded, cancel := context.WithTimeout(ctx, lagTimeout)
		defer cancel()
		// To the high watermark: what was acknowledged is below it, and may be behind an open transaction.
		return kadm.NewClient(cl).ListEndOffsets(bounded, schema.TopicLikes)
	}
	return e.serve(ctx)
}

func (e *logEnds) serve(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-e.asked:
		}
		look := e.begin()
		look.ends, look.err = e.list(ctx)
		close(look.done)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(e.pause):
		}
	}
}

// begin takes the next look: who asks from here on waits for another.
func (e *logEnds) begin() *endsLook {
	e.mu.Lock()
	defer e.mu.Unlock()
	look := e.mu.next
	e.mu.next = nil
	return look
}

// look returns what a look finds that begins after now.
func (e *logEnds) look(ctx context.Context) (kadm.ListedOffsets, error) {
	e.mu.Lock()
	if e.mu.next == nil {
		e.mu.next = &endsLook{done: make(chan struct{})}
		e.asked <- struct{}{} // has room: it was taken with the last one
	}
	look := e.mu.next
	e.mu.Unlock()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-look.done:
		return look.ends, look.err
	}
}

// check returns a *BeyondEndError if one of the positions is beyond the end of its log, and nil if none is, or
// if that cannot be told.
func (e *logEnds) check(ctx context.Context, want []wire.Position) (beyond error) {
	for range endsLooks {
		ends, err := e.look(ctx)
		if err != nil {
			return nil
		}
		if beyond = firstBeyond(ends, want); beyond == nil {
			return nil
		}
	}
	return beyond
}

func firstBeyond(ends kadm.ListedOffsets, want []wire.Position) error {
	for _, w := range want {
		if end, ok := ends.Lookup(schema.TopicLikes, w.Partition); ok && end.Err == nil && w.Offset > end.Offset {
			return &BeyondEndError{Want: w, End: end.Offset}
		}
	}
	return nil
}
