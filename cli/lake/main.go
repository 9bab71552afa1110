// Command lake is kudos as it is released, and with Iceberg: the program kudos-iceberg. Iceberg's library makes any
// command take 80 ms and 40 MB more, so only who needs it has it.
package main

import (
	"os"

	"kudos/cli"
	"kudos/cli/full/registry"
	"kudos/cli/full/s3"
	"kudos/cli/lake/iceberg"
)

func main() {
	os.Exit(cli.Main(cli.Extras{OpenRegistry: registry.Open, OpenBucket: s3.Open, OpenTable: iceberg.Open}))
}
