package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

const (
	docsWords   = 23_900 // of docs/*.md together
	readmeWords = 1_300
	proseWidth  = 100 // columns; table rows and code may be wider
)

var (
	codeBlock  = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	mdLink     = regexp.MustCompile(`\[([^\]]*)\]\(([^)\s]+)\)`)
	mdHeading  = regexp.MustCompile(`(?m)^#{1,6} (.+)$`)
	codeName   = regexp.MustCompile("^`(?:([A-Za-z]+)\\.)?([A-Za-z]+)`$")
	testName   = regexp.MustCompile(`\bTest[A-Z][A-Za-z0-9]+…?`)
	testFunc   = regexp.MustCompile(`(?m)^func (Test\w+)`)
	unwrapped  = regexp.MustCompile(`^\||<img `)
	regression = regexp.MustCompile(`(?m)^[a-z0-9-]+ +(\./\S+) +(Test\w+)(?:/(\S+))? +\S.*$`)
	figure     = regexp.MustCompile(`\d[\d,.]*[,.]\d+`)
)

// pages reads the documentation, by path from this package. Code blocks are blanked.
func pages(t *testing.T) (text, prose map[string]string) {
	t.Helper()
	text, prose = map[string]string{}, map[string]string{}
	for _, name := range append(glob(t, root, "docs/*.md"), glob(t, root, "*.md")...) {
		text[name] = readText(t, name)
		prose[name] = codeBlock.ReplaceAllStringFunc(text[name], func(s string) string {
			return strings.Repeat("\n", strings.Count(s, "\n"))
		})
	}
	require.Greater(t, len(text), 15)
	return text, prose
}

func TestDocsAreShort(t *testing.T) {
	text, prose := pages(t)
	words := 0
	for name := range text {
		if strings.HasPrefix(name, root+"/docs/") {
			words += len(strings.Fields(text[name]))
		}
		for i, line := range strings.Split(prose[name], "\n") {
			if utf8.RuneCountInString(line) > proseWidth && !unwrapped.MatchString(line) {
				t.Errorf("%s:%d has more than %d columns: wrap it", name, i+1, proseWidth)
			}
		}
	}
	require.LessOrEqual(t, words, docsWords, "words in docs/*.md")
	require.LessOrEqual(t, len(strings.Fields(text[root+"/README.md"])), readmeWords, "words in README.md")
}

// TestDocsLinksLead: relative links have a file and heading; a link named `Function` has a file that declares it.
func TestDocsLinksLead(t *testing.T) {
	_, prose := pages(t)
	for name, text := range prose {
		for _, link := range mdLink.FindAllStringSubmatch(text, -1) {
			file, anchor, _ := strings.Cut(link[2], "#")
			path := name
			if file != "" {
				path = filepath.Join(filepath.Dir(name), file)
			}
			if strings.Contains(link[2], "://") {
				continue
			}
			if _, err := os.Stat(path); err != nil {
				t.Errorf("%s: broken link to %s", name, link[2])
				continue
			}
			if anchor != "" && !anchors(prose[path])[anchor] {
				t.Errorf("%s: %s has no heading #%s", name, path, anchor)
			}
			if code := codeName.FindStringSubmatch(link[1]); code != nil && strings.HasSuffix(path, ".go") {
				receiver := ""
				if code[1] != "" {
					receiver = `\(\w+ \*?` + code[1] + `(\[\w+\])?\) `
				}
				declaration := regexp.MustCompile(`(?m)^(func ` + receiver + `|type )` + code[2] + `\b`)
				if !declaration.MatchString(readText(t, path)) {
					t.Errorf("%s: %s does not declare %s", name, path, link[1])
				}
			}
		}
	}
}

// anchors returns the anchors that GitHub gives the headings of a page.
func anchors(page string) map[string]bool {
	found := map[string]bool{}
	for _, heading := range mdHeading.FindAllStringSubmatch(page, -1) {
		text := strings.ToLower(mdLink.ReplaceAllString(heading[1], "$1"))
		found[strings.ReplaceAll(regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(text, ""), " ", "-")] = true
	}
	return found
}

// TestDocsNameTests looks for each test that a page or regress.txt names. A name with … stands for all that begin so.
func TestDocsNameTests(t *testing.T) {
	declared := "\n"
	for _, s := range sources(t) {
		if strings.HasSuffix(s.path, "_test.go") {
			for _, f := range testFunc.FindAllStringSubmatch(readText(t, filepath.Join(root, s.path)), -1) {
				declared += fmt.Sprintf("%s\n./%s %[1]s\n", f[1], filepath.ToSlash(filepath.Dir(s.path)))
			}
		}
	}
	cases := readText(t, "regress.txt") // after two other lines: name, package, test, what went wrong
	require.Len(t, regression.FindAllString(cases, -1), strings.Count(cases, "\n")-2)
	for _, c := range regression.FindAllStringSubmatch(cases, -1) {
		require.Contains(t, declared, c[1]+" "+c[2]+"\n")
		if script := c[3]; script != "" {
			require.FileExists(t, filepath.Join(root, c[1], "testdata", script+".txt"))
		}
		require.Equal(t, 1, strings.Count(cases, "\n"+strings.Fields(c[0])[0]+" "), "cases with the name of %s", c[0])
	}
	text, _ := pages(t)
	for page, text := range text {
		for _, name := range testName.FindAllString(text, -1) {
			beginning, several := strings.CutSuffix(name, "…")
			if !strings.Contains(declared, "\n"+beginning) || !several && !strings.Contains(declared, "\n"+name+"\n") {
				t.Errorf("%s: no test is named %s", page, name)
			}
		}
	}
}

func TestReadmeFigures(t *testing.T) {
	text, prose := pages(t)
	_, table, _ := strings.Cut(prose[root+"/README.md"], "| **kudos** |")
	table, _, _ = strings.Cut(table, "\n\n")
	require.Len(t, figure.FindAllString(table, -1), 15)
	for _, f := range figure.FindAllString(table, -1) {
		require.Regexp(t, `[ |]`+f+`[ |]`, text[root+"/docs/benchmarks.md"])
	}
}
