package simulation

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func playInBubble(t *testing.T, s *Script, trace tracer) (tally Tally, err error) {
	synctest.Test(t, func(*testing.T) { tally, err = s.Run(trace) })
	return tally, err
}

// TestSeedReplaysIdentically: a seed gives one script, traced or not; a script, text or not, gives the same steps.
func TestSeedReplaysIdentically(t *testing.T) {
	for n := range uint64(max(20, *schedules/100)) {
		seed := *firstSeed + n
		var drawn, played []string
		tally, s, err := inBubble(t, seed, linesTo(&drawn))
		require.NoError(t, err)
		untraced, same, err := inBubble(t, seed, nil)
		require.NoError(t, err)
		require.Equal(t, tally, untraced, "tally of seed %d without a trace", seed)
		require.Equal(t, s.String(), same.String(), "script of seed %d without a trace", seed)

		parsed, err := ParseScript(s.merged().String())
		require.NoError(t, err)
		again, err := playInBubble(t, parsed, linesTo(&played))
		require.NoError(t, err)
		require.Zero(t, again[untaken], "decisions in the script of seed %d that never came up", seed)
		delete(again, untaken)
		for i := range max(len(drawn), len(played)) {
			require.True(t, i < len(drawn) && i < len(played) && drawn[i] == played[i],
				"seed %d, step %d: drawn\n%v\nreplayed\n%v", seed, i, drawn[min(i, len(drawn)):min(i+1, len(drawn))],
				played[min(i, len(played)):min(i+1, len(played))])
		}
		require.Equal(t, tally, again, "tally of the script of seed %d", seed)
	}
}

func linesTo(list *[]string) tracer {
	return func(format string, args ...any) { *list = append(*list, fmt.Sprintf(format, args...)) }
}

func printLine(format string, args ...any) { fmt.Printf(format+"\n", args...) }

var (
	scriptFile = flag.String("script", "", "TestScripts runs only this script and prints each step")
	shrinkTime = flag.Duration("shrink", time.Minute,
		"time limit for reducing the first failing schedule (0: do not reduce it)")
)

// TestScripts plays the scripts in testdata. Each one failed with a mutant that removed a clause of the rules, and must
// pass with the clause. All that a script contains must happen, otherwise it tests nothing.
func TestScripts(t *testing.T) {
	if *scriptFile != "" {
		_, err := playInBubble(t, readScript(t, *scriptFile), printLine)
		require.NoError(t, err)
		return
	}
	files, err := filepath.Glob("testdata/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			s := readScript(t, file)
			require.NotEmpty(t, s.Comments, "%s needs a comment that names its clause", file)
			tally, err := playInBubble(t, s, nil)
			require.NoError(t, err)
			require.Zero(t, tally[untaken], "%s has decisions (next …) that never come up", file)
			for i := range s.lines {
				if f := s.lines[i].verb; faultNamed(f) != nil {
					require.NotZero(t, tally[f], "%s line %d never happens: %s", file, i+1, &s.lines[i])
				}
			}
		})
	}
}

func readScript(t *testing.T, file string) *Script {
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	s, err := ParseScript(string(text))
	require.NoError(t, err, file)
	require.Equal(t, s.String(), string(text), "%s is not formatted like the output of String", file)
	return s
}

// TestScriptCanBeShortened: a script with lines removed or simplified passes, so reduction never causes a violation.
func TestScriptCanBeShortened(t *testing.T) {
	for n := range uint64(max(10, *schedules/1000)) {
		_, s, err := inBubble(t, *firstSeed+n, nil)
		require.NoError(t, err)
		dice, left := rand.New(rand.NewPCG(n, 0)), 40
		reduce(s, func(c *Script) bool {
			left--
			_, err := playInBubble(t, c, nil)
			require.NoError(t, err, "reduced from seed %d:\n%s", *firstSeed+n, c)
			return dice.IntN(3) == 0
		}, func() bool { return left > 0 })
	}
}

// TestReduceFindsTheShortestScript also checks that the reduction terminates.
func TestReduceFindsTheShortestScript(t *testing.T) {
	_, s, err := inBubble(t, 3, nil)
	require.NoError(t, err)
	has := func(s *Script, verb string) bool {
		return slices.ContainsFunc(s.lines, func(l line) bool { return l.verb == verb })
	}
	fails := func(s *Script) bool { return has(s, "time passes") && has(s, verbRun) && has(s, verbEvent) }
	require.True(t, fails(s), "the test needs another seed")
	short, tries := reduce(s, fails, func() bool { return true })
	events, faults, steps := short.size()
	have := []int{events, faults, steps, short.Processes, int(short.Partitions)}
	require.Equal(t, []int{1, 1, 1, 1, 1}, have, "%s", short)
	require.Less(t, tries, 1000)
	require.True(t, fails(short))

	same, tries := reduce(s, fails, func() bool { return false })
	require.Equal(t, s.merged().String(), same.String(), "no time to reduce it")
	require.Zero(t, tries)
}

func TestParseScriptRejectsWhatItDoesNotKnow(t *testing.T) {
	s := Script{Partitions: 1, Processes: 1, MaxBatch: 1}
	first := s.head() + "\n"
	for text, want := range map[string]string{
		"":                                      "no header like",
		"kudos simulation script 2: partitions": "not a header like",
		(&Script{Partitions: 1, MaxBatch: 1}).head(): "must be at least 1",
		first + "run p1:likes/0":                     "a line must start with its number",
		first + "1 fly p1":                           "unknown verb",
		first + "1 event":                            "an event needs a partition",
		first + "1 event likes/0 color=1":            `unknown "color=1" in an event`,
		first + "1 run p1:likes/0 p2:likes/0":        `unexpected "p2:likes/0"`,
		first + "1 next p1:likes/0 \"kafka":          "unterminated quoted text",
		first + "1 damage likes/0 \"no such thing\"": `unknown damage "no such thing"`,
	} {
		_, err := ParseScript(text)
		require.ErrorContains(t, err, want, "%q", text)
	}
}

// shorten reduces a failing script within a time limit, and reports the result.
func shorten(ctx context.Context, t *testing.T, s *Script, err error) string {
	const most = 10
	again := func(s *Script, times int) (failed int) {
		for range times {
			if _, e := playInBubble(t, s, nil); e != nil && kind(e) == kind(err) {
				failed++
			}
		}
		return failed
	}
	s, began := s.merged(), time.Now()
	failed := again(s, most)
	if failed == 0 {
		return fmt.Sprintf("the script did not fail in %d replays, so it is not reduced (%s)\n%s", most, s.summary(), s)
	}
	// Only goroutines of libraries (Pebble's) are not under control. Replays keep chance from keeping a line.
	times := 1
	if failed < most {
		times = min(most, 3*most/failed)
	}
	short, tries := reduce(s, func(c *Script) bool {
		for range times {
			if again(c, 1) > 0 {
				return true
			}
		}
		return false
	}, func() bool { return ctx.Err() == nil && time.Since(began) < *shrinkTime })
	return fmt.Sprintf("reduced in %v with %d candidates, %d replays each\nfrom %s\nto %s; it failed in %d of %d "+
		"replays\n"+
		"to keep it: integration/simulation/testdata/NAME.txt; to trace each step: -test.run TestScripts -script "+
		"FILE\n%s",
		time.Since(began).Round(time.Millisecond), tries, times,
		s.summary(), short.summary(), again(short, most), most, short)
}
