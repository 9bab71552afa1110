package integration

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// homemade are words that this project once used for what the field has terms for, with what to write instead.
var homemade = []struct {
	word  *regexp.Regexp
	write string
}{
	{regexp.MustCompile(`(?i)\b(anew|afresh)\b`), "again, recreate, restart"},
	{regexp.MustCompile(`(?i)\b(in hand|under way|(go|goes|went) on)\b`), "in flight, in progress; continue, resume"},
	{regexp.MustCompile(`(?i)\b(verdicts?|troubles?)\b`), "classification; failure, reason"},
	{regexp.MustCompile(`(?i)\bmends?\b|\bmended\b`), "fix, repair, recover"},
	{regexp.MustCompile(`(?i)\b(misplaced|at home|folders?)\b`), "misrouted, in its partition; directory, fold worker"},
	{regexp.MustCompile(`(?i)\b(whence|wherefrom|of no kind|over night|told of|heard of|thousand million)\b`), "plain words"},
}

// ownNames are parts of identifiers that stand for the same.
var ownNames = regexp.MustCompile(`Anew|(?i:trouble|verdict|remedy|mended)|Misplaced[A-Z]|AtHome|[a-z]Folder|GoesOn`)

// TestWords finds home-made words in documentation, other text files, and comments, names and strings of Go. What is in
// backquotes, and words in upper case in comments, which may be identifiers, do not count.
func TestWords(t *testing.T) {
	quoted, exported := regexp.MustCompile("`[^`\n]*`"), regexp.MustCompile(`\b[A-Z]\w+`)
	check := func(where, text string) {
		for _, h := range homemade {
			if word := h.word.FindString(quoted.ReplaceAllString(text, "")); word != "" {
				t.Errorf("%s: %q: write %s", where, word, h.write)
			}
		}
	}
	_, prose := pages(t)
	for name, text := range prose {
		check(name, mdLink.ReplaceAllString(text, "$1"))
	}
	notOurs := regexp.MustCompile(`^(\..*|node_modules|target|testdata|build|dist)$`)
	others := regexp.MustCompile(`\.(js|mjs|css|html|ya?ml|sql|sh|java|proto)$`)
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && path != root && notOurs.MatchString(d.Name()) {
			return fs.SkipDir
		}
		if err == nil && others.MatchString(path) && !d.IsDir() {
			var text []byte
			text, err = os.ReadFile(path)
			check(path, string(text))
		}
		return err
	}))
	for _, s := range sources(t) {
		text := []byte(readText(t, filepath.Join(root, s.path)))
		if generated.Match(text) {
			continue
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, s.path, text, parser.ParseComments|parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, group := range file.Comments {
			text := strings.ReplaceAll(group.Text(), "\n", " ")
			check(files.Position(group.Pos()).String(), exported.ReplaceAllString(text, ""))
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.Ident:
				require.NotRegexp(t, ownNames, n.Name, "%s", files.Position(n.Pos()))
			case *ast.BasicLit:
				quotes := strings.HasPrefix(s.path, quotesCode) || strings.HasSuffix(s.path, "words_test.go")
				if n.Kind == token.STRING && strings.Contains(n.Value, " ") && !quotes {
					check(files.Position(n.Pos()).String(), n.Value)
				}
			}
			return true
		})
	}
}
