package integration

import (
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// drawnApart are packages with their own node in the diagram: others import them and not their top-level package.
var drawnApart = []string{"stream/kafka", "stream/store", "processor/fold", "httpserver/tlsfiles"}

// drawn returns the node for a package's directory.
func drawn(directory string) string {
	for _, apart := range drawnApart {
		if strings.HasPrefix(directory+"/", apart+"/") {
			return apart
		}
	}
	topDir, _, _ := strings.Cut(directory, "/")
	return topDir
}

// drawing returns the import graph of the program in Mermaid, without arrows that follow from others.
func drawing(list []source) string {
	arrows := map[string]map[string]bool{}
	for _, s := range list {
		from := drawn(path.Dir(filepath.ToSlash(s.path)))
		if from == "." {
			from = "main"
		}
		if strings.HasSuffix(s.path, "_test.go") || slices.Contains([]string{"integration", "deploy"}, from) {
			continue
		}
		if arrows[from] == nil {
			arrows[from] = map[string]bool{}
		}
		for _, imported := range s.imports {
			if ours, ok := strings.CutPrefix(imported, module); ok && drawn(ours) != from {
				arrows[from][drawn(ours)] = true
			}
		}
	}
	var text strings.Builder
	text.WriteString("graph TD\n")
	for _, from := range slices.Sorted(maps.Keys(arrows)) {
		for _, to := range slices.Sorted(maps.Keys(arrows[from])) {
			if !reaches(arrows, from, to) {
				fmt.Fprintf(&text, "  %s --> %s\n", from, to)
			}
		}
	}
	return text.String()
}

// reaches reports whether there is a path longer than the arrow itself.
func reaches(arrows map[string]map[string]bool, from, to string) bool {
	seen := map[string]bool{to: true}
	for next := slices.Collect(maps.Keys(arrows[from])); len(next) > 0; next = next[1:] {
		via := next[0]
		if arrows[via][to] && via != to {
			return true
		}
		if !seen[via] {
			seen[via] = true
			next = slices.AppendSeq(next, maps.Keys(arrows[via]))
		}
	}
	return false
}

// TestPackagesAreDrawn compares the graph with docs/design.md; KUDOS_TEST_WRITE=1 updates it (make generate).
func TestPackagesAreDrawn(t *testing.T) {
	const page, begin, end = root + "/docs/design.md", "```mermaid\n", "```\n"
	before, rest, found := strings.Cut(readText(t, page), begin)
	require.True(t, found, "%s has no diagram", page)
	have, after, found := strings.Cut(rest, end)
	require.True(t, found, "the diagram in %s has no end", page)
	want := drawing(sources(t))
	if have != want && os.Getenv("KUDOS_TEST_WRITE") != "" {
		require.NoError(t, os.WriteFile(page, []byte(before+begin+want+end+after), 0o644))
		return
	}
	require.Equal(t, want, have, "the diagram in docs/design.md is out of date; fix: make generate")
}

func TestPackageDrawingOmitsTransitiveImports(t *testing.T) {
	require.Equal(t, "graph TD\n  a --> b\n  b --> stream/kafka\n", drawing([]source{
		{"a/x.go", []string{"kudos/b", "kudos/stream/kafka", "strings"}},
		{"a/y_test.go", []string{"kudos/c"}},
		{"b/z.go", []string{"kudos/stream/kafka/tracing", "kudos/b/own"}},
		{"integration/i.go", []string{"kudos/a"}},
	}))
}
