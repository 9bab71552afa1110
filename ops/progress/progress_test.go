package progress

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLines(t *testing.T) {
	var out strings.Builder
	p := Printer{Name: "audit", Out: &out}
	for _, total := range []int64{0, 8, 4} {
		phase := &Phase{}
		show, end, _ := p.lines(phase, "reading", "rows", total, time.Now())
		phase.Add(6)
		show()
		end()
	}
	require.Regexp(t, `^audit: reading: 6 rows
audit: reading: 6 rows, in .*
audit: reading: 6 rows \(75 %\)
audit: reading: 6 rows, in .*
audit: reading: 6 rows \(100 %\)
audit: reading: 6 rows, in .*
$`, out.String())
}
