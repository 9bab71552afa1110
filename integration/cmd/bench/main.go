// Command bench compares kudos with common alternatives, on real servers that it starts from scratch for each run, and
// writes JSON and docs/benchmarks.md. `make bench` runs it; `kudos bench` measures only kudos, on existing servers.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/term"

	"kudos/bench"
)

type settings struct {
	contenders, shapes, measure, brokers  string
	percents, rates                       []int
	events, rounds, seconds, slower, slow int
	seed                                  uint64
	json, markdown, dir, profiles         string
	quick, keep, reader                   bool
	out                                   *os.File
}

func main() {
	s := settings{out: os.Stdout}
	flag.StringVar(&s.contenders, "contenders", "",
		"comma-separated: kudos, redis, goka, streams, sql (default: all whose source is present)")
	flag.StringVar(&s.shapes, "shapes", "hot,skewed-1000,skewed-1000000,uniform", "comma-separated workloads to drain")
	flag.StringVar(&s.measure, "measure", "drain,sustainable,latency,recovery,producer",
		"comma-separated measurements; sustainable: the highest rate, and latency at shares of it; latency: at fixed "+
			"rates on one post")
	flag.StringVar(&s.brokers, "broker", bench.DefaultBroker, "comma-separated configurations of Kafka to measure: "+
		"default, and tuned ("+retryBackoff+"=1)")
	flag.Func("percents", "comma-separated percentages of the sustainable rate for latency (default: 10,50,80)",
		func(list string) (err error) { s.percents, err = numbers(list); return err })
	flag.Func("rates", "comma-separated events/s on one post for latency (default: 1000,20000,100000)",
		func(list string) (err error) { s.rates, err = numbers(list); return err })
	flag.IntVar(&s.seconds, "seconds", 0, "how long latency is measured at each rate (default: 20; 2 with -quick); "+
		"in the search for the sustainable one three times as long")
	flag.BoolVar(&s.reader, "reader", true, "measure latency of kudos in a reader, too, in a second pass")
	flag.IntVar(&s.events, "events", 0,
		"events per workload (default: 5,000,000, uniform 10,000,000, before latency 2,000,000)")
	flag.IntVar(&s.slower, "slower-events", 500_000,
		"events for goka and streams, which are an order of magnitude slower (0: as for the others)")
	flag.IntVar(&s.slow, "sql-events", 50_000,
		"events for sql, which is two orders of magnitude slower (0: as for the others)")
	flag.IntVar(&s.rounds, "rounds", 5, "number of rounds; each measures everything once")
	flag.Uint64Var(&s.seed, "seed", 1, "seed of the generated events")
	flag.BoolVar(&s.quick, "quick", false, "trial run of a minute: one round of kudos alone with few events")
	flag.StringVar(&s.json, "json", "", "write the report as JSON to this `file`, after each run")
	flag.StringVar(&s.markdown, "markdown", "", "write the report as Markdown to this `file`, after each run")
	flag.StringVar(&s.dir, "dir", "",
		"existing `directory` for data and logs (default: a new one, removed after a run without failures)")
	flag.StringVar(&s.profiles, "profiles", "",
		"existing `directory` for CPU profiles of kudos, one of the first seconds of each drain")
	flag.BoolVar(&s.keep, "keep", false, "always keep data and logs")
	render := flag.String("render", "",
		"measure nothing: write -json and -markdown from these comma-separated JSON `files`, the parts of one "+
			"measurement")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "bench: unexpected argument %q: only flags are accepted, see -help\n", flag.Arg(0))
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := s.run(ctx, *render)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		os.Exit(1)
	}
}

func (s *settings) run(ctx context.Context, render string) (err error) {
	if render != "" {
		return s.render(words(render))
	}
	root, err := projectRoot(ctx)
	if err != nil {
		return err
	}
	temporary := s.dir == ""
	if temporary {
		if s.dir, err = os.MkdirTemp("", "kudos-bench-"); err != nil {
			return err
		}
		if err := os.Chmod(s.dir, 0o755); err != nil { // the database's account must be able to enter it
			return err
		}
	}
	defer func() {
		if temporary && err == nil && !s.keep {
			err = os.RemoveAll(s.dir)
			return
		}
		fmt.Fprintf(os.Stderr, "logs are in %s\n", s.dir)
	}()
	plan, err := s.plan()
	if err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(s.dir, "bench.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	plan.Progress("building the contenders", true)
	if plan.Contenders, err = build(ctx, root, s.dir, words(s.contenders), s.profiles); err != nil {
		return err
	}
	plan.Site = &servers{dir: s.dir, log: slog.New(slog.NewTextHandler(log, nil))}
	plan.Dir, plan.Each = s.dir, s.write
	report := bench.NewReport(commit(ctx, root), plan.Contenders...)
	describe(ctx, report)
	if s.quick {
		report.Settings["trial"] = "few events, one round: these figures show that the measurement works, not how " +
			"fast kudos is"
	}
	if err := plan.Run(ctx, report); err != nil {
		return err
	}
	text, err := markdown(report)
	if err == nil {
		_, err = fmt.Fprint(s.out, "\n", text)
	}
	return errors.Join(err, report.Failed())
}

func (s *settings) plan() (*bench.Plan, error) {
	if s.quick {
		s.rounds, s.events, s.seconds = 1, 200_000, cmp.Or(s.seconds, 2)
		s.contenders = cmp.Or(s.contenders, kudosName)
	}
	p := &bench.Plan{Rounds: s.rounds, Brokers: words(s.brokers),
		Progress: bench.NewProgress(s.out, term.IsTerminal(int(s.out.Fd()))),
		EventsOf: map[string]int{"goka": s.slower, "streams": s.slower, "sql": s.slow}}
	for _, broker := range p.Brokers {
		if _, ok := brokerProperties[broker]; !ok {
			return nil, fmt.Errorf("unknown broker %q; must be %s or tuned", broker, bench.DefaultBroker)
		}
	}
	for _, what := range words(s.measure) {
		switch what {
		case "drain":
			for _, name := range words(s.shapes) {
				shape, err := bench.ShapeNamed(name)
				if err != nil {
					return nil, err
				}
				events := cmp.Or(s.events, map[string]int{"uniform": 10_000_000}[name], 5_000_000)
				p.Drains = append(p.Drains, bench.Workload{Seed: s.seed, Shape: shape, Events: events})
			}
		case "sustainable", "latency":
			p.Latency = append(p.Latency, s.latency(what))
		case "recovery":
			p.Recovery = bench.DefaultRecovery(s.seed)
			if s.quick {
				p.Recovery.Events = 500_000
			}
		case "producer":
			p.Producer = bench.DefaultProducerPlan()
			if s.quick {
				p.Producer.HoldEach(time.Second)
			}
		default:
			return nil, fmt.Errorf("unknown measurement %q; must be one of drain, sustainable, latency, "+
				"recovery and producer", what)
		}
	}
	return p, nil
}

func (s *settings) latency(measure string) *bench.LatencyPlan {
	p, fixed := bench.DefaultLatencyPlans(s.seed)
	if len(s.percents) > 0 {
		p.Percents = s.percents
	}
	if measure == "latency" {
		if p = fixed; len(s.rates) > 0 {
			p.Rates = s.rates
		}
	}
	p.Reader, p.Load.Events = s.reader, cmp.Or(s.events, p.Load.Events)
	if s.seconds > 0 {
		p.HoldEach(time.Duration(s.seconds) * time.Second)
	}
	return p
}

func numbers(list string) (numbers []int, err error) {
	for _, word := range words(list) {
		n, err := strconv.Atoi(word)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%q is not a number above 0", word)
		}
		numbers = append(numbers, n)
	}
	return numbers, nil
}

// projectRoot is the directory of go.mod: peers are built from source.
func projectRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "kudos").Output()
	if err != nil {
		return "", fmt.Errorf("finding the source of kudos (run this in its directory): %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// commit identifies the state of the source, "" without Git.
func commit(ctx context.Context, root string) string {
	out, _ := exec.CommandContext(ctx, "git", "-C", root, "describe", "--always", "--dirty").Output()
	return strings.TrimSpace(string(out))
}

func describe(ctx context.Context, r *bench.Report) {
	for name, command := range map[string][]string{
		"Go": {"go", "env", "GOVERSION"}, "Java": {"java", "-version"}, "Redis": {"redis-server", "--version"},
	} {
		out, err := exec.CommandContext(ctx, command[0], command[1:]...).CombinedOutput()
		if err != nil {
			continue // not installed: no contender uses it
		}
		first, _, _ := strings.Cut(string(out), "\n")
		r.Versions[name] = strings.TrimSpace(first)
	}
	r.Settings["MariaDB"] = "innodb_flush_log_at_trx_commit=1, sync_binlog=1, binary log on, otherwise as shipped"
	r.Settings["Kafka"] = "one broker, replication 1, heap 512 MB, serial garbage collector, first compiler only; " +
		"otherwise as shipped"
	r.Settings["Kafka, tuned broker"] = retryBackoff + "=1" // in runs with that broker
	r.Settings["Redis"] = "appendonly yes, appendfsync everysec, no snapshots"
}
