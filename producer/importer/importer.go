// Package importer publishes likes from a file to Kafka: the totals of an older system, or a log that was kept
// elsewhere. CSV or NDJSON lines become events in the likes topic. Invalid lines are written to the rejects file, and a
// summary reports the result.
//
//	Source ─► lines ─► decoder ─► bulk.Sender ─► likes
//	                      │            │ not acknowledged
//	                      └────────────┴─► Rejects
//
// Lines are sent in order, so the events of a post keep their order. Memory is bounded by the number of lines that
// await Kafka. After the first event that Kafka does not accept nothing more is sent: what follows would overtake it.
package importer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/producer/bulk"
	"kudos/schema"
	"kudos/stream/kafka"
)

// Options configure one import.
type Options struct {
	Format   Format        // of the lines; Auto detects it by the first byte
	Progress io.Writer     // where progress is shown; nil: nowhere
	Terminal bool          // Progress is a terminal: draw a bar instead of plain lines
	Layout   schema.Layout // partition layout of likes
	// Repeat calls show at an interval, and end when stop is called; needed to show progress.
	Repeat func(interval time.Duration, show, end func()) (stop func())
}

// Importer imports one source. Create it with New, then call Run once.
type Importer struct {
	opts  Options
	kafka kafka.Options
	log   *slog.Logger
	count counters
}

// counters are read by the progress display while the import updates them.
type counters struct {
	lines, acknowledged, unacknowledged, rejected, unknownRegions atomic.Int64
}

// Summary is the result of an import.
type Summary struct {
	Source   string `json:"source"`
	Format   Format `json:"format"`
	Complete bool   `json:"complete"` // the source was read to its end
	// Lines read, without the header and empty lines. Each is counted in one of the next three.
	Lines           int64   `json:"lines"`
	Acknowledged    int64   `json:"acknowledged"`     // events in Kafka
	NotAcknowledged int64   `json:"not_acknowledged"` // events that may or may not be in Kafka
	Rejected        int64   `json:"rejected"`         // lines that are not events
	UnknownRegions  int64   `json:"unknown_regions"`  // events whose region was malformed and became ZZ
	RejectsFile     string  `json:"rejects_file"`     // has lines rejected or not acknowledged; "" if none
	Seconds         float64 `json:"seconds"`
}

// New returns an importer. It does not connect yet.
func New(opts Options, kafka kafka.Options, log *slog.Logger) *Importer {
	return &Importer{opts: opts, kafka: kafka, log: log.With("component", "import")}
}

// Run imports the source. When ctx ends it stops reading and waits, bounded by kafka.request_timeout, for what was
// sent. The summary is valid in any case; the error says why the source is not completely in Kafka.
func (im *Importer) Run(ctx context.Context, src *Source, rejects *Rejects) (Summary, error) {
	start := time.Now()
	summary := Summary{Source: src.Name}
	err := im.run(ctx, src, rejects, &summary)
	summary.Lines = im.count.lines.Load()
	summary.Acknowledged = im.count.acknowledged.Load()
	summary.NotAcknowledged = im.count.unacknowledged.Load()
	summary.Rejected = im.count.rejected.Load()
	summary.UnknownRegions = im.count.unknownRegions.Load()
	summary.RejectsFile = rejects.Written()
	summary.Seconds = time.Since(start).Seconds()
	if err == nil && summary.Acknowledged != summary.Lines {
		err = fmt.Errorf("%d of %d lines were rejected; %s lists each with its reason",
			summary.Rejected, summary.Lines, summary.RejectsFile)
	}
	if err == nil {
		return summary, nil
	}
	if summary.Acknowledged > 0 && !summary.Complete || summary.NotAcknowledged > 0 {
		err = fmt.Errorf("%w; import it again from the start: if it has time_ms, duplicate events count once", err)
	}
	return summary, fmt.Errorf("import %s: %w", src.Name, err)
}

func (im *Importer) run(ctx context.Context, src *Source, rejects *Rejects, summary *Summary) (err error) {
	defer func() { err = errors.Join(err, rejects.Close()) }()
	sender, err := bulk.Connect(ctx, im.kafka, im.opts.Layout, im.log)
	if err != nil {
		return err
	}
	defer sender.Close()
	lines := newLines(src.reader)
	decode, format, err := newDecoder(im.opts.Format, lines)
	if err != nil {
		return err
	}
	summary.Format = format
	defer im.showProgress(src)()
	for err == nil && ctx.Err() == nil && sender.Failure() == nil {
		err = im.importLine(ctx, lines, decode, sender, rejects)
	}
	switch {
	case errors.Is(err, io.EOF):
		summary.Complete, err = true, nil
	case err == nil && ctx.Err() != nil:
		err = fmt.Errorf("stopped after line %d: %w", lines.number, context.Cause(ctx))
	}
	return errors.Join(err, sender.Flush())
}

// importLine reads one line and sends its event. It returns io.EOF at the end of the source.
func (im *Importer) importLine(ctx context.Context, lines *lines, decode decoder, sender *bulk.Sender, rejects *Rejects,
) error {
	line, err := lines.next()
	switch {
	case errors.Is(err, io.EOF):
		return err
	case err != nil && ctx.Err() != nil:
		return nil // interrupted
	case err != nil:
		return fmt.Errorf("reading line %d: %w", lines.number+1, err)
	case len(line.text) == 0:
		return nil
	}
	im.count.lines.Add(1)
	var event schema.Event
	if err := line.decode(decode, &event); err != nil {
		im.count.rejected.Add(1)
		return rejects.Add(lines.number, err.Error(), line.text)
	}
	if event.RegionMalformed {
		im.count.unknownRegions.Add(1)
	}
	number, original := lines.number, bytes.Clone(line.text)
	sender.Send(&event, func(_ *kgo.Record, err error) error {
		if err == nil {
			im.count.acknowledged.Add(1)
			return nil
		}
		im.count.unacknowledged.Add(1)
		if err := rejects.Add(number, "not acknowledged by Kafka: "+err.Error(), original); err != nil {
			im.log.Error("cannot record a line that Kafka did not acknowledge", "line", number, "error", err)
		}
		return fmt.Errorf("line %d was not acknowledged by Kafka: %w", number, err)
	})
	return nil
}

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
