package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

type lab struct {
	options
	root, dir string
	// baselines are the reliable tests by package, determined once for all its mutants.
	baselines map[string]func() (reliable map[string]bool, err error)
}

func newLab(o options) (*lab, error) {
	root, err := root()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "kudos-mutants-")
	return &lab{options: o, root: root, dir: dir, baselines: map[string]func() (map[string]bool, error){}}, err
}

// The outcome of a mutant: caught, survived, or another text that says what to examine.
const (
	caught   = "caught"
	survived = "SURVIVED: the tests pass"
)

func first(text string) string { line, _, _ := strings.Cut(text, "\n"); return line }

// finding matches the first message of a failing test: the failed part, or the reason.
var finding = regexp.MustCompile(`seed \d+: .*|Messages: .*|waited .*|panic: .*`)

func (l *lab) prepare(ctx context.Context, mutants []mutant) {
	catchers := map[string][]catcher{}
	for _, m := range mutants {
		if !slices.Contains(catchers[m.by.pkg], m.by) {
			catchers[m.by.pkg] = append(catchers[m.by.pkg], m.by)
		}
	}
	for pkg, all := range catchers {
		union := all[0]
		for _, c := range all[1:] {
			union.run += "|" + c.run
		}
		l.baselines[pkg] = sync.OnceValues(func() (map[string]bool, error) {
			r, err := l.test(ctx, union, "", baselineRuns, baselineRuns*time.Duration(len(all))*l.timeout)
			if err != nil {
				return nil, err
			}
			if !r.built {
				return nil, errors.New(failure("does not build", r))
			}
			return r.reliable(), nil
		})
	}
}

// try runs a mutant's tests. A test that fails without the mutant catches nothing.
func (l *lab) try(ctx context.Context, m mutant) (status string, by []string, said string) {
	dir, err := os.MkdirTemp(l.dir, "")
	if err != nil {
		return err.Error(), nil, ""
	}
	defer os.RemoveAll(dir)
	overlay, err := l.overlay(dir, m.edits)
	if err != nil {
		return err.Error(), nil, ""
	}
	reliable, err := l.baselines[m.by.pkg]()
	if err != nil {
		return "ERROR: without the mutant: " + err.Error(), nil, ""
	}
	r, err := l.test(ctx, m.by, overlay, 1, l.timeout)
	if err != nil {
		return "ERROR: " + err.Error(), nil, ""
	}
	status, by = assess(reliable, r)
	return status, by, strings.Join(strings.Fields(finding.FindString(r.output.String())), " ")
}

func (l *lab) overlay(dir string, edits []edit) (string, error) {
	changed := map[string]string{}
	for _, e := range edits {
		path := filepath.Join(l.root, e.file)
		text, ok := changed[path]
		if !ok {
			b, err := os.ReadFile(path)
			if err != nil {
				return "", err
			}
			text = string(b)
		}
		if n := strings.Count(text, e.old); n != 1 {
			return "", fmt.Errorf("%s has the text to replace %d times, not once: the code has changed, update table.go\n%s", e.file, n, e.old)
		}
		changed[path] = strings.Replace(text, e.old, e.new, 1)
	}
	places := map[string]string{}
	for path, text := range changed {
		places[path] = filepath.Join(dir, strconv.Itoa(len(places))+"-"+filepath.Base(path))
		if err := os.WriteFile(places[path], []byte(text), 0o644); err != nil {
			return "", err
		}
	}
	b, err := json.Marshal(map[string]any{"Replace": places})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, b, 0o644)
}

func (l *lab) test(ctx context.Context, by catcher, overlay string, times int, timeout time.Duration) (*result, error) {
	args := []string{"test", "-json", "-vet=off", "-pgo=off", "-ldflags=-s -w", // no debugger: halves link time
		"-count", strconv.Itoa(times), "-timeout", timeout.String(), "-run", "^(" + by.run + ")"}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	args = append(args, ".")
	if by == simulation {
		n := l.schedules
		if overlay == "" {
			n = 500 // fewer than in make test
		}
		args = append(args, "-args", "-schedules", strconv.Itoa(n), "-violations", "1", "-shrink", "0")
	}
	ctx, cancel := context.WithTimeout(ctx, timeout+2*time.Minute) // includes the build
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = filepath.Join(l.root, by.pkg)
	cmd.WaitDelay = time.Minute
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if err != nil && !errors.As(err, new(*exec.ExitError)) || ctx.Err() != nil {
		return nil, fmt.Errorf("go test did not finish: %w\n%s", errors.Join(err, ctx.Err()), stderr.String())
	}
	r, err := readResult(&stdout)
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, stderr.String())
	}
	r.output.WriteString(stderr.String())
	return r, nil
}
