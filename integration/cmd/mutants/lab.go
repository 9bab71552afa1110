package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// lab builds mutants and runs their tests.
type lab struct {
	options
	root, dir string
	sane      map[catcher]string // verdict on the program as it is
}

func newLab(o options) (*lab, error) {
	root, err := root()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "kudos-mutants-")
	if err != nil {
		return nil, err
	}
	return &lab{o, root, dir, map[catcher]string{}}, nil
}

// What becomes of a mutant: caught, or else a text that says why not.
const (
	caught   = "caught"
	survived = "the test passes"
)

func first(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

// try builds a mutant's test and runs it. The test must pass without the mutant: one that
// fails anyway catches nothing.
func (l *lab) try(ctx context.Context, m mutant) string {
	overlay, err := l.overlay(m.edits)
	if err != nil {
		return err.Error()
	}
	verdict, known := l.sane[m.by]
	if !known {
		verdict = l.test(ctx, m.by, "")
		l.sane[m.by] = verdict
	}
	if verdict != survived {
		return "the test does not pass without the mutant: " + verdict
	}
	return l.test(ctx, m.by, overlay)
}

// overlay writes the changed copies, and what puts them in their places.
func (l *lab) overlay(edits []edit) (string, error) {
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
			return "", fmt.Errorf("%s has the text to take out %d times, not once: the code has changed, bring table.go up to date\n%s", e.file, n, e.old)
		}
		changed[path] = strings.Replace(text, e.old, e.new, 1)
	}
	places := map[string]string{}
	for path, text := range changed {
		places[path] = filepath.Join(l.dir, strconv.Itoa(len(places))+"-"+filepath.Base(path))
		if err := os.WriteFile(places[path], []byte(text), 0o644); err != nil {
			return "", err
		}
	}
	b, err := json.Marshal(map[string]any{"Replace": places})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(l.dir, "overlay.json")
	return overlay, os.WriteFile(overlay, b, 0o644)
}

// test builds a test, with an overlay or without, and runs it.
func (l *lab) test(ctx context.Context, by catcher, overlay string) string {
	dir, binary := filepath.Join(l.root, by.pkg), filepath.Join(l.dir, "mutant.test")
	args := []string{"test", "-c", "-o", binary}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	if out, err := command(ctx, dir, "go", append(args, ".")...); err != nil {
		return fmt.Sprintf("does not build\n%s", out)
	}
	args = []string{"-test.run", "^(" + by.run + ")", "-test.timeout", l.timeout.String(), "-test.v"}
	if by == simulation {
		n := l.schedules
		if overlay == "" {
			n = 500 // make test runs more
		}
		args = append(args, "-schedules", strconv.Itoa(n), "-violations", "1")
	}
	ctx, cancel := context.WithTimeout(ctx, l.timeout+time.Minute)
	defer cancel()
	out, err := command(ctx, dir, binary, args...)
	var exit *exec.ExitError
	switch {
	case err == nil && strings.Contains(out, "no tests to run"), err == nil && strings.Contains(out, "--- SKIP"):
		return fmt.Sprintf("the test did not run\n%s", tail(out))
	case err == nil:
		return survived
	case !errors.As(err, &exit) || ctx.Err() != nil:
		return fmt.Sprintf("the test did not end: %v\n%s", err, tail(out))
	case strings.Contains(out, "panic: test timed out"):
		return fmt.Sprintf("the test did not end within %v\n%s", l.timeout, tail(out))
	case overlay == "":
		return fmt.Sprintf("it fails\n%s", tail(out))
	}
	return caught
}

func command(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.WaitDelay = time.Minute
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func tail(out string) string { return out[max(0, len(out)-2000):] }
