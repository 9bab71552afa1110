// Package contract checks values against schema/json. Only _test files import it.
package contract

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
)

// Read compiles a schema of directory, which is schema/json.
func Read(t testing.TB, directory, name string) *jsonschema.Schema {
	t.Helper()
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	s, err := c.Compile(filepath.Join(directory, name+".schema.json"))
	require.NoError(t, err)
	return s
}

// Obeys reports whether a value is valid by a schema.
func Obeys(t testing.TB, s *jsonschema.Schema, value []byte) error {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(value))
	require.NoError(t, err, "%s", value)
	return s.Validate(v)
}
