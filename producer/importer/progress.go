package importer

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
)

const (
	barInterval  = 100 * time.Millisecond
	lineInterval = 5 * time.Second
)

// showProgress shows how far the source was read, until stop is called. stop waits for the last output.
func (im *Importer) showProgress(src *Source) (stop func()) {
	if im.opts.Progress == nil {
		return func() {}
	}
	interval, show, end := lineInterval, im.progressLine, func() {}
	if im.opts.Terminal {
		bar := progressbar.NewOptions64(src.size, progressbar.OptionSetWriter(im.opts.Progress),
			progressbar.OptionShowBytes(true), progressbar.OptionSetWidth(30),
			progressbar.OptionThrottle(barInterval/2), progressbar.OptionSetPredictTime(src.size > 0),
			progressbar.OptionSetSpinnerChangeInterval(0), // no extra goroutine: the spinner turns with each Set64
		)
		interval = barInterval
		show = func(src *Source) {
			bar.Describe(fmt.Sprintf("%d lines, %d rejected", im.count.lines.Load(), im.count.rejected.Load()))
			_ = bar.Set64(src.read.Load()) // a closed terminal does not stop the import
		}
		end = func() {
			show(src)
			_, _ = fmt.Fprintln(im.opts.Progress) // later output starts below the bar
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		defer end()
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				show(src)
			case <-ctx.Done():
				return
			}
		}
	})
	return func() {
		cancel()
		wg.Wait()
	}
}

func (im *Importer) progressLine(src *Source) {
	part := ""
	if src.size > 0 {
		part = fmt.Sprintf(" (%d %%)", 100*src.read.Load()/src.size)
	}
	_, _ = fmt.Fprintf(im.opts.Progress, "import: %d lines read%s, %d acknowledged, %d rejected\n",
		im.count.lines.Load(), part, im.count.acknowledged.Load(), im.count.rejected.Load())
}
