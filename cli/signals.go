package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// signalContext returns a context that SIGINT or SIGTERM ends. What runs then
// finishes what it has in hand, within the limits of its settings; a second signal
// calls exit at once.
func signalContext(stderr io.Writer, exit func(code int)) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 2 {
			select {
			case sig := <-signals:
				if ctx.Err() != nil {
					exit(exitFailed)
					return
				}
				fmt.Fprintf(stderr, "kudos: %s: finishing what is in hand; once more to exit at once\n", sig)
				cancel(fmt.Errorf("stopped by signal: %s", sig))
			case <-done:
				return
			}
		}
	})
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		wg.Wait()
		cancel(nil)
	}
}
