package importer

import (
	"fmt"
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
	interval, show, end := lineInterval, func() { im.progressLine(src) }, func() {}
	if im.opts.Terminal {
		bar := progressbar.NewOptions64(src.size, progressbar.OptionSetWriter(im.opts.Progress),
			progressbar.OptionShowBytes(true), progressbar.OptionSetWidth(30),
			progressbar.OptionThrottle(barInterval/2), progressbar.OptionSetPredictTime(src.size > 0),
			progressbar.OptionSetSpinnerChangeInterval(0), // no extra goroutine: the spinner turns with each Set64
		)
		interval = barInterval
		show = func() {
			bar.Describe(fmt.Sprintf("%d lines, %d rejected", im.count.lines.Load(), im.count.rejected.Load()))
			_ = bar.Set64(src.read.Load()) // a closed terminal does not stop the import
		}
		end = func() {
			show()
			_, _ = fmt.Fprintln(im.opts.Progress) // later output starts below the bar
		}
	}
	return im.opts.Repeat(interval, show, end)
}

func (im *Importer) progressLine(src *Source) {
	part := ""
	if src.size > 0 {
		part = fmt.Sprintf(" (%d %%)", 100*src.read.Load()/src.size)
	}
	_, _ = fmt.Fprintf(im.opts.Progress, "import: %d lines read%s, %d acknowledged, %d rejected\n",
		im.count.lines.Load(), part, im.count.acknowledged.Load(), im.count.rejected.Load())
}
