package creep

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCompare(t *testing.T) {
	record := func(instructions, allocations float64) *Record {
		return &Record{Go: "go1", Arch: "a", Workloads: map[string]Figures{"w": {instructions, allocations}}}
	}
	list := []Workload{{Name: "w", Events: 10_000}}
	for _, c := range []struct {
		before, now *Record
		want        string // "": no error
	}{
		{record(1000, 0.2), record(1000, 0.2), ""},
		{record(1000, 0.2), record(1099, 0.2), ""},
		{record(1000, 0.2), record(1101, 0.2),
			"w costs 1101.0 instructions per event, the record has 1000.0: more than 10 % above"},
		{record(1000, 0.2), record(851, 0.2), ""},
		{record(1000, 0.2), record(849, 0.2),
			"w costs only 849.0 instructions per event, the record has 1000.0: update the record, so that a " +
				"regression is noticed"},
		{record(5, 0), record(6, 0), ""}, // one instruction
		{record(5, 0), record(6.1, 0), "w costs 6.1 instructions per event, the record has 5.0: more than 10 % above"},
		{record(1000, 0.2), record(1000, 0.4), ""}, // two in a batch of 10,000
		{record(1000, 0.2), record(1000, 0.5),
			"w costs 0.5 allocations per 1,000 events, the record has 0.2: more than 10 % above"},
		{record(1000, 13_000), record(1000, 14_000), ""},
		{record(1000, 13_000), record(1000, 15_000),
			"w costs 15000.0 allocations per 1,000 events, the record has 13000.0: more than 10 % above"},
		{record(1000, 13_000), record(1000, 0),
			"w costs only 0.0 allocations per 1,000 events, the record has 13000.0: update the record, so that a " +
				"regression is noticed"},
	} {
		got := c.before.Compare(c.now, list)
		if c.want == "" {
			require.Empty(t, got)
			continue
		}
		require.Equal(t, []string{c.want}, got)
	}
	require.Equal(t, []string{"new is not in the record", "w is in the record, but is not measured"},
		record(1, 1).Compare(record(1, 1), []Workload{{Name: "new"}}))
}

func TestAdvice(t *testing.T) {
	const how = "If this is intended: make creep, and commit integration/creep/record.json with the reason."
	r := &Record{Go: "go1.26.8"}
	require.Equal(t, how, r.Advice(&Record{Go: "go1.26.8"}))
	require.Equal(t, "The record is for go1.26.8, this is go1.27.0: the compiler alone may explain it. "+how,
		r.Advice(&Record{Go: "go1.27.0"}))
}

func TestRecordFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "record.json")
	r := NewRecord(map[string]Figures{"w": {1234.56, 0.24}})
	require.Equal(t, Figures{1234.6, 0.2}, r.Workloads["w"])
	require.NoError(t, r.WriteFile(path))
	got, err := ReadRecord(path)
	require.NoError(t, err)
	require.Equal(t, r, got)

	_, err = ReadRecord(path + "x")
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, os.WriteFile(path, []byte(`{"golang":"go1"}`), 0o600))
	_, err = ReadRecord(path)
	require.ErrorContains(t, err, "unknown field")
}

func TestWorkloadsRun(t *testing.T) {
	for _, w := range Workloads() {
		require.NoError(t, Run(w.Name, 3), w.Name)
	}
	require.ErrorContains(t, Run("nothing", 1), `unknown workload "nothing"`)
}
