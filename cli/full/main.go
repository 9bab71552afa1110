// Command full is kudos as it is released: with schema registries. Such parts take long to compile or depend on much, so
// they are a module of their own, and `go run .` in the root directory, for a first look, does without.
package main

import (
	"os"

	"kudos/cli"
	"kudos/cli/full/registry"
)

func main() { os.Exit(cli.Main(cli.Extras{OpenRegistry: registry.Open})) }
