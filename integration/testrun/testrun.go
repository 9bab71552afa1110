// Package testrun has a test run what runs until its context ends.
//
// In goes a Run method; out comes what stops it: the test's own end at the latest.
package testrun

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// Start runs something until stop is called, which also happens at the end of the test. It has to end within
// patience then, and without an error.
func Start(t testing.TB, what string, patience time.Duration, run func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-ended:
			assert.NoError(t, err, what)
		case <-time.After(patience):
			t.Errorf("%s did not stop within %s", what, patience)
		}
	})
	t.Cleanup(stop)
	return stop
}
