// Package importer brings likes from a file into Kafka: the totals of an older
// system, or a log that was kept elsewhere. In come lines of CSV or NDJSON; out go
// events in the likes topic, a file of the lines that are none, and a summary.
//
//	Source ─► lines ─► decoder ─► bulk.Sender ─► likes
//	                      │            │ not acknowledged
//	                      └────────────┴─► Rejects
//
// Lines are sent in their order, so the events of a post keep theirs. Memory is
// bounded by the lines that await Kafka. After the first event that Kafka does not
// take nothing more is sent: what follows it would overtake it.
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

	"kudos/producer/bulk"
	"kudos/schema"
	"kudos/stream/kafka"
)

// Options of one import.
type Options struct {
	// Format of the lines; Auto looks at the first byte.
	Format Format
	// Progress is where the work in hand is shown, or nil for nowhere.
	Progress io.Writer
	// Terminal says that Progress is one: a bar is drawn instead of plain lines.
	Terminal bool
	// Layout is that of likes.
	Layout schema.Layout
}

// Importer imports one source. Make it with New, then Run it once.
type Importer struct {
	opts  Options
	kafka kafka.Options
	log   *slog.Logger
	count counters
}

// counters are what the progress shows while others count.
type counters struct {
	lines, acknowledged, unacknowledged, rejected, unknownRegions atomic.Int64
}

// Summary is how an import went.
type Summary struct {
	Source string `json:"source"`
	Format Format `json:"format"`
	// Complete says that the source was read to its end.
	Complete bool `json:"complete"`
	// Lines that were read, without the header and empty ones. Each is one of the
	// next three.
	Lines int64 `json:"lines"`
	// Acknowledged events are in Kafka.
	Acknowledged int64 `json:"acknowledged"`
	// NotAcknowledged events may be in Kafka or not.
	NotAcknowledged int64 `json:"not_acknowledged"`
	// Rejected lines are no events.
	Rejected int64 `json:"rejected"`
	// UnknownRegions counts events whose region is none and now is ZZ.
	UnknownRegions int64 `json:"unknown_regions"`
	// RejectsFile has the lines that were rejected or not acknowledged; "" if none.
	RejectsFile string  `json:"rejects_file"`
	Seconds     float64 `json:"seconds"`
}

// New makes an importer. It does not connect yet.
func New(opts Options, kafka kafka.Options, log *slog.Logger) *Importer {
	return &Importer{opts: opts, kafka: kafka, log: log.With("component", "import")}
}

// Run imports the source. When ctx ends it stops reading and waits, bounded by
// kafka.request_timeout, for what was sent. The summary is true in any case; the
// error says why the source is not wholly in Kafka.
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
		err = fmt.Errorf("%d of %d lines were rejected; %s names each with its reason", summary.Rejected, summary.Lines, summary.RejectsFile)
	}
	if err == nil {
		return summary, nil
	}
	if summary.Acknowledged > 0 && !summary.Complete || summary.NotAcknowledged > 0 {
		err = fmt.Errorf("%w; import it again from the start: with time_ms in it, an event that arrives twice counts once", err)
	}
	return summary, fmt.Errorf("import %s: %w", src.Name, err)
}

func (im *Importer) run(ctx context.Context, src *Source, rejects *Rejects, summary *Summary) (err error) {
	sender, err := bulk.Connect(ctx, im.kafka, im.opts.Layout, im.log)
	if err != nil {
		return err
	}
	defer func() {
		sender.Close()
		err = errors.Join(err, rejects.Close())
	}()

	lines := newLines(src.reader)
	decode, format, err := newDecoder(im.opts.Format, lines)
	if err != nil {
		return err
	}
	summary.Format = format
	stopProgress := im.showProgress(src)
	defer stopProgress()
	summary.Complete, err = im.sendAll(ctx, lines, decode, sender, rejects)
	return errors.Join(err, sender.Flush())
}

// sendAll sends line after line until the source, the context or Kafka ends it.
func (im *Importer) sendAll(ctx context.Context, lines *lines, decode decoder, sender *bulk.Sender, rejects *Rejects) (complete bool, err error) {
	var event schema.Event
	for ctx.Err() == nil && sender.Failure() == nil {
		line, err := lines.next()
		if errors.Is(err, io.EOF) {
			return true, nil
		}
		if err != nil && ctx.Err() == nil {
			return false, fmt.Errorf("read line %d: %w", lines.number+1, err)
		}
		if err != nil || len(line.text) == 0 {
			continue // interrupted, or nothing in it
		}
		im.count.lines.Add(1)
		if err := line.decode(decode, &event); err != nil {
			im.count.rejected.Add(1)
			if err := rejects.Add(lines.number, err.Error(), line.text); err != nil {
				return false, err
			}
			continue
		}
		if event.RegionMalformed {
			im.count.unknownRegions.Add(1)
		}
		sender.Send(&event, im.answer(lines.number, line.text, rejects))
	}
	if ctx.Err() != nil {
		return false, fmt.Errorf("stopped after line %d: %w", lines.number, context.Cause(ctx))
	}
	return false, nil // Flush tells what failed
}

// answer counts what became of a line; one that may not be in Kafka goes to the rejects.
func (im *Importer) answer(number int64, text []byte, rejects *Rejects) bulk.Answer {
	original := bytes.Clone(text)
	return func(_ bulk.Place, err error) error {
		if err == nil {
			im.count.acknowledged.Add(1)
			return nil
		}
		im.count.unacknowledged.Add(1)
		if err := rejects.Add(number, "not acknowledged by Kafka: "+err.Error(), original); err != nil {
			im.log.Error("lost a line that Kafka did not acknowledge", "line", number, "err", err)
		}
		return fmt.Errorf("line %d was not acknowledged by Kafka: %w", number, err)
	}
}
