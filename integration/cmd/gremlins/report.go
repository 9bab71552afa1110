package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

type mutation struct {
	Type, Status    string
	Line, Column    int
	Pkg, File, Text string // Text is the line
}

func (m mutation) place() string { return fmt.Sprintf("%s/%s:%d:%d", m.Pkg, m.File, m.Line, m.Column) }

// sample chooses mutants among those covered by tests; the same seed gives the same sample.
func sample(found []mutation, size int, seed uint64) []mutation {
	var covered []mutation
	for _, m := range found {
		if m.Status == "RUNNABLE" {
			covered = append(covered, m)
		}
	}
	rand.New(rand.NewPCG(seed, 0)).Shuffle(len(covered), func(i, j int) {
		covered[i], covered[j] = covered[j], covered[i]
	})
	return covered[:min(size, len(covered))]
}

// explained returns the survivors with a reason, from lines "file | type | text of the line | reason".
func explained(list string) (map[[3]string]bool, error) {
	known := map[[3]string]bool{}
	for line := range strings.Lines(list) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		parts := strings.Split(line, " | ")
		if len(parts) != 4 || strings.TrimSpace(parts[3]) == "" {
			return nil, fmt.Errorf("survivors.txt: %q is not of the form file | type | text of the line | reason", line)
		}
		known[[3]string(parts[:3])] = true
	}
	return known, nil
}

// leastTested is the percentage of the sample that must be tested for the result to be meaningful.
const leastTested = 95

// report prints the surviving mutants of the sample (a line may have others), and fails if too few were tested or
// killed, or if a survivor has no reason. A test timeout counts as killed; a mutant that does not compile is ignored.
func report(tested, chosen []mutation, list string, least float64) error {
	known, err := explained(list)
	if err != nil {
		return err
	}
	status := map[string]string{}
	for _, m := range tested {
		status[m.place()+m.Type] = m.Status
	}
	counts, other, unexplained := map[string]int{}, 0, 0 // counts are by status
	for _, m := range chosen {
		s := status[m.place()+m.Type]
		counts[s]++
		switch s {
		case "KILLED", "TIMED OUT", "NOT VIABLE":
		case "LIVED":
			mark := "explained"
			if !known[[3]string{m.Pkg + "/" + m.File, m.Type, m.Text}] {
				mark = "SURVIVED"
				unexplained++
			}
			fmt.Printf("%s %s %s: %s\n", mark, m.place(), m.Type, m.Text)
		default:
			other++
			fmt.Printf("%s %s %s: %s\n", strings.ToLower("not tested "+s), m.place(), m.Type, m.Text)
		}
	}
	noticed, lived := counts["KILLED"]+counts["TIMED OUT"], counts["LIVED"]
	percent := 100 * float64(noticed) / float64(max(1, noticed+lived))
	fmt.Printf("chosen %d killed %d timed out %d lived %d do not compile %d not tested %d: %.1f %%\n", len(chosen),
		counts["KILLED"], counts["TIMED OUT"], lived, counts["NOT VIABLE"], other, percent)
	switch {
	case 100*other > (100-leastTested)*len(chosen):
		return fmt.Errorf("%d of %d were not tested", other, len(chosen))
	case percent < least:
		return fmt.Errorf("%.1f %% were killed, less than %.1f %%", percent, least)
	case unexplained > 0:
		return fmt.Errorf("%d survived without an explanation in survivors.txt", unexplained)
	}
	return nil
}
