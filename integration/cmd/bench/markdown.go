package main

import (
	"cmp"
	_ "embed"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"text/template"

	"kudos/bench"
)

// document is the template of docs/benchmarks.md. Its table rows are cells, which it joins with bars.
//
//go:embed benchmarks.md.tmpl
var document string

func rows(table [][]string) string {
	var b strings.Builder
	for _, cells := range table {
		b.WriteString("|" + strings.Join(cells, "|") + "|\n")
	}
	return b.String()
}

type page struct{ *bench.Report }

// markdown renders the report. The same report gives the same text.
func markdown(r *bench.Report) (string, error) {
	t, err := template.New("benchmarks").Funcs(template.FuncMap{"rows": rows}).Parse(document)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	err = t.Execute(&b, page{r})
	return b.String(), err
}

// Targets are the targets that were set before measuring.
func (p page) Targets() (table [][]string) {
	add := func(what, sign string, want float64, unit string, reached bench.Stat) {
		mark := "**no**"
		if reached.Rounds == 0 {
			mark = "not measured"
		} else if sign == "≥" && reached.Median >= want || sign == "≤" && reached.Median <= want {
			mark = "yes"
		}
		table = append(table, []string{what, sign + " " + bench.Number(want) + unit, reached.With(unit), mark})
	}
	for _, t := range []struct {
		load, quantile string
		want           float64
	}{
		{"1,000/s", "p50", 15}, {"1,000/s", "p99", 40}, {"20,000/s", "p50", 15}, {"20,000/s", "p99", 40},
		{"100,000/s", "p99", 75}, {"50 %", "p99", 100}, {"80 %", "p99", 250},
	} {
		add("publish to MySQL, "+t.quantile+" at "+inWords(t.load), "≤", t.want, " ms",
			p.latency(t.load, "visible in MySQL, "+t.quantile))
	}
	slowest, live := "", bench.Stat{}
	for _, load := range p.LatencyLoads() {
		if at := p.latency(load, "visible in the live stream, p99"); at.Rounds > 0 && at.Median >= live.Median {
			slowest, live = ": "+inWords(load), at
		}
	}
	add("publish to live stream, p99 at the slowest load"+slowest, "≤", 300, " ms", live)
	add("sustainable rate / drain rate", "≥", 40, " %", p.Sustained(kudosName, bench.SustainableFigures[2].Of))
	for _, shape := range []string{"hot", "skewed-1000"} {
		add(shape+": CPU of the processor per million events", "≤", 2, " s",
			p.Drains(shape, kudosName, bench.CPUPerMillion(bench.ContenderProcess)))
	}
	add("CPU of the processor at "+inWords("1,000/s"), "≤", 5, " % of a core",
		p.latency("1,000/s", "CPU of the processor"))
	for i, shape := range bench.ShapeNames() {
		add(shape+": kudos / redis", "≥", []float64{1.5, 2, 1.2, 1.2}[i], "×", p.ratio(shape, "redis"))
	}
	add("recovery, pairs/s", "≥", 2_000_000, "",
		p.Recoveries(func(r *bench.Recovery) float64 { return r.EntriesPerSecond }))
	add("recovery after SIGKILL, from the assignment", "≤", 1, " s",
		p.Recoveries((*bench.Recovery).AfterKill))
	return table
}

// latency is a figure of kudos at a load, by the figure's name.
func (p page) latency(load, of string) bench.Stat {
	figures := bench.LatencyFigures
	i := slices.IndexFunc(figures, func(f bench.Figure[*bench.LatencyLevel]) bool { return f.Name == of })
	return p.Latencies(kudosName, load, figures[i].Of)
}

// inWords describes a load that bench.LatencyLevel.Load names.
func inWords(load string) string {
	if strings.HasSuffix(load, "%") {
		return load + " of the sustainable rate"
	}
	return load + " on one post"
}

func eventsPerSecond(d *bench.Drain) float64 { return d.EventsPerSecond }

// allCPUPerMillion is the CPU seconds of all processes together per 10⁶ events.
func allCPUPerMillion(d *bench.Drain) float64 {
	if len(d.Used) == 0 {
		return math.NaN()
	}
	sum := 0.0
	for _, name := range slices.Sorted(maps.Keys(d.Used)) { // sorted, otherwise the last digit would vary
		sum += d.Used[name].CPUSeconds
	}
	return sum / float64(d.Events) * 1e6
}

// ratio is the rate of kudos relative to a peer's, within each round.
func (p page) ratio(shape, peer string) bench.Stat {
	rates := map[string]map[int]float64{kudosName: {}, peer: {}}
	for _, run := range p.Runs {
		if run.Drain != nil && run.Load.Shape.Name == shape && rates[run.Label()] != nil {
			rates[run.Label()][run.Round] = run.Drain.EventsPerSecond
		}
	}
	var values []float64
	for round, ours := range rates[kudosName] {
		if theirs, ok := rates[peer][round]; ok {
			values = append(values, ours/theirs)
		}
	}
	return bench.StatOf(values)
}

// DrainRows are the rows of the contenders that drained a shape.
func (p page) DrainRows(shape string) (table [][]string) {
	for _, name := range p.Order() {
		figure := func(of func(*bench.Drain) float64) string { return p.Drains(shape, name, of).With("") }
		events := p.Drains(shape, name, func(d *bench.Drain) float64 { return float64(d.Events) })
		if events.Rounds == 0 {
			continue
		}
		compared := ""
		if name != kudosName {
			compared = p.ratio(shape, name).With("×")
		}
		peak := figure(bench.PeakMiB(bench.ContenderProcess))
		if redis := figure(bench.PeakMiB("redis")); redis != "" {
			peak += ", Redis " + redis
		}
		table = append(table, []string{
			name, bench.Number(events.Median), figure(eventsPerSecond), compared,
			figure(bench.CPUPerMillion(bench.ContenderProcess)), figure(allCPUPerMillion), peak,
			figure((*bench.Drain).RowsPerEvent), figure((*bench.Drain).BytesPerPair),
		})
	}
	return table
}

// SustainableRows are the rows of the contenders whose sustainable rate is known.
func (p page) SustainableRows() (table [][]string) {
	for _, name := range p.Order() {
		cells := []string{name}
		for _, f := range bench.SustainableFigures {
			cells = append(cells, p.Sustained(name, f.Of).With(""))
		}
		if cells[1] != "" {
			table = append(table, cells)
		}
	}
	return table
}

// LatencyRows are the rows of each load and contender.
func (p page) LatencyRows() (table [][]string) {
	for _, load := range p.LatencyLoads() {
		for _, name := range p.Order() {
			cells := []string{load, name}
			for _, f := range bench.LatencyFigures {
				cells = append(cells, p.Latencies(name, load, f.Of).With(""))
			}
			if cells[2] != "" {
				table = append(table, cells)
			}
		}
	}
	return table
}

// Processes says what ran on the machine. Earlier reports do not know.
func (p page) Processes() string {
	all, loads := map[string]bool{}, []float64(nil)
	for _, run := range p.Runs {
		for _, process := range run.Processes {
			all[process] = true
		}
		if len(run.Processes) > 0 {
			loads = append(loads, run.LoadAverage)
		}
	}
	if len(all) == 0 {
		return ":"
	}
	names := strings.Join(slices.Sorted(maps.Keys(all)), ", ")
	return fmt.Sprintf(" (%s),\nload average at the start of a run: %s.", names, bench.StatOf(loads).With(""))
}

// RecoveryRows are the rows of kudos' recovery.
func (p page) RecoveryRows() (table [][]string) {
	for _, f := range bench.RecoveryFigures {
		if figure := p.Recoveries(f.Of); figure.Rounds > 0 || len(table) > 0 {
			table = append(table, []string{f.Name, figure.With("")})
		}
	}
	return table
}

// AcceptingRows are the rows of the producer's endpoints.
func (p page) AcceptingRows() (table [][]string) {
	first := p.Accepted()
	if first == nil {
		return nil
	}
	for i, e := range first.Producer.Endpoints() {
		cells := []string{bench.RequestsOf(e), fmt.Sprint(e.Connections)}
		for _, f := range bench.AcceptingFigures {
			cells = append(cells, p.Accepting(i, f.Of).With(""))
		}
		table = append(table, cells)
	}
	return table
}

func (p page) AcceptedPosts() string { return bench.Number(float64(p.Accepted().Load.Shape.Posts)) }
func (p page) LatencyLimit() string  { return bench.Number(p.Accepted().Producer.LatencyLimitMs) }
func (p page) MemoryGiB() float64    { return float64(p.Machine.MemoryBytes) / (1 << 30) }

func (p page) Rounds() (rounds int) {
	for _, run := range p.Runs {
		rounds = max(rounds, run.Round)
	}
	return rounds
}

// Commits are the report's commit, and those of measurements of other commits.
func (p page) Commits() string {
	commits := p.Commit
	for _, run := range p.Runs {
		if of := measured(&run) + ": " + run.Commit; run.Commit != "" && !strings.Contains(commits, of) {
			commits += ", " + of
		}
	}
	return commits
}

// Order is the order of contenders in tables: known ones first, then others.
func (p page) Order() []string {
	names := map[string]bool{}
	for _, run := range p.Runs {
		names[run.Label()] = true
	}
	place := func(label string) int {
		name, _, _ := strings.Cut(label, ",")
		if i := slices.Index(known, name); i >= 0 {
			return i
		}
		return len(known)
	}
	return slices.SortedFunc(maps.Keys(names), func(a, b string) int {
		return cmp.Or(cmp.Compare(place(a), place(b)), cmp.Compare(a, b))
	})
}
