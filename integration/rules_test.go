package integration

import (
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

	"github.com/stretchr/testify/require"
)

// root is the module's directory, module its import path prefix.
const root, module = "..", "kudos/"

// mayImport lists the top-level packages that each top-level package may import, besides its own subpackages. It
// enforces the diagram in docs/design.md.
var mayImport = map[string][]string{
	"main": {"cli"},
	"cli": {"config", "producer", "processor", "ranker", "reader", "archive", "ops", "bench", "dev",
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
	"ops":    {"processor/fold", "processor/fold/classify", "processor/fold/table", "producer/bulk"},
	"sql":    {"httpserver/tlsfiles"},
	"stream": {"httpserver/tlsfiles"},
}

// mayImportWithin restricts imports within a top-level package: the packages below stream must not depend on it.
var mayImportWithin = map[string][]string{"stream/kafka": {}, "stream/store": {"stream/kafka", "stream/store/buffer"},
	"stream/store/buffer": {}}

// testsMayImport is what _test files may import in addition.
var testsMayImport = []string{"schema", "stream", "sql", "httpserver", "ops", "dev", "integration"}

// fix says, for a forbidden import, what to do instead. The first entry that matches both packages applies; "*"
// matches any.
var fix = []struct{ room, imports, fix string }{
	{"*", "config", "take an Options struct of your own; config fills it and cli passes it on"},
	{"*", "dev", "only the command and tests know the embedded servers: take what you need as an argument of New"},
	{"*", "integration", "move the test to integration/, or what it needs into your own _test files"},
	{"schema", "*", "schema is the ground that all stand on: move the code to the room that it imports"},
	{"stream", "schema",
		"stream knows batches and bytes, not likes: take a function or an option that the role fills from schema"},
	{"stream", "*", "stream knows batches and bytes: define a small interface in stream that the role satisfies"},
	{"sql", "*", "sql stores what it is given: define the type in sql, and let the role convert"},
	{"*", "*", "roles speak through topics and tables only: put what two of them share into schema, stream or sql"},
}

// libraries that only some top-level packages may import.
var libraries = []struct {
	what  *regexp.Regexp
	rooms []string // none: no package may
	tests bool     // _test files of every package may
	fix   string
}{
	{regexp.MustCompile(`^github\.com/spf13/viper(/|$)`), []string{"config"}, false,
		"add a field to the Options struct of your role; config reads it"},
	{regexp.MustCompile(`^github\.com/(twmb/franz-go/pkg/kfake|dolthub/.+)(/|$)`), []string{"dev"}, true,
		"embedded servers stay out of images: use them from dev or from a _test file"},
	{regexp.MustCompile(`^github\.com/IBM/sarama(/|$)`), []string{"stream"}, false,
		"sarama's types end at goka's ports: hide them behind a type of package stream, and talk to Kafka with " +
			"franz-go"},
	{regexp.MustCompile(`(?i)redis|redigo|rueidis|valkey|memcache`), nil, false,
		"kudos stands on Kafka and MySQL alone: keep it in the state table, in a view or in MySQL"},
}

type source struct {
	path    string
	imports []string
}

// room returns the first part of the file's directory; files at the root are main.
func (s source) room() string {
	dir, _, nested := strings.Cut(filepath.ToSlash(s.path), "/")
	if !nested {
		return "main"
	}
	return dir
}

// violations lists what breaks the rules, with what to do instead.
func (s source) violations() (found []string) {
	tell := func(who, imported, fix string) {
		found = append(found, fmt.Sprintf("%s: %s must not import %s: %s", s.path, who, imported, fix))
	}
	room, isTest := s.room(), strings.HasSuffix(s.path, "_test.go")
	allowed, known := mayImport[room]
	if !known {
		return []string{fmt.Sprintf("%s: %s/ is no room of the program; put the file into one, or add the room to "+
			"mayImport and docs/design.md", s.path, room)}
	}
	if isTest {
		allowed = slices.Concat(allowed, testsMayImport)
	}
	for _, imported := range s.imports {
		if ours, ok := strings.CutPrefix(imported, module); ok {
			other, _, _ := strings.Cut(ours, "/")
			folder := path.Dir(filepath.ToSlash(s.path))
			if within, ok := mayImportWithin[folder]; ok && other == room && !isTest && !slices.Contains(within, ours) {
				tell(folder, imported, "let stream pass it in")
			}
			if other != room && !slices.Contains(allowed, other) && !slices.Contains(mayImportPackage[room], ours) {
				tell(room, imported, mendFor(room, other))
			}
			continue
		}
		for _, l := range libraries {
			if l.what.MatchString(imported) && !slices.Contains(l.rooms, room) && !(l.tests && isTest) {
				tell(room, imported, l.fix)
			}
		}
	}
	return found
}

func mendFor(room, imported string) string {
	for _, m := range fix {
		if (m.room == "*" || m.room == room) && (m.imports == "*" || m.imports == imported) {
			return m.fix
		}
	}
	return ""
}

func sources(t *testing.T) []source {
	var list []source
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := d.Name(); d.IsDir() && path != root {
			// Separate modules, such as tools and the peers of the benchmark, have other rules.
			_, err := os.Stat(filepath.Join(path, "go.mod"))
			if err == nil || strings.HasPrefix(name, ".") || name == "testdata" || name == "tmp" {
				return fs.SkipDir
			}
		}
		if d.IsDir() || filepath.Ext(path) != ".go" {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		inModule, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		s := source{path: inModule}
		for _, spec := range file.Imports {
			s.imports = append(s.imports, strings.Trim(spec.Path.Value, `"`))
		}
		list = append(list, s)
		return nil
	})
	require.NoError(t, err)
	require.Greater(t, len(list), 20, "the files of the program are not here")
	return list
}

func TestImportRules(t *testing.T) {
	for _, s := range sources(t) {
		for _, v := range s.violations() {
			t.Error(v)
		}
	}
}

// TestImportRulesBite tests the rules with files that break them.
func TestImportRulesBite(t *testing.T) {
	for _, c := range []struct {
		path, imports, want string // "": allowed
	}{
		{"schema/key.go", "kudos/schema/kudosv1", ""},
		{"schema/key.go", "kudos/stream", "schema is the ground"},
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
		{"producer/publish.go", "kudos/processor/fold", "roles speak through topics"},
		{"processor/processor.go", "kudos/producer", "roles speak through topics"},
		{"processor/processor.go", "kudos/config", "take an Options struct"},
		{"processor/processor.go", "kudos/dev", "only the command and tests"},
		{"processor/processor_test.go", "kudos/dev", ""},
		{"processor/processor_test.go", "kudos/producer", "roles speak through topics"},
		{"processor/processor.go", "kudos/integration/stack", "move the test to integration/"},
		{"cli/bench.go", "kudos/bench", ""},
		{"cli/bench.go", "kudos/integration/stack", "move the test to integration/"},
		{"config/config.go", "kudos/producer", ""},
		{"config/config.go", "kudos/schema", "put what two of them share"},
		{"config/config.go", "kudos/dev", "only the command and tests"},
		{"util/strings.go", "strings", "util/ is no room"},
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
	files, err := filepath.Glob(filepath.Join(root, "config/*.go"))
	require.NoError(t, err)
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
					t.Errorf("%s uses %s.%s: config composes the Options of the roles and nothing else of them; do "+
						"that in cli", path, pkg.Name, selector.Sel.Name)
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
		"`kudos dev` is built without its embedded servers, so this test would find nothing either way")
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

func dependencies(t *testing.T, flags ...string) []string {
	cmd := exec.CommandContext(t.Context(), "go", append(append([]string{"list", "-deps"}, flags...), ".")...)
	cmd.Dir, cmd.Stderr = root, os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err, "%s", cmd)
	return strings.Fields(string(out))
}
