package bench

import (
	"fmt"
	"io"
)

// WriteMarkdown writes the report for people.
func (r *Report) WriteMarkdown(w io.Writer) error {
	for _, run := range r.Runs {
		if _, err := fmt.Fprintf(w, "- %d %s %s: %s\n", run.Round, run.Load.Shape.Name, run.Contender, run.String()); err != nil {
			return err
		}
	}
	return nil
}
