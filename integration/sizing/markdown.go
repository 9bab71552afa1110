package sizing

import (
	"bytes"
	"fmt"
	"io"
	"time"
)

// sessionTimeout is the default of processor.session_timeout.
const sessionTimeout = 10 * time.Second

const seeds = 5

// Worst returns the worst values of some simulated hours.
func Worst(p Plan) Outcome {
	var worst Outcome
	for seed := range uint64(seeds) {
		o := Simulate(p, seed)
		worst.BusiestProcessor = max(worst.BusiestProcessor, o.BusiestProcessor)
		worst.BusiestPartition = max(worst.BusiestPartition, o.BusiestPartition)
		worst.Worst, worst.Caught = max(worst.Worst, o.Worst), max(worst.Caught, o.Caught)
		worst.Over = worst.Over || o.Over
	}
	return worst
}

// WriteMarkdown writes a plan in the format of docs/scaling.md.
func WriteMarkdown(w io.Writer, p Plan) error {
	var t table
	l, c := p.Load, p.Choices
	t.head("load")
	t.row("posts; users", "%s; %s", big(l.Posts), big(l.Users))
	t.row("reactions: %.0f per user in the end", "%s", l.LikesAUser, big(p.Pairs))
	t.row("likes per second: %.0f per user and day, %.0f times that in the busiest hour, plus %s for one post",
		"%s on average, %s at the peak", l.LikesADay, l.Peak, big(l.Hot), big(p.Average), big(p.Peak))
	t.row("counts read per second, and as many reactions of viewers", "%s", big(l.Reads))
	t.head("required")
	t.row("processors with %d cores, at %.0f %% utilization", "%d", c.Cores, 100*c.Utilization, p.Processors)
	t.row("partitions", "%d: %d a processor, %s pairs each", p.Partitions, p.PartitionsAProcess, big(p.PairsAPartition))
	t.row("disk per processor: its state, and as much again for compactions", "%s", size(p.StateADisk))
	t.row("memory per processor", "%s", size(p.Memory))
	t.row("recovery of the partitions of a processor lost with its disk", "%s by the others; %s by one alone",
		p.Recovery, p.RecoveryAlone*time.Duration(p.PartitionsAProcess))
	t.row("the hottest post: %d user buckets", "in %d partitions, %s likes per second in each", l.Buckets,
		p.PartitionsOfHotPost, big(p.HotAPartition))
	t.row("cores for Kafka and MySQL, replicas included", "%.0f", p.KafkaCores)
	t.row("disk for Kafka: %.0f replicas, %.0f days of likes and like-updates, the state table and the counts twice",
		"%s", c.Replicas, c.LikesKept.Hours()/24, size(p.Kafka))
	t.row("inbound traffic of Kafka, replicas included", "%s/s", size(p.KafkaNetwork))
	t.row("MySQL servers with %s rows", "%d; `like_count` %s each, %s rows per second", big(c.RowsADB), p.Databases,
		size(p.DatabaseBytes), big(p.RowsASecond))
	t.row("producers with %d cores, single likes", "%d", c.ReaderCores, p.Producers)
	t.row("readers with %d cores, counts only: pages of 50 posts; or single posts", "%d; or %d", c.ReaderCores,
		p.ReadersPages, p.ReadersSingle)
	t.row("memory per reader for the counts of all posts", "%s", size(p.ReaderMemory))
	t.row("readers with %d cores that share reactions, pages of 50 posts", "%d, so %.0f replicas of each partition",
		c.ReaderCores, p.ReactionReaders, p.Copies)
	t.row("disk per reader for its reactions, and as much again for compactions", "%s", size(p.ReactionsADisk))
	t.row("recovery of the reactions of a reader lost with its disk, while its other replicas answer", "%s",
		p.ReactionRecovery)
	t.row("cores in total, readers with pages", "%.0f", p.CoresTotal)
	o := Worst(p)
	t.head(fmt.Sprintf("simulation: the busiest hour, %d times; after 10 minutes a processor is lost with its disk",
		seeds))
	t.row("utilization of the busiest processor; of the busiest partition", "%.0f %%; %.0f %%",
		100*o.BusiestProcessor, 100*o.BusiestPartition)
	t.row("longest wait of a like", "%s", o.Worst)
	t.row("all waits below 1 second again", "%s after the loss", o.Caught)
	_, err := t.WriteTo(w)
	return err
}

type table struct{ bytes.Buffer }

func (t *table) head(what string) { fmt.Fprintf(t, "\n| %s |  |\n|---|---|\n", what) }

// row writes a row; args fill the formats of both cells, in order.
func (t *table) row(what, value string, args ...any) {
	fmt.Fprintf(t, "| "+what+" | "+value+" |\n", args...)
}

// big formats a number in words such as million.
func big(n float64) string { return scaled(n, "", " thousand", " million", " billion", " trillion") }

func size(n float64) string { return scaled(n, " B", " KB", " MB", " GB", " TB", " PB") }

func scaled(n float64, units ...string) string {
	i := 0
	for ; n >= 1000 && i < len(units)-1; i++ {
		n /= 1000
	}
	return fmt.Sprintf("%.3g%s", n, units[i])
}

// WriteUnits writes the measured figures and their sources.
func WriteUnits(w io.Writer, u Units) error {
	t := bytes.NewBufferString("\n| measured | | source |\n|---|---:|---|\n")
	for _, unit := range u.All() {
		fmt.Fprintf(t, "| %s | %s %s | [%s](%s) |\n", unit.What, number(unit.Value), unit.Of, unit.Source, unit.Source)
	}
	_, err := t.WriteTo(w)
	return err
}

func number(v float64) string {
	if v >= 1000 {
		return big(v)
	}
	return fmt.Sprintf("%.4g", v)
}

// All lists the units.
func (u Units) All() []Unit {
	return []Unit{u.OwnCPU, u.OthersCPU, u.HotRate, u.BytesAPair, u.FilterBytes, u.Memory, u.Recovery, u.RowsAnEvent,
		u.EventBytes, u.TableBytes, u.UpdateBytes, u.RowBytes, u.Reads, u.Pages, u.ViewBytes, u.Accepted,
		u.CountBytes, u.ReactionBytes, u.ReactionCPU, u.ReactionRead, u.ReactionsGot}
}
