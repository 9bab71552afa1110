// Command creep runs the workloads of integration/creep for that package's test: either one workload a number of times,
// so that valgrind can count its instructions, or all of them, to print their allocations as JSON.
//
//	creep run WORKLOAD REPETITIONS
//	creep allocations
package main

import (
	"encoding/json"
	"errors"
	"log"
	"os"
	"strconv"

	"kudos/integration/creep"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		log.Fatal("creep: ", err)
	}
}

func run(args []string) error {
	if args[0] == "run" {
		repetitions, err := strconv.Atoi(args[2])
		return errors.Join(err, creep.Run(args[1], repetitions))
	}
	allocations, err := creep.Allocations()
	return errors.Join(err, json.NewEncoder(os.Stdout).Encode(allocations))
}
