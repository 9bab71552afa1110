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
	"kudos/bench/producer"
)

// document is the template of docs/benchmarks.md. Its table rows are cells, which it joins with bars.
//
//go:embed benchmarks.md.tmpl
var document string

func rows(table [][]string) string {
	var b strings.Builder
	for _, cells := range table {
		b.WriteString("| " + strings.Join(cells, " | ") + " |\n")
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
	faster := func(shape, peer string, want float64) {
		add(fmt.Sprintf("%s: kudos / %s", shape, peer), "≥", want, "×", p.ratio(shape, peer))
	}
	latency := func(of string) bench.Stat {
		figures := bench.LatencyFigures
		i := slices.IndexFunc(figures, func(f bench.Figure[*bench.LatencyLevel]) bool { return f.Name == of })
		return p.Latencies(kudosName, 50, figures[i].Of)
	}
	faster("skewed-1000", "redis", 3)
	faster("skewed-1000", "goka", 8)
	faster("skewed-1000", "streams", 8)
	faster("skewed-1000", "sql", 100)
	add("hot, one partition: events/s", "≥", 500_000, "", p.Drains("hot", kudosName, eventsPerSecond))
	faster("hot", "redis", 2)
	faster("uniform", "redis", 1)
	add("publish to visible in MySQL, p99 at 50 % load", "≤", 150, " ms", latency("visible in MySQL, p99"))
	add("publish to visible in the reader, p99 at 50 % load", "≤", 150, " ms", latency("visible in the reader, p99"))
	add("like accepted, p99 at 50 % of capacity", "≤", 100, " ms",
		p.Accepting(0, func(e *producer.Endpoint) float64 { return e.Half.P99Ms }))
	add("state on disk after compaction, bytes per pair (recovery's state)", "≤", 24, "",
		p.Recoveries(func(r *bench.Recovery) float64 { return r.Drained.BytesPerPair() }))
	add("recovery, entries/s", "≥", 1_000_000, "",
		p.Recoveries(func(r *bench.Recovery) float64 { return r.EntriesPerSecond }))
	add("resident memory with recovery's state", "≤", 1024, " MiB", p.Recoveries(mostRSS))
	return table
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

// mostRSS is the larger of a process's memory after draining that many pairs and after recovering them, in MiB.
func mostRSS(r *bench.Recovery) float64 {
	if r.RSSBytes == 0 {
		return math.NaN()
	}
	return float64(max(r.RSSBytes, r.Drained.RSSBytes)) / (1 << 20)
}

// ratio is the rate of kudos relative to a peer's, within each round.
func (p page) ratio(shape, peer string) bench.Stat {
	rates := map[string]map[int]float64{kudosName: {}, peer: {}}
	for _, run := range p.Runs {
		if run.Drain != nil && run.Load.Shape.Name == shape && rates[run.Contender] != nil {
			rates[run.Contender][run.Round] = run.Drain.EventsPerSecond
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

// LatencyLoad is the workload of the latency measurement.
func (p page) LatencyLoad() bench.Workload {
	_, load := p.Percents()
	return load
}

// LatencyRows are the rows of each contender at each percentage of its rate.
func (p page) LatencyRows() (table [][]string) {
	percents, _ := p.Percents()
	for _, name := range p.Order() {
		for _, percent := range percents {
			rate := p.Latencies(name, percent, func(l *bench.LatencyLevel) float64 { return l.EventsPerSecond })
			if rate.Rounds == 0 {
				continue
			}
			cells := []string{name, fmt.Sprintf("%d %%", percent), bench.Number(rate.Median)}
			for _, f := range bench.LatencyFigures {
				cells = append(cells, p.Latencies(name, percent, f.Of).With(""))
			}
			table = append(table, cells)
		}
	}
	return table
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
	_, first := p.Accepted()
	if first == nil {
		return nil
	}
	for i, e := range first.Endpoints() {
		cells := []string{bench.RequestsOf(e), fmt.Sprint(e.Connections)}
		for _, f := range bench.AcceptingFigures {
			cells = append(cells, p.Accepting(i, f.Of).With(""))
		}
		table = append(table, cells)
	}
	return table
}

// AcceptingLoad is the workload of the producer measurement.
func (p page) AcceptingLoad() bench.Workload {
	load, _ := p.Accepted()
	return load
}

func (p page) AcceptedPosts() string { return bench.Number(float64(p.AcceptingLoad().Shape.Posts)) }

func (p page) LatencyLimit() string {
	_, first := p.Accepted()
	return bench.Number(first.LatencyLimitMs)
}

func (p page) MemoryGiB() float64 { return float64(p.Machine.MemoryBytes) / (1 << 30) }

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
		names[run.Contender] = true
	}
	place := func(name string) int {
		if i := slices.Index(known, name); i >= 0 {
			return i
		}
		return len(known)
	}
	return slices.SortedFunc(maps.Keys(names), func(a, b string) int {
		return cmp.Or(cmp.Compare(place(a), place(b)), cmp.Compare(a, b))
	})
}
