package bench

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestProgress(t *testing.T) {
	for terminal, want := range map[bool]string{
		false: "done\n",
		true:  "\r\x1b[Khalf\r\x1b[Kdone\n",
	} {
		var out strings.Builder
		progress := NewProgress(&out, terminal)
		progress("half", true)
		progress("done", false)
		require.Equal(t, want, out.String())
	}
}
