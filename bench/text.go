package bench

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// WriteText writes the figures of one contender as a table for a terminal.
func (r *Report) WriteText(w io.Writer, contender string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(what, figure, unit string) {
		if figure != "" {
			fmt.Fprintf(t, "%s\t%s %s\n", what, figure, unit)
		}
	}
	for _, load := range r.drained() {
		figure := func(f func(*Drain) (float64, bool)) string { return r.drains(load.Shape.Name, contender, f).with("") }
		fmt.Fprintf(t, "DRAIN\t%s\n", load.describe())
		line("  counted", figure(eventsPerSecond), "events/s")
		line("  CPU of the processor", figure(cpuPerMillion(false)), "s per 10⁶ events")
		line("  its peak memory", figure(peakMiB(contenderName)), "MiB")
		line("  rows written to MySQL", figure(rowsPerEvent), "an event")
		line("  state on disk, compacted", figure(bytesPerPair), "bytes a pair")
	}
	percents, load := r.percents()
	for _, percent := range percents {
		figure := func(f func(*LatencyLevel) (float64, bool)) string { return r.latencies(contender, percent, f).with("") }
		fmt.Fprintf(t, "LATENCY\t%s, %d %% of the drain rate\n", load.describe(), percent)
		line("  sent", figure(levelRate), "events/s")
		for _, place := range places {
			for _, q := range quantileColumns {
				line("  visible in "+place.name+", "+q.name, figure(place.quantile(q.of)), "ms")
			}
		}
	}
	for i, row := range recoveryRows {
		if i == 0 && r.recoveries(func(*Recovery) (float64, bool) { return 0, true }).rounds > 0 {
			fmt.Fprintf(t, "RECOVERY\twithout local state\n")
		}
		line("  "+row.what, r.recoveries(row.figure).with(""), "")
	}
	if accepted, first := r.accepted(); first != nil {
		fmt.Fprintf(t, "ACCEPTING\t%s posts, %s\n", number(float64(accepted.Shape.Posts)), accepted.Shape.partitions())
		for _, of := range endpoints {
			for _, column := range acceptingColumns {
				line("  "+requestsOf(of(first))+", "+column.name, r.accepting(of, column.of).with(""), column.unit)
			}
		}
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("writing the table: %w", err)
	}
	return nil
}
