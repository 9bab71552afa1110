package cli

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// output is the value of --output: text for a person, json for a script.
type output string

func (o *output) String() string { return string(*o) }
func (o *output) Type() string   { return "format" }

func (o *output) Set(s string) error {
	if s != "text" && s != "json" {
		return fmt.Errorf("%q is neither text nor json", s)
	}
	*o = output(s)
	return nil
}

func addOutput(cmd *cobra.Command) *output {
	o := output("text")
	cmd.Flags().Var(&o, "output", "text for a person, json for a script")
	return &o
}

// isTerminal says whether a person looks at w.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
