// Command gremlins tests the tests of the packages that keep counts exact: Gremlins (https://gremlins.dev) mutates a
// sample of operators there, and the command counts how many mutants the tests of the same package kill.
//
// Gremlins cannot sample, but it can skip what a diff does not touch. So the command clones the repository at HEAD, and
// creates a base commit in which the sampled lines are empty. It fails if too few mutants are killed or tested in time,
// or if one survives that survivors.txt does not explain.
package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

type target struct {
	pkg   string
	files *regexp.Regexp
}

var all = regexp.MustCompile("")

var targets = []target{
	{"processor/fold", all},
	{"ranker/window", all},
	{"sql", regexp.MustCompile(`^apply\.go$`)},
	{"stream", regexp.MustCompile(`^(partition|queue|poll|session|group)\.go$`)},
	{"stream/kafka", regexp.MustCompile(`^txn\.go$`)},
	{"ops/audit", all},
	{"ops/rebuild", all},
}

//go:embed survivors.txt
var survivors string

func main() {
	size := flag.Int("mutants", 400, "`number` of mutants to sample")
	seed := flag.Uint64("seed", 1, "seed of the sample")
	least := flag.Float64("least", 85, "minimum percentage of killed mutants")
	only := flag.String("only", "", "only packages that match this regular expression")
	within := flag.Duration("for", 90*time.Minute, "time limit; the remaining mutants are not tested")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, *within)
	defer cancel()
	if err := run(ctx, *size, *seed, *least, *only); err != nil {
		fmt.Fprintln(os.Stderr, "gremlins:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, size int, seed uint64, least float64, only string) error {
	fits, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	l, err := newLab(ctx)
	if err != nil {
		return err
	}
	defer os.RemoveAll(l.dir)
	var found []mutation
	for _, t := range targets {
		if !fits.MatchString(t.pkg) {
			continue
		}
		mutations, err := l.unleash(ctx, t, "--dry-run")
		if err != nil {
			return err
		}
		found = append(found, mutations...)
		fmt.Printf("%s: %d mutants\n", t.pkg, len(mutations))
	}
	chosen := sample(found, size, seed)
	if err := l.leaveOut(ctx, chosen); err != nil {
		return err
	}
	chosenIn := map[string]int{} // by package
	for _, m := range chosen {
		chosenIn[m.Pkg]++
	}
	var tested []mutation
	for _, t := range targets {
		n := chosenIn[t.pkg]
		if n == 0 {
			continue
		}
		begun := time.Now()
		mutations, err := l.unleash(ctx, t, "--diff", base)
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			fmt.Printf("%s: its %d mutants were not tested in time\n", t.pkg, n)
			break
		}
		if err != nil {
			return err
		}
		tested = append(tested, mutations...)
		fmt.Printf("%s: %d mutants tested in %v\n", t.pkg, n, time.Since(begun).Round(time.Second))
	}
	return report(tested, chosen, survivors, least)
}

type lab struct{ dir, repo, gremlins string }

func newLab(ctx context.Context) (*lab, error) {
	gremlins, err := output(ctx, ".", "go", "tool", "-modfile=tools/go.mod", "-n", "gremlins")
	if err != nil {
		return nil, fmt.Errorf("finding gremlins (run this in the root of the repository): %w", err)
	}
	dir, err := os.MkdirTemp("", "kudos-gremlins-")
	if err != nil {
		return nil, err
	}
	l := &lab{dir: dir, repo: filepath.Join(dir, "kudos"), gremlins: strings.TrimSpace(gremlins)}
	_, err = output(ctx, ".", "git", "clone", "-q", ".", l.repo)
	return l, err
}

func (l *lab) unleash(ctx context.Context, t target, args ...string) ([]mutation, error) {
	out := filepath.Join(l.dir, "report.json")
	_ = os.Remove(out)
	args = append([]string{"unleash", "--workers", "2", "--timeout-coefficient", "10", "-o", out}, args...)
	said, err := output(ctx, filepath.Join(l.repo, t.pkg), l.gremlins, args...)
	if err != nil {
		return nil, err
	}
	b, err := os.ReadFile(out)
	if os.IsNotExist(err) {
		return nil, fmt.Errorf("no report for %s:\n%s", t.pkg, said)
	}
	if err != nil {
		return nil, err
	}
	var r struct {
		Files []struct {
			Name      string `json:"file_name"`
			Mutations []mutation
		}
	}
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, fmt.Errorf("decoding the report for %s: %w", t.pkg, err)
	}
	var found []mutation
	for _, f := range r.Files {
		if !t.files.MatchString(f.Name) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(l.repo, t.pkg, f.Name))
		if err != nil {
			return nil, err
		}
		lines := strings.Split(string(text), "\n")
		for _, m := range f.Mutations {
			m.Pkg, m.File, m.Text = t.pkg, f.Name, strings.TrimSpace(lines[m.Line-1])
			found = append(found, m)
		}
	}
	return found, nil
}

const base = "gremlins-base"

// leaveOut creates the base, an ancestor of the clone's HEAD in which the lines of the mutants are empty.
func (l *lab) leaveOut(ctx context.Context, mutations []mutation) error {
	for _, m := range mutations {
		path := filepath.Join(l.repo, m.Pkg, m.File)
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		lines := strings.Split(string(b), "\n")
		lines[m.Line-1] = "//"
		if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o644); err != nil {
			return err
		}
	}
	commit := []string{"-c", "user.name=gremlins", "-c", "user.email=gremlins@localhost", "commit", "-q", "-a", "-m"}
	for _, args := range [][]string{append(commit, "without"), {"branch", base}, {"checkout", "-q", "HEAD~", "--", "."},
		append(commit, "with")} {
		if _, err := output(ctx, l.repo, "git", args...); err != nil {
			return err
		}
	}
	return nil
}

// output runs a program. Relative names in git diff start at its working directory, as Gremlins requires.
func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	// Gremlins derives each mutant's timeout from the first run, whose duration is nearly 0 if the result is
	// cached. The other flags are those of all tests.
	cmd.Env = append(os.Environ(), "GOFLAGS=-count=1 -pgo=off -ldflags=-w -parallel=8", "CGO_ENABLED=0",
		"KUDOS_TEST_TIER=check", "GIT_CONFIG_COUNT=2",
		"GIT_CONFIG_KEY_0=diff.relative", "GIT_CONFIG_VALUE_0=true",
		"GIT_CONFIG_KEY_1=diff.context", "GIT_CONFIG_VALUE_1=0") // Gremlins supports one change per hunk
	// Kill the tests that Gremlins runs together with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Minute
	var said strings.Builder // go reports downloads there
	cmd.Stderr = &said
	b, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s%s", name, strings.Join(args, " "), err, b, said.String())
	}
	return string(b), nil
}
