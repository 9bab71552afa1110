package creep

import (
	"flag"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kudos/dev/testkit"
	"kudos/integration/stack"
	"kudos/integration/tier"
)

const recordFile = "record.json"

// countTimeout bounds building and counting, which take a minute.
const countTimeout = 10 * time.Minute

var recreated = flag.Bool("record", false, "write the new counts to "+recordFile+", however they differ")

// Instructions and allocations per event must be about the recorded ones. `make creep` records intended changes.
func TestNoCreep(t *testing.T) {
	tier.Turn(1)(t)
	stack.Require(t, stack.NeedValgrind)
	record := new(Record)
	if !*recreated {
		var err error
		record, err = ReadRecord(recordFile)
		require.NoError(t, err)
		if record.Arch != runtime.GOARCH {
			t.Skipf("%s has instruction counts for %s, this machine is %s", recordFile, record.Arch, runtime.GOARCH)
		}
	}
	ctx := testkit.Within(t, countTimeout)
	program, err := Build(ctx, t.TempDir())
	require.NoError(t, err)
	counted, err := program.Count(ctx)
	require.NoError(t, err)
	now := NewRecord(counted)
	for _, w := range Workloads() {
		f := now.Workloads[w.Name]
		t.Logf("%-22s %8.1f instructions per event, %8.1f allocations per 1,000", w.Name, f.InstructionsPerEvent,
			f.AllocationsPer1000Events)
	}
	if *recreated {
		require.NoError(t, now.WriteFile(recordFile))
		return
	}
	if creep := record.Compare(now, Workloads()); len(creep) > 0 {
		t.Fatalf("%s\n%s", strings.Join(creep, "\n"), record.Advice(now))
	}
}
