package integration

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const root, module = "..", "kudos/" // the module's directory and import path prefix

// mayImport lists the top-level packages that each top-level package may import, besides its own subpackages. It
// enforces the diagram in docs/design.md.
var mayImport = map[string][]string{
	"main": {"cli"},
	"cli": {"config", "producer", "processor", "ranker", "reader", "archive", "ops", "bench", "dev", "clients",
		"schema", "stream", "sql", "httpserver"},
	"config":     {"producer", "processor", "ranker", "reader", "archive", "ops", "stream", "sql", "httpserver"},
	"schema":     {},
	"sql":        {"schema"},
	"stream":     {},
	"httpserver": {"schema"},
	"producer":   {"schema", "stream", "sql", "httpserver"},
	"processor":  {"schema", "stream", "sql"},
	"ranker":     {"schema", "stream", "sql"},
	"reader":     {"schema", "stream", "sql", "httpserver"},
	"archive":    {"schema", "stream"},
	"ops":        {"schema", "stream", "sql"},
	"bench":      {"schema", "stream"},
	"clients":    {"schema", "stream"}, // the conformance kit; the clients are modules of their own
	"dev":        {"producer", "processor", "ranker", "reader", "schema", "stream", "sql"},
	// Tests of the files shipped with the program.
	"deploy": {"cli", "config", "producer", "schema", "httpserver"},
	// Tests against real servers, and what starts those servers; never part of the program.
	"integration": {"config", "producer", "processor", "ranker", "reader", "archive", "bench", "dev",
		"schema", "stream", "sql", "httpserver"},
}

// mayImportPackage are single packages that a package may import in addition: what all readers of the fold share, and
// the TLS files of connections to servers.
var mayImportPackage = map[string][]string{
	"producer": {"processor/fold/classify"}, // dead letters of the bridge
	"ops":      {"processor/fold", "processor/fold/classify", "processor/fold/table", "producer/bulk"},
	"sql":      {"httpserver/tlsfiles"},
	"stream":   {"httpserver/tlsfiles"},
}

// mayImportWithin restricts imports within a top-level package: the packages below stream must not depend on it.
var mayImportWithin = map[string][]string{"stream/kafka": {}, "stream/store": {"stream/kafka", "stream/store/buffer"},
	"stream/store/buffer": {}}

// testsMayImport is what _test files may import in addition.
var testsMayImport = []string{"schema", "stream", "sql", "httpserver", "ops", "dev", "integration"}

// fix says what to do instead of a forbidden import. The first entry that matches both packages applies; "*" is any.
var fix = []struct{ topDir, imports, fix string }{
	{"*", "config", "take an Options struct of your own; config fills it and cli passes it on"},
	{"*", "dev", "only the command and tests know the embedded servers: take what you need as an argument of New"},
	{"*", "integration", "move the test to integration/, or what it needs into your own _test files"},
	{"schema", "*", "schema is the base of everything: move the code to the package that it imports"},
	{"stream", "schema",
		"stream knows batches and bytes, not likes: take a function or an option that the role fills from schema"},
	{"stream", "*", "stream knows batches and bytes: define a small interface in stream that the role satisfies"},
	{"sql", "*", "sql stores what it is given: define the type in sql, and let the role convert"},
	{"*", "*", "roles communicate only through topics and tables: put shared code into schema, stream or sql"},
}

// libraries that only some top-level packages may import.
var libraries = []struct {
	what    *regexp.Regexp
	topDirs []string // none: no package may
	tests   bool     // _test files of every package may
	fix     string
}{
	{regexp.MustCompile(`^github\.com/spf13/viper(/|$)`), []string{"config"}, false,
		"add a field to the Options struct of your role; config reads it"},
	{regexp.MustCompile(`^github\.com/(twmb/franz-go/pkg/kfake|dolthub/.+)(/|$)`), []string{"dev"}, true,
		"embedded servers stay out of images: use them from dev or from a _test file"},
	{regexp.MustCompile(`^github\.com/IBM/sarama(/|$)`), []string{"stream"}, false,
		"sarama is only for goka's interfaces: hide them behind a type of package stream, and talk to Kafka with " +
			"franz-go"},
	{regexp.MustCompile(`(?i)redis|redigo|rueidis|valkey|memcache`), nil, false,
		"kudos depends on Kafka and MySQL alone: keep it in the state table, in a view or in MySQL"},
}

type source struct {
	path    string
	imports []string
}

// topDir returns the first part of the file's directory; files at the root are main.
func (s source) topDir() string {
	dir, _, nested := strings.Cut(filepath.ToSlash(s.path), "/")
	if !nested {
		return "main"
	}
	return dir
}

func (s source) violations() (found []string) {
	tell := func(who, imported, fix string) {
		found = append(found, fmt.Sprintf("%s: %s must not import %s: %s", s.path, who, imported, fix))
	}
	topDir, isTest := s.topDir(), strings.HasSuffix(s.path, "_test.go")
	allowed, known := mayImport[topDir]
	if !known {
		return []string{fmt.Sprintf("%s: %s/ is not a directory of the program; move the file, or add the directory "+
			"to mayImport and docs/design.md", s.path, topDir)}
	}
	if isTest {
		allowed = slices.Concat(allowed, testsMayImport)
	}
	for _, imported := range s.imports {
		if ours, ok := strings.CutPrefix(imported, module); ok {
			other, _, _ := strings.Cut(ours, "/")
			dir := path.Dir(filepath.ToSlash(s.path))
			if within, ok := mayImportWithin[dir]; ok && other == topDir && !isTest && !slices.Contains(within, ours) {
				tell(dir, imported, "let stream pass it in")
			}
			if other != topDir && !slices.Contains(allowed, other) && !slices.Contains(mayImportPackage[topDir], ours) {
				tell(topDir, imported, fixFor(topDir, other))
			}
			continue
		}
		for _, l := range libraries {
			if l.what.MatchString(imported) && !slices.Contains(l.topDirs, topDir) && !(l.tests && isTest) {
				tell(topDir, imported, l.fix)
			}
		}
	}
	return found
}

func fixFor(topDir, imported string) string {
	for _, m := range fix {
		if (m.topDir == "*" || m.topDir == topDir) && (m.imports == "*" || m.imports == imported) {
			return m.fix
		}
	}
	return ""
}

func sources(t *testing.T) []source {
	var list []source
	err := fs.WalkDir(os.DirFS(root), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := d.Name(); d.IsDir() && path != "." {
			// Separate modules, such as tools and the peers of the benchmark, have other rules.
			_, err := os.Stat(filepath.Join(root, path, "go.mod"))
			if err == nil || strings.HasPrefix(name, ".") || name == "testdata" || name == "tmp" {
				return fs.SkipDir
			}
		}
		if d.IsDir() || filepath.Ext(path) != ".go" {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, path), nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		s := source{path: path}
		for _, spec := range file.Imports {
			s.imports = append(s.imports, strings.Trim(spec.Path.Value, `"`))
		}
		list = append(list, s)
		return nil
	})
	require.NoError(t, err)
	require.Greater(t, len(list), 20, "the source files are missing")
	return list
}

func TestImportRules(t *testing.T) {
	for _, s := range sources(t) {
		for _, v := range s.violations() {
			t.Error(v)
		}
	}
}

// TestImportRulesFindViolations tests the rules with files that break them.
func TestImportRulesFindViolations(t *testing.T) {
	for _, c := range []struct {
		path, imports, want string // "": allowed
	}{
		{"schema/key.go", "kudos/schema/kudosv1", ""},
		{"schema/key.go", "kudos/stream", "schema is the base"},
		{"sql/store.go", "kudos/schema", ""},
		{"sql/connect.go", "kudos/httpserver/tlsfiles", ""},
		{"sql/connect.go", "kudos/httpserver", "sql stores what it is given"},
		{"sql/store.go", "kudos/stream", "sql stores what it is given"},
		{"stream/group.go", "kudos/schema", "stream knows batches and bytes, not likes"},
		{"stream/group.go", "kudos/stream/kafka", ""},
		{"stream/store/store.go", "kudos/stream/kafka", ""},
		{"stream/store/store.go", "kudos/stream", "let stream pass it in"},
		{"stream/kafka/txn.go", "kudos/stream/store", "let stream pass it in"},
		{"httpserver/admin/server.go", "kudos/config", "take an Options struct"},
		{"producer/importer/importer.go", "kudos/stream", ""},
		{"producer/publish.go", "kudos/processor/fold", "roles communicate only through topics"},
		{"processor/processor.go", "kudos/producer", "roles communicate only through topics"},
		{"processor/processor.go", "kudos/config", "take an Options struct"},
		{"processor/processor.go", "kudos/dev", "only the command and tests"},
		{"processor/processor_test.go", "kudos/dev", ""},
		{"processor/processor_test.go", "kudos/producer", "roles communicate only through topics"},
		{"processor/processor.go", "kudos/integration/stack", "move the test to integration/"},
		{"cli/bench.go", "kudos/bench", ""},
		{"cli/bench.go", "kudos/integration/stack", "move the test to integration/"},
		{"config/config.go", "kudos/producer", ""},
		{"config/config.go", "kudos/schema", "put shared code"},
		{"config/config.go", "kudos/dev", "only the command and tests"},
		{"util/strings.go", "strings", "util/ is not a directory"},
		{"main.go", "github.com/spf13/viper", "Options struct of your role"},
		{"config/load.go", "github.com/spf13/viper", ""},
		{"stream/group.go", "github.com/IBM/sarama", ""},
		{"processor/x.go", "github.com/IBM/sarama/mocks", "hide them behind a type of package stream"},
		{"sql/store.go", "github.com/dolthub/go-mysql-server/memory", "embedded servers stay out"},
		{"sql/store_test.go", "github.com/dolthub/go-mysql-server/memory", ""},
		{"integration/stack/kafka.go", "github.com/twmb/franz-go/pkg/kfake", "embedded servers stay out"},
		{"dev/broker.go", "github.com/twmb/franz-go/pkg/kfake", ""},
		{"reader/views.go", "github.com/redis/go-redis/v9", "Kafka and MySQL alone"},
		{"reader/views_test.go", "github.com/redis/go-redis/v9", "Kafka and MySQL alone"},
	} {
		got := strings.Join(source{c.path, []string{c.imports}}.violations(), "\n")
		if c.want == "" {
			require.Empty(t, got, "%s importing %s", c.path, c.imports)
			continue
		}
		require.Contains(t, got, c.want, "%s importing %s", c.path, c.imports)
		require.Contains(t, got, c.path)
	}
}

// TestConfigUsesOptionsOnly: config may use the roles' options, and nothing else of them.
func TestConfigUsesOptionsOnly(t *testing.T) {
	files := glob(t, root, "config/*.go")
	require.NotEmpty(t, files)
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		require.NoError(t, err)
		ours := map[string]bool{}
		for _, spec := range file.Imports {
			if imported := strings.Trim(spec.Path.Value, `"`); strings.HasPrefix(imported, module) {
				ours[filepath.Base(imported)] = true
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if selector, ok := n.(*ast.SelectorExpr); ok {
				pkg, ok := selector.X.(*ast.Ident)
				if ok && ours[pkg.Name] && pkg.Obj == nil && !strings.HasSuffix(selector.Sel.Name, "Options") {
					t.Errorf("%s uses %s.%s: config may use only the Options of the roles; do "+
						"the rest in cli", path, pkg.Name, selector.Sel.Name)
				}
			}
			return true
		})
	}
}

// TestImagesHaveNoEmbeddedServers checks the dependencies of the nodev build.
func TestImagesHaveNoEmbeddedServers(t *testing.T) {
	embedded := regexp.MustCompile(`^github\.com/(twmb/franz-go/pkg/kfake|dolthub/go-mysql-server)(/|$)`)
	require.True(t, slices.ContainsFunc(dependencies(t), embedded.MatchString),
		"`kudos dev` is built without its embedded servers, so this test would pass in any case")
	for _, dep := range dependencies(t, "-tags", "nodev") {
		if embedded.MatchString(dep) {
			t.Errorf("%s is part of an image (go build -tags nodev): put what imports it behind //go:build !nodev", dep)
		}
	}
}

// TestFirstBuildStaysSmall: new users wait until all of this is compiled.
func TestFirstBuildStaysSmall(t *testing.T) {
	for _, unwanted := range []struct {
		what *regexp.Regexp
		fix  string
	}{
		{regexp.MustCompile(`^github\.com/tetratelabs/wazero(/|$)`), "dev/regex replaces go-icu-regex, which needs it"},
		{regexp.MustCompile(`^google\.golang\.org/grpc$|^github\.com/grpc-ecosystem/`),
			"stream/kafka/tracing sends spans by itself"},
	} {
		if i := slices.IndexFunc(dependencies(t), unwanted.what.MatchString); i >= 0 {
			t.Errorf("the program imports %s: %s", dependencies(t)[i], unwanted.fix)
		}
	}
	for _, pkg := range dependencies(t, "-f", `{{if and .CFiles (not .Standard)}}{{.ImportPath}}{{end}}`) {
		t.Errorf("%s is compiled from C, which takes longer than Go: stream/store/zstd shows how to replace it", pkg)
	}
}

// TestReleasesHaveTheTestedVersions: releases are built from modules of their own, with the versions of libraries that
// the tests run with; and Go compiles those only once. Fix: go get in this module, go mod tidy in the others.
func TestReleasesHaveTheTestedVersions(t *testing.T) {
	tested, shared := requirements(t, "."), 0
	for _, dir := range []string{"cli/full", "cli/lake"} {
		for path, version := range requirements(t, dir) {
			if want, ok := tested[path]; ok {
				shared++
				assert.Equal(t, want, version, "%s in %s/go.mod", path, dir)
			}
		}
	}
	require.Greater(t, shared, 100)
}

// requirements returns the versions of the modules in a go.mod.
func requirements(t *testing.T, dir string) map[string]string {
	cmd := exec.CommandContext(t.Context(), "go", "mod", "edit", "-json")
	cmd.Dir, cmd.Stderr = filepath.Join(root, dir), os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err)
	var file struct {
		Require []struct{ Path, Version string }
	}
	require.NoError(t, json.Unmarshal(out, &file))
	versions := map[string]string{}
	for _, m := range file.Require {
		versions[m.Path] = m.Version
	}
	return versions
}

func dependencies(t *testing.T, flags ...string) []string {
	cmd := exec.CommandContext(t.Context(), "go", append(append([]string{"list", "-deps"}, flags...), ".")...)
	cmd.Dir, cmd.Stderr = root, os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err, "%s", cmd)
	return strings.Fields(string(out))
}
