package bench

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
)

// WriteMarkdown writes the report for people: it gives the same text for the same report.
func (r *Report) WriteMarkdown(w io.Writer) error {
	var b strings.Builder
	b.WriteString(intro)
	r.writeTargets(&b)
	r.writeDrains(&b)
	r.writeLatencies(&b)
	r.writeRecovery(&b)
	r.writeAccepting(&b)
	r.writeFailures(&b)
	r.writeConditions(&b)
	_, err := io.WriteString(w, b.String())
	return err
}

const intro = `# Benchmarks

Written by ` + "`make bench`" + ` from [benchmarks.json](benchmarks.json), which has every single run; do not edit. How fast kudos counts, compared
with what people would pick instead: the same events in the same Kafka topic, to the same MariaDB, and in the end the same counts, all of which are
compared; a run with a wrong count has no figures. Medians of the rounds, least and most in parentheses; ratios are within a round.

`

func (r *Report) writeTargets(b *strings.Builder) {
	b.WriteString("## Targets\n\n| | wanted | reached | |\n|---|---:|---:|---|\n")
	for _, t := range r.targets() {
		sign, mark := "≥", "not measured"
		if t.most {
			sign = "≤"
		}
		switch {
		case t.reached.rounds == 0:
		case t.met():
			mark = "yes"
		default:
			mark = "**no**"
		}
		fmt.Fprintf(b, "| %s | %s %s%s | %s | %s |\n", t.what, sign, number(t.want), t.unit, t.reached.with(t.unit), mark)
	}
	b.WriteString("\n")
}

func (r *Report) writeDrains(b *strings.Builder) {
	loads := r.drained()
	if len(loads) == 0 {
		return
	}
	b.WriteString("## Draining a full topic\n\nEvents a second from the first poll until the last commit in MySQL. CPU seconds per million events in that time: of the " +
		"contender's own process, and of\nall (Kafka, MariaDB, Redis where there is one). Peak memory is of the contender's own process" +
		"; Redis's, which holds that design's state, beside it. Rows: inserted or\nchanged in MySQL. State: what is kept to tell old likes from new ones, by the pairs that it has (of a\ndesign that forgets pairs without a like, fewer).\n\n")
	for _, load := range loads {
		fmt.Fprintf(b, "**%s**\n\n", load.describe())
		b.WriteString("| | events | events/s | kudos is | CPU s/10⁶ own | all | peak MiB | rows/event | state bytes/pair |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|\n")
		for _, name := range r.order() {
			r.writeDrain(b, load.Shape.Name, name)
		}
		b.WriteString("\n")
	}
}

func (r *Report) writeDrain(b *strings.Builder, shape, name string) {
	figure := func(f func(*Drain) (float64, bool)) stat { return r.drains(shape, name, f) }
	rate := figure(eventsPerSecond)
	if rate.rounds == 0 {
		return
	}
	ratio := ""
	if name != kudosName {
		if s := r.ratio(shape, name); s.rounds > 0 {
			ratio = s.with("×")
		}
	}
	peak := figure(peakMiB(contenderName)).with("")
	if redis := figure(peakMiB("redis")); redis.rounds > 0 {
		peak += ", Redis " + redis.with("")
	}
	events := figure(func(d *Drain) (float64, bool) { return float64(d.Events), true })
	fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", name, number(events.median), rate.with(""), ratio,
		figure(cpuPerMillion(false)).with(""), figure(cpuPerMillion(true)).with(""), peak, figure(rowsPerEvent).with(""), figure(bytesPerPair).with(""))
}

// describe says in words what a workload is.
func (w Workload) describe() string {
	spread := "all alike"
	if w.Shape.Skewed {
		spread = "Zipf"
	}
	posts := number(float64(w.Shape.Posts)) + " posts, " + spread
	if w.Shape.Posts == 1 {
		posts = "one post"
	}
	return fmt.Sprintf("%s: %s, %s, seed %d", w.Shape.Name, posts, w.Shape.partitions(), w.Seed)
}

// partitions says in words how many there are.
func (s Shape) partitions() string {
	if s.Partitions == 1 {
		return "1 partition"
	}
	return fmt.Sprintf("%d partitions", s.Partitions)
}

func (r *Report) writeLatencies(b *strings.Builder) {
	percents, load := r.percents()
	if len(percents) == 0 {
		return
	}
	fmt.Fprintf(b, "## From publishing to visible\n\nEvents come at a part of the rate that the contender drained the same shape with just before (%s), whatever becomes of them (open loop), and the\n"+
		"sender takes its share of the same machine. Of each probe, a like of a post of its own: from the moment it was to be sent until the sender knows that\nKafka has it, until a look-up in MySQL by primary key shows it; and, in a second\npass with a reader beside, until the reader's HTTP API shows it. Milliseconds.\n\n",
		load.describe())
	b.WriteString("| | load | events/s | Kafka p50 | p99 | p99.9 | MySQL p50 | p99 | p99.9 | reader p50 | p99 | p99.9 |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n")
	for _, name := range r.order() {
		for _, percent := range percents {
			r.writeLatency(b, name, percent)
		}
	}
	b.WriteString("\n")
}

func (r *Report) writeLatency(b *strings.Builder, name string, percent int) {
	figure := func(f func(*LatencyLevel) (float64, bool)) stat { return r.latencies(name, percent, f) }
	rate := figure(levelRate)
	if rate.rounds == 0 {
		return
	}
	fmt.Fprintf(b, "| %s | %d %% | %s |", name, percent, number(rate.median))
	for _, place := range places {
		for _, q := range quantileColumns {
			fmt.Fprintf(b, " %s |", figure(place.quantile(q.of)).with(""))
		}
	}
	b.WriteString("\n")
}

func (r *Report) writeRecovery(b *strings.Builder) {
	if r.recoveries(func(*Recovery) (float64, bool) { return 0, true }).rounds == 0 {
		return
	}
	b.WriteString("## Recovery\n\nA processor whose local state is gone builds it again from Kafka. From the start of the process until every partition asks for events.\n\n| | |\n|---|---:|\n")
	for _, row := range recoveryRows {
		fmt.Fprintf(b, "| %s | %s |\n", row.what, r.recoveries(row.figure).with(""))
	}
	b.WriteString("\n")
}

func (r *Report) writeAccepting(b *strings.Builder) {
	load, first := r.accepted()
	if first == nil {
		return
	}
	fmt.Fprintf(b, "## Accepting\n\nLikes by HTTP to one producer, of %s posts in %s; the sender takes its share of the same machine. A connection has one request in hand. Requests are due\n"+
		"at a steady rate (open loop), and their time runs from when they were due to the answer, which comes when Kafka has the likes. The highest rate is the one\nat which all are accepted and p99 is %s ms at most, to 9 %%. Milliseconds.\n\n",
		number(float64(load.Shape.Posts)), load.Shape.partitions(), number(first.LatencyLimitMs))
	b.WriteString("| | connections | highest rate, likes/s | at half of it, p50 | p99 | p99.9 |\n|---|---:|---:|---:|---:|---:|\n")
	for _, of := range endpoints {
		e := of(first)
		fmt.Fprintf(b, "| %s | %d |", requestsOf(e), e.Connections)
		for _, column := range acceptingColumns {
			fmt.Fprintf(b, " %s |", r.accepting(of, column.of).with(""))
		}
		b.WriteString("\n")
	}
	b.WriteString("\n")
}

func (r *Report) writeFailures(b *strings.Builder) {
	if err := r.Failed(); err != nil {
		fmt.Fprintf(b, "## Runs without a result\n\n```\n%v\n```\n\n", err)
	}
}

func (r *Report) writeConditions(b *strings.Builder) {
	rounds, commit := 0, r.Commit
	for _, run := range r.Runs {
		rounds = max(rounds, run.Round)
		if of := run.measured() + ": " + run.Commit; run.Commit != "" && !strings.Contains(commit, of) {
			commit += ", " + of
		}
	}
	b.WriteString("## Conditions\n\n")
	fmt.Fprintf(b, "%s; commit %s; rounds: %d. All processes share one machine: %s, %d cores, %.1f GiB; %s.\n\n",
		r.Date.Format("2006-01-02"), commit, rounds, r.Machine.CPU, r.Machine.Cores, float64(r.Machine.MemoryBytes)/(1<<30), r.Machine.System)
	b.WriteString("| | |\n|---|---|\n")
	for _, part := range []map[string]string{r.Versions, r.Settings} {
		for _, name := range slices.Sorted(maps.Keys(part)) {
			fmt.Fprintf(b, "| %s | %s |\n", name, part[name])
		}
	}
	for _, name := range r.order() {
		fmt.Fprintf(b, "| contender %s | %s |\n", name, r.Contenders[name])
	}
	b.WriteString(again)
}

const again = `
Of 100 events, 90 are likes of new pairs (a user and a post), 5 unlike a pair and 5 repeat an event, chosen among all before; the seed decides them all
([stream.go](../bench/stream.go)). The peers and how each was tuned: [peers](../integration/peers).

` + "```" + `
make bench                                            # all of it, on servers of its own; hours
go run ./integration/cmd/bench -quick                 # a trial of a minute; -help lists what else
kudos bench --brokers HOST:PORT --mysql-dsn DSN       # kudos alone, on servers that are there
` + "```" + `
`

// with is the figure with its unit: median and, of several rounds, least and most.
func (s stat) with(unit string) string {
	switch {
	case s.rounds == 0:
		return ""
	case s.rounds == 1 || s.least == s.most:
		return number(s.median) + unit
	}
	return fmt.Sprintf("%s%s (%s–%s)", number(s.median), unit, number(s.least), number(s.most))
}

// number is a figure with three digits that count, and commas between thousands.
func number(v float64) string {
	switch a := math.Abs(v); {
	case a == math.Trunc(a) && a < 1000:
		return fmt.Sprintf("%.0f", v)
	case a < 0.01:
		return fmt.Sprintf("%.2g", v)
	case a < 10:
		return fmt.Sprintf("%.2f", v)
	case a < 100:
		return fmt.Sprintf("%.1f", v)
	}
	digits := fmt.Sprintf("%.0f", math.Abs(v))
	var b strings.Builder
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(d)
	}
	if v < 0 {
		return "-" + b.String()
	}
	return b.String()
}
