package sizing

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func page(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", name))
	require.NoError(t, err)
	return string(text)
}

// After new measurements, update Measured and the plan in the page.
func TestUnitsAreDocumented(t *testing.T) {
	for _, u := range Measured().All() {
		require.Contains(t, page(t, u.Source), u.Quote, "%s, of %s", u.What, u.Source)
		require.Positive(t, u.Value)
	}
}

func TestScalingPageHasThePlan(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, WriteMarkdown(&b, New(Largest(), Usual(), Measured())))
	require.NoError(t, WriteUnits(&b, Measured()))
	require.Contains(t, page(t, "scaling.md"), b.String(), "go run ./integration/cmd/sizing prints the current plan")
}

func TestPlanHolds(t *testing.T) {
	p := New(Largest(), Usual(), Measured())
	o := Worst(p)
	require.False(t, o.Over)
	require.LessOrEqual(t, o.BusiestProcessor, p.Choices.Utilization)
	require.LessOrEqual(t, o.BusiestPartition, p.Choices.Utilization)
	require.LessOrEqual(t, o.Worst, sessionTimeout+p.Recovery+time.Minute)
	require.GreaterOrEqual(t, o.Worst, p.Recovery, "likes of the lost processor must wait")
	require.LessOrEqual(t, p.Recovery, p.Choices.Outage)
}

func TestPlansThatDoNotHold(t *testing.T) {
	for name, change := range map[string]func(*Plan){
		"a post that outgrows its partition": func(p *Plan) { p.Load.Hot, p.Peak, p.Load.Buckets = 1e6, p.Peak+9e5, 1 },
		"too few processors":                 func(p *Plan) { p.Load.Hot, p.Peak, p.Processors = 9e6, p.Peak+9e6, 2 },
	} {
		p := New(Largest(), Usual(), Measured())
		change(&p)
		o := Simulate(p, 1)
		require.True(t, o.Over, name)
		require.Greater(t, max(o.BusiestProcessor, o.BusiestPartition), 1.0, name)
	}
	p := New(Largest(), Usual(), Measured())
	p.Load.Hot, p.Peak = 1e6, p.Peak+9e5
	require.False(t, Simulate(p, 1).Over, "with buckets the same post fits")
}

func TestLoadsAreChecked(t *testing.T) {
	for _, l := range []Load{{}, {Posts: 1, Users: 1, LikesAUser: 1, LikesADay: 1, Peak: 1, Reads: 1},
		{Posts: 1e16, Users: 1, LikesAUser: 1, LikesADay: 1, Peak: 1, Reads: 1, Buckets: 1}} {
		require.Error(t, l.Validate())
	}
	require.NoError(t, Largest().Validate())
	require.NoError(t, Usual().Validate())
	require.Error(t, Choices{Cores: 8}.Validate())
	small := Load{Posts: 1, Users: 1, LikesAUser: 1, LikesADay: 1, Peak: 1, Reads: 1, Buckets: 1}
	require.NoError(t, small.Validate())
	require.Equal(t, 2, New(small, Usual(), Measured()).Processors, "one processor can be lost")
}
