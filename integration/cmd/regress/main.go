// Command regress runs one named case: a test that reproduces a past failure and fails without its fix.
//
//	regress              lists the cases
//	regress NAME         runs one
//
// cases.txt lists the cases; a new case is a test and a line there.
package main

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"text/tabwriter"
)

//go:embed cases.txt
var list string

type regressionCase struct {
	name, pkg, test string // pkg is an argument of `go test`, relative to the project's root
	what            string // what went wrong
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "regress:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	cases, err := parse(list)
	if err != nil {
		return err
	}
	if len(args) == 0 || args[0] == "" {
		table := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', 0)
		for _, c := range cases {
			fmt.Fprintf(table, "%s\t%s\t%s\n", c.name, c.pkg, c.what)
		}
		return table.Flush()
	}
	for _, c := range cases {
		if c.name == args[0] {
			return c.run()
		}
	}
	return fmt.Errorf("unknown case %q; `make regress` lists them all", args[0])
}

// parse parses lines of the form: name package test what went wrong. It skips empty lines and # comments.
func parse(text string) ([]regressionCase, error) {
	var cases []regressionCase
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0][0] == '#' {
			continue
		}
		if len(fields) < 4 {
			line = strings.TrimSpace(line)
			return nil, fmt.Errorf("cases.txt: %q: expected name, package, test and what went wrong", line)
		}
		cases = append(cases, regressionCase{fields[0], fields[1], fields[2], strings.Join(fields[3:], " ")})
	}
	if len(cases) == 0 {
		return nil, errors.New("cases.txt has no cases")
	}
	return cases, nil
}

// run also fails if the test was skipped or does not exist: then nothing was tested.
func (c regressionCase) run() error {
	cmd := exec.Command("go", "test", "-count=1", "-v", "-run", "^"+c.test+"$", c.pkg)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	os.Stdout.Write(out)
	if err != nil {
		return fmt.Errorf("%s: %w", c.name, err)
	}
	if !strings.Contains(string(out), "--- PASS: "+c.test+" ") {
		return fmt.Errorf("%s: %s did not run: a dependency may be missing (make deps)", c.name, c.test)
	}
	return nil
}
