package bench

import (
	"fmt"
	"io"
)

// NewProgress prints a Plan's progress. On a terminal a line that will be replaced is overwritten, elsewhere it is left
// out.
func NewProgress(w io.Writer, terminal bool) func(line string, again bool) {
	return func(line string, again bool) {
		switch {
		case terminal && again:
			fmt.Fprintf(w, "\r\x1b[K%s", line)
		case terminal:
			fmt.Fprintf(w, "\r\x1b[K%s\n", line)
		case !again:
			fmt.Fprintln(w, line)
		}
	}
}
