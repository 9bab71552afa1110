package schema

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDocumentedFunction checks the function in docs/reading.md that finds a post's partition, and so its database.
func TestDocumentedFunction(t *testing.T) {
	text, err := os.ReadFile("../docs/reading.md")
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	require.Len(t, blocks, 1)
	program := `package main

import (
	"database/sql"
	"encoding/binary"
	"fmt"
	"os"
)

` + blocks[0][1] + `
func main() {
	for _, key := range os.Args[1:] {
		for _, n := range []uint32{1, 3, 8, 64} {
			fmt.Println(key, n, partitionOf(key, n))
		}
	}
	dbs := []*sql.DB{{}, {}, {}}
	fmt.Println(databaseOf(dbs, "42", 8) == dbs[1], databaseOf(dbs, "43", 8) == dbs[2])
}
`
	path := filepath.Join(t.TempDir(), "main.go")
	require.NoError(t, os.WriteFile(path, []byte(program), 0o600))
	keys := []string{"global/day", "DE/1h", "US-CA/24h", "ZZ/all"}
	for _, post := range somePosts()[:500] {
		keys = append(keys, string(AppendPostKey(nil, post)))
	}
	var want strings.Builder
	for _, key := range keys {
		for _, n := range []int32{1, 3, 8, 64} {
			fmt.Fprintln(&want, key, n, KeyPartition([]byte(key), n))
		}
	}
	fmt.Fprintln(&want, "true true")
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"run", path}, keys...)...)
	cmd.Dir = filepath.Dir(path)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err)
	require.Equal(t, want.String(), string(out))
	for _, example := range []struct {
		post      uint64
		partition int32
	}{{42, 4}, {43, 2}} { // values from the docs
		require.Equal(t, example.partition, PartitionFor(example.post, 8))
	}
}
