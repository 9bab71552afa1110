package integration

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// Lines are a cost: these are limits for files not generated. At the limit, removed code has to pay for new code.
const (
	productLines  = 46_180 // of our packages in `go list -deps .`
	allLines      = 122_920
	fileLines     = 400
	functionLines = 60 // without composite literals: tables may be long
	testLines     = 75 // of a test, which may be longer
	smallFile     = 40 // lines; a package has at most two smaller files
	columns       = 120
	tabColumns    = 4
	quotesCode    = "integration/cmd/mutants/"
)

var generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

func TestSize(t *testing.T) {
	list := sources(t)
	product := productDirs(list)
	all, shipped, small := 0, 0, map[string][]string{}
	for _, s := range list {
		text := []byte(readText(t, filepath.Join(root, s.path)))
		lines := bytes.Count(text, []byte("\n"))
		all += lines
		if generated.Match(text) {
			continue
		}
		directory := path.Dir(filepath.ToSlash(s.path))
		if isTest := strings.HasSuffix(s.path, "_test.go"); !isTest {
			built, err := build.Default.MatchFile(filepath.Join(root, directory), path.Base(s.path))
			require.NoError(t, err)
			if built && product[directory] {
				shipped += lines
			}
			if lines < smallFile {
				small[directory] = append(small[directory], path.Base(s.path))
			}
		}
		if lines > fileLines {
			t.Errorf("%s has %d lines, the limit is %d: split it by responsibility", s.path, lines, fileLines)
		}
		for _, found := range tooLong(t, s.path, text) {
			t.Error(found)
		}
	}
	for directory, files := range small {
		if len(files) > 2 {
			t.Errorf("%s has %d files below %d lines, the limit is 2: %v", directory, len(files), smallFile, files)
		}
	}
	t.Logf("%d lines in the program, %d in total", shipped, all)
	require.LessOrEqual(t, shipped, productLines, "lines of the program")
	require.LessOrEqual(t, all, allLines, "lines in total")
}

// productDirs returns the directories of the packages that the program imports.
func productDirs(list []source) map[string]bool {
	folders := map[string]bool{".": true}
	for grown := true; grown; {
		grown = false
		for _, s := range list {
			if strings.HasSuffix(s.path, "_test.go") || !folders[path.Dir(filepath.ToSlash(s.path))] {
				continue
			}
			for _, imported := range s.imports {
				if ours, ok := strings.CutPrefix(imported, module); ok && !folders[ours] {
					folders[ours], grown = true, true
				}
			}
		}
	}
	return folders
}

// tooLong lists the lines and functions of a file that are too long. Raw strings and files that quote code are exempt.
func tooLong(t *testing.T, name string, text []byte) (found []string) {
	t.Helper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, text, parser.SkipObjectResolution)
	require.NoError(t, err)
	verbatim := map[int]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		if literal, ok := n.(*ast.BasicLit); ok && literal.Value[0] == '`' {
			for line := files.Position(n.Pos()).Line; line <= files.Position(n.End()).Line; line++ {
				verbatim[line] = true
			}
		}
		return true
	})
	for n, line := range bytes.Split(text, []byte("\n")) {
		wide := utf8.RuneCount(line) + (tabColumns-1)*bytes.Count(line, []byte("\t"))
		exempt := verbatim[n+1] || strings.HasPrefix(name, quotesCode) || bytes.Contains(line, []byte("https://"))
		if wide > columns && !exempt {
			found = append(found, fmt.Sprintf("%s:%d has %d columns, the limit is %d", name, n+1, wide, columns))
		}
	}
	lines := func(n ast.Node) int { return files.Position(n.End()).Line - files.Position(n.Pos()).Line }
	for _, d := range file.Decls {
		function, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		long := lines(function) + 1
		ast.Inspect(function, func(n ast.Node) bool {
			literal, ok := n.(*ast.CompositeLit)
			if ok {
				long -= lines(literal)
			}
			return !ok
		})
		ceiling := functionLines
		if strings.HasSuffix(name, "_test.go") {
			ceiling = testLines
		}
		if long > ceiling {
			found = append(found, fmt.Sprintf("%s: %s has %d lines without its tables, the limit is %d",
				name, function.Name.Name, long, ceiling))
		}
	}
	return found
}
