// Command full is kudos as it is released: with schema registries and object stores. Such parts take long to compile or
// depend on much, so they are a module of their own, and `go run .` in the root directory does without, for a first
// look.
package main

import (
	"os"

	"kudos/cli"
	"kudos/cli/full/registry"
	"kudos/cli/full/s3"
)

func main() { os.Exit(cli.Main(cli.Extras{OpenRegistry: registry.Open, OpenBucket: s3.Open})) }
