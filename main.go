// Command kudos counts likes exactly, on Kafka and MySQL alone. Its commands are in package cli.
package main

import (
	"os"

	"kudos/cli"
)

func main() { os.Exit(cli.Main(cli.Extras{})) }
