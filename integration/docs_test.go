package integration

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

const (
	docsWords   = 22_000 // of docs/*.md together
	readmeWords = 1_300
	proseWidth  = 100 // columns; tables, code and what cannot be wrapped may be wider
)

var (
	fenced    = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	mdLink    = regexp.MustCompile(`\[([^\]\n]*(?:\n[^\]\n]*)?)\]\(([^)\s]+)\)`)
	mdHeading = regexp.MustCompile(`(?m)^#{1,6} (.+)$`)
	codeName  = regexp.MustCompile("^`(?:([A-Za-z]+)\\.)?([A-Za-z]+)`$")
	testName  = regexp.MustCompile(`\bTest[A-Z][A-Za-z0-9]+…?`)
	number    = regexp.MustCompile(`\d[\d,.]*\d`)
)

// pages reads the documentation, by path from the module's directory.
func pages(t *testing.T) map[string]string {
	t.Helper()
	names, err := filepath.Glob(root + "/docs/*.md")
	require.NoError(t, err)
	found := map[string]string{}
	for _, name := range append(names, root+"/README.md", root+"/CONTRIBUTING.md") {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		found[filepath.Clean(name)] = string(text)
	}
	require.Greater(t, len(found), 15)
	return found
}

// TestDocsSize keeps the documentation short and its lines readable.
func TestDocsSize(t *testing.T) {
	words := 0
	for name, text := range pages(t) {
		n := len(strings.Fields(text))
		switch filepath.Base(name) {
		case "README.md":
			if filepath.Dir(name) == root {
				require.LessOrEqual(t, n, readmeWords, name)
				break
			}
			fallthrough
		default:
			if filepath.Dir(name) != root {
				words += n
			}
		}
		for i, line := range strings.Split(fenced.ReplaceAllStringFunc(text, blank), "\n") {
			_, after, _ := strings.Cut(strings.TrimLeft(line, " "), " ")
			if utf8.RuneCountInString(line) > proseWidth && strings.Contains(after, " ") &&
				!strings.HasPrefix(line, "|") && !strings.Contains(line, "<img ") {
				t.Errorf("%s:%d has more than %d columns: wrap it", name, i+1, proseWidth)
			}
		}
	}
	require.LessOrEqual(t, words, docsWords, "words in docs/*.md")
}

// blank keeps the lines of a text and nothing in them.
func blank(s string) string { return strings.Repeat("\n", strings.Count(s, "\n")) }

// TestDocsLinks follows each relative link to its file and heading. A link with a function or type in backquotes as its
// text must lead to the file that declares it.
func TestDocsLinks(t *testing.T) {
	all := pages(t)
	for name, text := range all {
		for _, link := range mdLink.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
			label, target := link[1], link[2]
			if strings.Contains(target, "://") {
				continue
			}
			file, anchor, _ := strings.Cut(target, "#")
			path := name
			if file != "" {
				path = filepath.Join(filepath.Dir(name), file)
			}
			if _, err := os.Stat(path); err != nil {
				t.Errorf("%s: the link to %s leads nowhere", name, target)
				continue
			}
			if page, ok := all[path]; ok && anchor != "" && !anchors(page)[anchor] {
				t.Errorf("%s: %s has no heading #%s", name, path, anchor)
			}
			if code := codeName.FindStringSubmatch(label); code != nil && strings.HasSuffix(path, ".go") &&
				!declares(t, path, code[1], code[2]) {
				t.Errorf("%s: %s is not in %s", name, label, path)
			}
		}
	}
}

// anchors returns the anchors that GitHub makes of the headings of a page.
func anchors(page string) map[string]bool {
	found := map[string]bool{}
	for _, heading := range mdHeading.FindAllStringSubmatch(fenced.ReplaceAllString(page, ""), -1) {
		text := mdLink.ReplaceAllString(heading[1], "$1")
		found[strings.Map(func(r rune) rune {
			switch {
			case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
				return unicode.ToLower(r)
			case r == ' ':
				return '-'
			}
			return -1
		}, text)] = true
	}
	return found
}

// declares tells whether a file declares a function or a type, or a method of a receiver.
func declares(t *testing.T, path, receiver, name string) bool {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	found := false
	ast.Inspect(file, func(n ast.Node) bool {
		switch d := n.(type) {
		case *ast.TypeSpec:
			found = found || receiver == "" && d.Name.Name == name
		case *ast.FuncDecl:
			var of string
			if d.Recv != nil {
				of = strings.Trim(receiverOf(d.Recv.List[0].Type), "*")
			}
			found = found || d.Name.Name == name && of == receiver
		}
		return !found
	})
	return found
}

func receiverOf(e ast.Expr) string {
	switch x := e.(type) {
	case *ast.StarExpr:
		return receiverOf(x.X)
	case *ast.IndexExpr:
		return receiverOf(x.X)
	case *ast.Ident:
		return x.Name
	}
	return ""
}

// TestDocsNameTests looks for each test that a page names. A name that ends in … is the beginning of several.
func TestDocsNameTests(t *testing.T) {
	var declared []string
	for _, s := range sources(t) {
		if strings.HasSuffix(s.path, "_test.go") {
			text, err := os.ReadFile(filepath.Join(root, s.path))
			require.NoError(t, err)
			declared = append(declared, regexp.MustCompile(`(?m)^func (Test\w+)`).FindAllString(string(text), -1)...)
		}
	}
	names := strings.ReplaceAll(strings.Join(declared, "\n")+"\n", "func ", "")
	for page, text := range pages(t) {
		for _, name := range testName.FindAllString(text, -1) {
			prefix, several := strings.CutSuffix(name, "…")
			if !several {
				prefix += "\n"
			}
			if !strings.Contains("\n"+names, "\n"+prefix) {
				t.Errorf("%s: there is no %s", page, name)
			}
		}
	}
}

// TestReadmeFigures holds the table of README.md against the benchmarks that it is from.
func TestReadmeFigures(t *testing.T) {
	all := pages(t)
	benchmarks, rows := all[filepath.Join(root, "docs/benchmarks.md")], 0
	for _, line := range strings.Split(all[filepath.Join(root, "README.md")], "\n") {
		if !strings.HasPrefix(line, "|") {
			continue
		}
		for _, figure := range number.FindAllString(line, -1) {
			if strings.ContainsAny(figure, ",.") && figure != "10,000" {
				rows++
				require.Contains(t, benchmarks, " "+figure+" ", "README.md: %s", line)
			}
		}
	}
	require.GreaterOrEqual(t, rows, 15)
}
