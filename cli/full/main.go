// Command full is kudos as it is released: with a client of schema registries. What takes long to compile, or depends on
// much, is in this module of its own, so that `go run .` in the root directory, for a first look, does without.
package main

import (
	"os"

	"kudos/cli"
	"kudos/cli/full/registry"
)

func main() { os.Exit(cli.Main(cli.Extras{OpenRegistry: registry.Open})) }
