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

// TestASeedReplaysIdentically: a seed gives the same script with and without a trace; and a script, as text or in
// memory, gives the same steps in the same order.
func TestASeedReplaysIdentically(t *testing.T) {
	for n := range uint64(max(20, *schedules/100)) {
		seed := *firstSeed + n
		var drawn, played []string
		tally, s, err := inBubble(t, seed, linesTo(&drawn))
		require.NoError(t, err)
		untraced, same, err := inBubble(t, seed, nil)
		require.NoError(t, err)
		require.Equal(t, tally, untraced, "what happened with seed %d, without a trace", seed)
		require.Equal(t, s.String(), same.String(), "the script of seed %d, without a trace", seed)

		parsed, err := ParseScript(s.merged().String())
		require.NoError(t, err)
		again, err := playInBubble(t, parsed, linesTo(&played))
		require.NoError(t, err)
		require.Zero(t, again[untaken], "decisions of seed %d that its script never asks for", seed)
		delete(again, untaken)
		for i := range max(len(drawn), len(played)) {
			require.True(t, i < len(drawn) && i < len(played) && drawn[i] == played[i],
				"seed %d step %d is\n%v\nand again\n%v", seed, i, drawn[min(i, len(drawn)):min(i+1, len(drawn))],
				played[min(i, len(played)):min(i+1, len(played))])
		}
		require.Equal(t, tally, again, "what happened in the script of seed %d", seed)
	}
}

func linesTo(list *[]string) tracer {
	return func(format string, args ...any) { *list = append(*list, fmt.Sprintf(format, args...)) }
}

func printLine(format string, args ...any) { fmt.Printf(format+"\n", args...) }

var (
	scriptFile = flag.String("script", "", "TestScripts plays this script only, and prints each step")
	shrinkTime = flag.Duration("shrink", time.Minute,
		"spend so long on reducing the first schedule that fails; 0: do not")
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
			require.Zero(t, tally[untaken], "%s has decisions (next …) that nothing asks for", file)
			for i := range s.lines {
				if f := s.lines[i].verb; slices.ContainsFunc(faults, func(x fault) bool { return x.name == f }) {
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
	require.Equal(t, s.String(), string(text), "%s is not written as scripts are", file)
	return s
}

// TestAScriptCanBeCut: the program tolerates a script with lines removed or simplified. So a violation in a reduced
// script is never caused by the reduction.
func TestAScriptCanBeCut(t *testing.T) {
	for n := range uint64(max(10, *schedules/1000)) {
		_, s, err := inBubble(t, *firstSeed+n, nil)
		require.NoError(t, err)
		dice, left := rand.New(rand.NewPCG(n, 0)), 40
		reduce(s, func(c *Script) bool {
			left--
			_, err := playInBubble(t, c, nil)
			require.NoError(t, err, "cut from seed %d:\n%s", *firstSeed+n, c)
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
	require.Equal(t, s.merged().String(), same.String(), "there was no time")
	require.Zero(t, tries)
}

func TestParseScriptRejectsWhatItDoesNotKnow(t *testing.T) {
	s := Script{Partitions: 1, Processes: 1, MaxBatch: 1}
	first := s.head() + "\n"
	for text, want := range map[string]string{
		"":                                      "no head like",
		"kudos simulation script 2: partitions": "not a head like",
		(&Script{Partitions: 1, MaxBatch: 1}).head(): "must be 1 or more",
		first + "run p1:likes/0":                     "a line starts with its number",
		first + "1 fly p1":                           "no such verb",
		first + "1 event":                            "an event needs a partition",
		first + "1 event likes/0 color=1":            `unknown "color=1" in an event`,
		first + "1 run p1:likes/0 p2:likes/0":        `unexpected "p2:likes/0"`,
		first + "1 next p1:likes/0 \"kafka":          "reading quoted text",
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
		return fmt.Sprintf("its script did not fail in %d replays, and is not reduced (%s)\n%s", most, s.summary(), s)
	}
	// Only goroutines of libraries (Pebble's) are not under control. If they affect the outcome, a candidate is
	// replayed several times, so that chance does not keep a line.
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
	return fmt.Sprintf("reduced in %v by %d candidates, %d replays each\nfrom %s\nto %s; it fails in %d of %d "+
		"replays\n"+
		"to keep it: integration/simulation/testdata/NAME.txt; to see each step: -test.run TestScripts -script "+
		"FILE\n%s",
		time.Since(began).Round(time.Millisecond), tries, times,
		s.summary(), short.summary(), again(short, most), most, short)
}
