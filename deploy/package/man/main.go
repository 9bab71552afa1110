// Command man writes a manual page of each command of kudos to a directory: kudos.1, kudos-producer.1, …
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra/doc"

	"kudos/cli"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: man DIRECTORY")
		os.Exit(2)
	}
	root := cli.Root()
	root.DisableAutoGenTag = true // it has today's date
	header := &doc.GenManHeader{Section: "1", Source: "kudos", Manual: "kudos"}
	if err := doc.GenManTree(root, header, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "man:", err)
		os.Exit(1)
	}
}
