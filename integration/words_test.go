package integration

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// homemade are words that this project once used for what the field has terms for, each with what to write instead. They
// must not come back in documentation and comments.
var homemade = []struct {
	word  *regexp.Regexp
	write string
}{
	{regexp.MustCompile(`(?i)\b(anew|afresh)\b`), "again, recreate, restart"},
	{regexp.MustCompile(`(?i)\b(whence|wherefrom|of no kind|over night)\b`), "plain words"},
	{regexp.MustCompile(`(?i)\b(in hand|under way)\b`), "in flight, in progress"},
	{regexp.MustCompile(`(?i)\b(go|goes|went) on\b`), "continue, resume"},
	{regexp.MustCompile(`(?i)\bverdicts?\b`), "classification"},
	{regexp.MustCompile(`(?i)\btroubles?\b`), "failure, reason"},
	{regexp.MustCompile(`(?i)\bmends?\b|\bmended\b`), "fix, repair, recover"},
	{regexp.MustCompile(`(?i)\b(misplaced|at home)\b`), "misrouted, in its partition"},
	{regexp.MustCompile(`(?i)\bfolders?\b`), "directory; who folds is a fold worker"},
	{regexp.MustCompile(`(?i)\b(told of|heard of)\b`), "notified, reported"},
	{regexp.MustCompile(`(?i)\bthousand million\b`), "billion"},
	{regexp.MustCompile(`(?i)\bwho is (faster|too fast)\b`), "clients above the limit"},
}

// TestWords finds home-made words. Names of identifiers are not looked at, nor what is quoted in backquotes.
func TestWords(t *testing.T) {
	quoted := regexp.MustCompile("`[^`\n]*`")
	check := func(where, text string) {
		text = quoted.ReplaceAllString(text, "")
		for _, h := range homemade {
			if word := h.word.FindString(text); word != "" {
				t.Errorf("%s: %q: write %s", where, word, h.write)
			}
		}
	}
	for name, text := range pages(t) {
		check(name, mdLink.ReplaceAllString(fenced.ReplaceAllString(text, ""), "$1"))
	}
	for _, s := range sources(t) {
		text, err := os.ReadFile(filepath.Join(root, s.path))
		require.NoError(t, err)
		if generated.Match(text) {
			continue
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, s.path, text, parser.ParseComments|parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, group := range file.Comments {
			check(files.Position(group.Pos()).String(), strings.ReplaceAll(group.Text(), "\n", " "))
		}
	}
}
