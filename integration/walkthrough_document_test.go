package integration

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A document of walk-throughs is Markdown. Each chapter (##) is a walk-through, but for the first, which all of them
// begin with. A block ```sh is run as it is. A block ```console is what a terminal shows: lines after "$ " are run ("> "
// goes on with the line before), and what stands below is what they must print, where … is for anything: within a line,
// or, alone on a line, any number of lines. How many blanks there are is no matter. A comment <!-- test: … --> names what befalls the servers at that place,
// which the reader is told in words.

// walkthrough is one chapter.
type walkthrough struct {
	title string
	steps []step
}

// step is one command, or something that the test does.
type step struct {
	line     int // in the document
	command  string
	want     []string // lines that it must print
	compared bool     // whether they are
	incident string   // in place of a command
}

// blockOf reads the steps of a block, whose first line has this number.
func blockOf(language string, first int, lines []string) (steps []step, err error) {
	switch language {
	case "sh":
		return []step{{line: first, command: strings.Join(lines, "\n")}}, nil
	case "console":
	default:
		return nil, fmt.Errorf("line %d: a block of %q: only sh and console are run", first-1, language)
	}
	for i, line := range lines {
		last := len(steps) - 1
		if command, ok := strings.CutPrefix(line, "$ "); ok {
			steps = append(steps, step{line: first + i, command: command, compared: true})
			continue
		}
		if last < 0 {
			return nil, fmt.Errorf("line %d: what is seen, and no command before it: %s", first+i, line)
		}
		if more, ok := strings.CutPrefix(line, "> "); ok && len(steps[last].want) == 0 {
			steps[last].command += "\n" + more
		} else {
			steps[last].want = append(steps[last].want, line)
		}
	}
	return steps, nil
}

// readWalkthroughs takes a document apart. The first of the chapters is what all begin with.
func readWalkthroughs(document string) (chapters []walkthrough, err error) {
	incident := regexp.MustCompile(`^<!-- test: (.+) -->$`)
	lines := strings.Split(document, "\n")
	add := func(line int, steps ...step) error {
		if len(chapters) == 0 {
			return fmt.Errorf("line %d: a block outside of any chapter", line)
		}
		last := &chapters[len(chapters)-1]
		last.steps = append(last.steps, steps...)
		return nil
	}
	for i := 0; i < len(lines); i++ {
		if title, ok := strings.CutPrefix(lines[i], "## "); ok {
			chapters = append(chapters, walkthrough{title: title})
		}
		if named := incident.FindStringSubmatch(lines[i]); named != nil {
			if err := add(i+1, step{line: i + 1, incident: named[1]}); err != nil {
				return nil, err
			}
		}
		language, ok := strings.CutPrefix(lines[i], "```")
		if !ok {
			continue
		}
		first := i + 1
		for i++; i < len(lines) && lines[i] != "```"; i++ {
		}
		if i == len(lines) {
			return nil, fmt.Errorf("line %d: a block without an end", first)
		}
		steps, err := blockOf(language, first+1, lines[first:i])
		if err == nil {
			err = add(first, steps...)
		}
		if err != nil {
			return nil, err
		}
	}
	return chapters, nil
}

// shown tells whether output is what a block says that one sees.
func shown(want []string, output string) bool {
	var pattern strings.Builder
	for _, line := range want {
		if strings.TrimSpace(line) == "…" {
			pattern.WriteString(`(?:.*\n)*?`)
			continue
		}
		parts := strings.Split(strings.TrimSpace(line), "…")
		for i := range parts {
			parts[i] = regexp.MustCompile(`\s+`).ReplaceAllString(regexp.QuoteMeta(parts[i]), `[ \t]+`)
		}
		pattern.WriteString(`[ \t]*` + strings.Join(parts, ".*") + `[ \t]*\n`)
	}
	if output = strings.TrimRight(output, "\n"); output != "" {
		output += "\n"
	}
	return regexp.MustCompile(`\A` + pattern.String() + `\z`).MatchString(output)
}

func TestShown(t *testing.T) {
	for _, c := range []struct {
		want, output string
		is           bool
	}{
		{"ready", "ready\n", true},
		{"ready", "not ready\n", false},
		{"ready", "ready\nand more\n", false},
		{"ready", "", false},
		{"", "", true},
		{"", "words\n", false},
		{"| 7 | 40 |", "|  7 |    40 |\n", true},
		{"| 7 | 40 |", "|  7 |   140 |\n", false},
		{"7 times", "   7 times \n", true},
		{"took … ms.", "took 12 ms.\n", true},
		{"took … ms.", "took 12 ms!\n", false},
		{"took … ms.", "took\n12 ms.\n", false},
		{"a\n…\nb", "a\nb\n", true},
		{"a\n…\nb", "a\n1\n2\nb\n", true},
		{"a\n…\nb", "a\n1\n2\n", false},
		{"…\nb", "a\nb\nc\n", false},
	} {
		var want []string
		if c.want != "" {
			want = strings.Split(c.want, "\n")
		}
		require.Equal(t, c.is, shown(want, c.output), "%q where %q is wanted", c.output, c.want)
	}
}

func TestReadWalkthroughs(t *testing.T) {
	document := "# Title\nWords.\n## Before\n```sh\na=1\nb=2\n```\n## One\nWords.\n<!-- test: it breaks -->\n" +
		"```console\n$ echo 'x\n> y'\nx\ny\n$ true\n$ echo z\n…\n```\n"
	chapters, err := readWalkthroughs(document)
	require.NoError(t, err)
	require.Equal(t, []walkthrough{
		{title: "Before", steps: []step{{line: 5, command: "a=1\nb=2"}}},
		{title: "One", steps: []step{
			{line: 10, incident: "it breaks"},
			{line: 12, command: "echo 'x\ny'", want: []string{"x", "y"}, compared: true},
			{line: 16, command: "true", compared: true},
			{line: 17, command: "echo z", want: []string{"…"}, compared: true},
		}},
	}, chapters)
	for says, document := range map[string]string{
		"line 2: a block of \"bash\"":    "## One\n```bash\na\n```\n",
		"line 1: a block outside of any": "```sh\na\n```\n",
		"line 2: a block without an end": "## One\n```sh\na\n",
		"line 3: what is seen, and no":   "## One\n```console\na\n```\n",
	} {
		_, err := readWalkthroughs(document)
		require.ErrorContains(t, err, says)
	}
}
