package config

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"
)

const exampleFile = "kudos.example.yaml"

func TestExampleHoldsEveryKeyWithItsDefault(t *testing.T) {
	clearEnv(t)
	loaded, err := Load(Sources{File: exampleFile})
	require.NoError(t, err)
	if diff := cmp.Diff(Default(), loaded.Config); diff != "" {
		t.Errorf("%s must show the defaults; mend it where it differs (- default, + example):\n%s", exampleFile, diff)
	}

	want := Default()
	got := exampleKeys(t)
	for _, s := range settings(&want) {
		if _, ok := got[s.key]; !ok {
			t.Errorf("%s lacks %s; add it with its default, its unit and what it is for", exampleFile, s.key)
		}
	}
}

func TestExampleDocumentsEveryKey(t *testing.T) {
	for key, comment := range exampleKeys(t) {
		if comment == "" {
			t.Errorf("%s: %s has no comment above it; say what it is for and its unit", exampleFile, key)
		}
	}
}

// exampleKeys returns the keys of the example with the comment above each.
func exampleKeys(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile(exampleFile)
	require.NoError(t, err)
	var doc yaml.Node
	require.NoError(t, yaml.Unmarshal(text, &doc))
	keys := map[string]string{}
	var walk func(prefix string, n *yaml.Node)
	walk = func(prefix string, n *yaml.Node) {
		for i := 0; i+1 < len(n.Content); i += 2 {
			name, value := n.Content[i], n.Content[i+1]
			if value.Kind == yaml.MappingNode {
				walk(prefix+name.Value+".", value)
				continue
			}
			keys[prefix+name.Value] = strings.TrimSpace(name.HeadComment)
		}
	}
	walk("", doc.Content[0])
	return keys
}
