package testrun

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

type recorder struct {
	testing.TB
	errors   []string
	cleanups []func()
}

func (r *recorder) Helper()          {}
func (r *recorder) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Errorf(format string, args ...any) {
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}

func TestStart(t *testing.T) {
	held := make(chan struct{})
	t.Cleanup(func() { close(held) })
	for name, c := range map[string]struct {
		run      func(context.Context) error
		patience time.Duration
		says     string
	}{
		"ends":           {func(ctx context.Context) error { <-ctx.Done(); return nil }, time.Minute, ""},
		"ends by itself": {func(context.Context) error { return nil }, time.Minute, ""},
		"fails": {func(ctx context.Context) error {
			<-ctx.Done()
			return errors.New("no good")
		}, time.Minute, "no good"},
		"does not end": {func(context.Context) error {
			<-held
			return nil
		}, time.Millisecond, "the thing did not stop within 1ms"},
		"failed long ago": {func(context.Context) error { return errors.New("no good") }, time.Minute, "no good"},
	} {
		t.Run(name, func(t *testing.T) {
			r := &recorder{TB: t}
			stop := Start(r, "the thing", c.patience, c.run)
			stop()
			require.Len(t, r.cleanups, 1)
			r.cleanups[0]() // already stopped
			if c.says == "" {
				require.Empty(t, r.errors)
				return
			}
			require.Len(t, r.errors, 1)
			require.Contains(t, r.errors[0], c.says)
		})
	}
}
