// Command man writes a manual page of each command of kudos to a directory: kudos.1, kudos-producer.1, …
package main

import (
	"log"
	"os"

	"github.com/spf13/cobra/doc"

	"kudos/cli"
)

func main() {
	root, header := cli.Root(), &doc.GenManHeader{Section: "1", Source: "kudos", Manual: "kudos"}
	root.DisableAutoGenTag = true // it has today's date
	if err := doc.GenManTree(root, header, os.Args[1]); err != nil {
		log.Fatal("man: ", err)
	}
}
