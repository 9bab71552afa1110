package view

import (
	"context"
	"errors"
	"time"
)

// moved tells whoever waits that a copy has come further. Its owner's lock guards it.
type moved struct{ next chan struct{} }

// wait returns what is closed at the next move.
func (m *moved) wait() <-chan struct{} {
	if m.next == nil {
		m.next = make(chan struct{})
	}
	return m.next
}

func (m *moved) tell() {
	if m.next != nil {
		close(m.next)
		m.next = nil
	}
}

// readyPoll is how often a wait looks whether a partition has become ready.
const readyPoll = 20 * time.Millisecond

// wait waits until the offset that look returns is at least want.
func wait(ctx context.Context, want int64, look func() (offset int64, moved <-chan struct{}, err error)) error {
	for {
		offset, moved, err := look()
		var notReady *NotReadyError
		if err != nil && !errors.As(err, &notReady) {
			return err
		}
		if err == nil && offset >= want {
			return nil
		}
		var again <-chan time.Time
		if err != nil {
			moved, again = nil, time.After(readyPoll)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-moved:
		case <-again:
		}
	}
}
