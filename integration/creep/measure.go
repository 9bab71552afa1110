package creep

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"
)

const parallel = 2

// Program is integration/cmd/creep, built like the product: without the race detector, and without Go's build tag
// "valgrind", which makes the allocator talk to valgrind and recompiles the standard library, without need.
type Program struct{ path string }

// Build builds the program in a directory.
func Build(ctx context.Context, dir string) (*Program, error) {
	p := &Program{filepath.Join(dir, "creep")}
	cmd := exec.CommandContext(ctx, "go", "build", "-pgo=off", "-o", p.path, "kudos/integration/cmd/creep")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building the measured program: %w\n%s", err, out)
	}
	return p, nil
}

// Count counts all workloads.
func (p *Program) Count(ctx context.Context) (map[string]Figures, error) {
	allocations, err := p.allocations(ctx)
	if err != nil {
		return nil, err
	}
	list := Workloads()
	figures := make([]Figures, len(list))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for i, w := range list {
		figures[i].AllocationsPer1000Events = allocations[w.Name] / float64(w.Events) * 1000
		g.Go(func() (err error) { figures[i].InstructionsPerEvent, err = p.instructions(ctx, w); return err })
	}
	err = g.Wait()
	counted := map[string]Figures{}
	for i, w := range list {
		counted[w.Name] = figures[i]
	}
	return counted, err
}

// run runs the program so that nothing depends on time: one thread for Go code, no garbage collection, no preemption.
func (p *Program) run(ctx context.Context, name string, args ...string) (stdout, stderr []byte, err error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1", "GOGC=off", "GODEBUG=asyncpreemptoff=1")
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	if stdout, err = cmd.Output(); err != nil {
		err = fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, &errOut)
	}
	return stdout, errOut.Bytes(), err
}

func (p *Program) allocations(ctx context.Context) (perRepetition map[string]float64, err error) {
	out, _, err := p.run(ctx, p.path, "allocations")
	if err == nil {
		err = json.Unmarshal(out, &perRepetition)
	}
	if err != nil {
		return nil, fmt.Errorf("counting allocations: %w", err)
	}
	return perRepetition, nil
}

// instructions subtracts one run's count from that of twice the repetitions: the process's one-time costs cancel out.
func (p *Program) instructions(ctx context.Context, w Workload) (float64, error) {
	once, err := p.total(ctx, w, w.Repetitions)
	if err != nil {
		return 0, err
	}
	twice, err := p.total(ctx, w, 2*w.Repetitions)
	if err != nil {
		return 0, err
	}
	return float64(twice-once) / float64(w.Repetitions*w.Events), nil
}

// instructionCount matches cachegrind's output: "I   refs:      54,947,587".
var instructionCount = regexp.MustCompile(`(?m)\bI\s+refs:\s+([\d,]+)\s*$`)

// total is the lower of two counts of a process's instructions. The runtime's own threads wake up by the clock, more
// often in a longer run on a busy machine, and only add: one count of fold/1000_posts was 50 % above the others.
func (p *Program) total(ctx context.Context, w Workload, repetitions int) (int64, error) {
	first, err := p.count(ctx, w, repetitions)
	if err != nil {
		return 0, err
	}
	second, err := p.count(ctx, w, repetitions)
	return min(first, second), err
}

func (p *Program) count(ctx context.Context, w Workload, repetitions int) (int64, error) {
	_, report, err := p.run(ctx, "valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null",
		p.path, "run", w.Name, strconv.Itoa(repetitions))
	if err != nil {
		return 0, fmt.Errorf("counting the instructions of %s: %w", w.Name, err)
	}
	found := instructionCount.FindSubmatch(report)
	if found == nil {
		return 0, fmt.Errorf("counting the instructions of %s: valgrind's report has no line \"I refs\":\n%s", w.Name,
			report)
	}
	return strconv.ParseInt(strings.ReplaceAll(string(found[1]), ",", ""), 10, 64)
}
