// Command creep runs the workloads of integration/creep for that package's test: either one workload a number of times,
// so that valgrind can count its instructions, or all of them, to print their allocations as JSON.
//
//	creep run WORKLOAD REPETITIONS
//	creep allocations
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"

	"kudos/integration/creep"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "creep:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 3 && args[0] == "run":
		repetitions, err := strconv.Atoi(args[2])
		if err != nil {
			return fmt.Errorf("repetitions: %w", err)
		}
		return creep.Run(args[1], repetitions)
	case len(args) == 1 && args[0] == "allocations":
		allocations, err := creep.Allocations()
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(allocations)
	}
	return errors.New("usage: creep run WORKLOAD REPETITIONS | creep allocations")
}
