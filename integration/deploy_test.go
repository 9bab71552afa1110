package integration

import (
	"bytes"
	"encoding/json"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/integration/tier"
)

// deployed is what deploycheck reads of a file or folder that is shipped to deploy kudos.
func deployed[T any](t testing.TB, path string) (read []T) {
	t.Helper()
	path, err := filepath.Abs(path)
	require.NoError(t, err)
	var stderr bytes.Buffer
	check := exec.CommandContext(t.Context(), "go", "run", ".", path)
	check.Dir, check.Stderr = "deploycheck", &stderr
	out, err := check.Output()
	require.NoError(t, err, stderr.String())
	var byPath map[string][]T
	require.NoError(t, json.Unmarshal(out, &byPath))
	require.NotEmpty(t, byPath[path], path)
	return byPath[path]
}

// TestStrimziUsersAreTheTableOfACLs: what Strimzi grants the roles and the job that makes topics is what docs/security.md
// says, which TestRolesWithTheACLsOfTheDocs grants on a real broker.
func TestStrimziUsersAreTheTableOfACLs(t *testing.T) {
	tier.Verify(t)
	type allowed struct {
		user, operation, resource, name string
		prefixed                        bool
	}
	users := map[string]string{"kudos-producer": "producer", "kudos-processor": "processor", "kudos-ranker": "ranker", "kudos-reader": "reader", "kudos-archive": "archive", "kudos-setup": "topics"}
	inDocs := slices.Collect(maps.Values(users)) // the others are people
	var want, have []allowed
	for _, p := range permissionsOfTheDocs(t) {
		for _, operation := range p.operations {
			if slices.Contains(inDocs, p.user) {
				want = append(want, allowed{p.user, operation.String(), p.resource, p.name, p.prefixed})
			}
		}
	}
	for _, o := range deployed[struct {
		Kind     string
		Metadata struct{ Name string }
		Spec     struct {
			Authorization struct {
				ACLs []struct {
					Resource   struct{ Type, Name, PatternType string }
					Operations []string
				}
			}
		}
	}](t, "../deploy/kubernetes/strimzi") {
		if o.Kind != "KafkaUser" {
			continue
		}
		require.Contains(t, users, o.Metadata.Name)
		for _, acl := range o.Spec.Authorization.ACLs {
			resource := strings.ReplaceAll(acl.Resource.Type, "transactionalId", "transactional id")
			for _, word := range acl.Operations {
				operation, err := kmsg.ParseACLOperation(word)
				require.NoError(t, err)
				have = append(have, allowed{users[o.Metadata.Name], operation.String(), resource, acl.Resource.Name, acl.Resource.PatternType == "prefix"})
			}
		}
	}
	require.ElementsMatch(t, want, have)
}
