package integration

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/integration/deployed"
	"kudos/schema"
)

const securityDoc = "../docs/security.md" // the guide for granting permissions; the tests grant exactly what it says

// permission is one operation on one resource, from a row of the table of ACLs.
type permission struct {
	user           string
	operation      kadm.ACLOperation
	resource, name string
	prefixed       bool
}

// sectionOf returns the text below a heading, up to the next one of its level.
func sectionOf(t testing.TB, heading string) string {
	_, section, found := strings.Cut(readText(t, securityDoc), "\n"+heading+"\n")
	require.True(t, found, "%s has no %s", securityDoc, heading)
	level, _, _ := strings.Cut(heading, " ")
	section, _, _ = strings.Cut(section, "\n"+level+" ")
	return section
}

func permissionsOfTheDocs(t testing.TB) (all []permission) {
	rows := regexp.MustCompile(`(?m)^\| *([a-z]+) *\| *([^|\n]+?) *\| *([^|\n]+?) *\| *([^|\n]+?) *\|$`)
	for _, cells := range rows.FindAllStringSubmatch(sectionOf(t, "### ACLs"), -1) {
		if cells[1] == "user" {
			continue
		}
		names := regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[4], -1)
		require.NotEmpty(t, names, cells[0])
		for word := range strings.SplitSeq(cells[2], ", ") {
			operation, err := kmsg.ParseACLOperation(word)
			require.NoError(t, err, cells[0])
			for _, name := range names {
				literal, prefixed := strings.CutSuffix(name[1], "*")
				if literal == "" { // Kafka's wildcard is no prefix
					literal, prefixed = "*", false
				}
				all = append(all, permission{cells[1], operation, cells[3], literal, prefixed})
			}
		}
	}
	require.NotEmpty(t, all, "%s has no table of ACLs", securityDoc)
	return all
}

func (p permission) acls(t testing.TB) *kadm.ACLBuilder {
	b := kadm.NewACLs().Allow("User:" + p.user).AllowHosts("*").Operations(p.operation)
	b.ResourcePatternType(kadm.ACLPatternLiteral)
	if p.prefixed {
		b.ResourcePatternType(kadm.ACLPatternPrefixed)
	}
	switch p.resource {
	case "topic":
		return b.Topics(p.name)
	case "group":
		return b.Groups(p.name)
	case "transactional id":
		return b.TransactionalIDs(p.name)
	case "cluster":
		return b.Clusters()
	}
	require.FailNow(t, "unknown resource type", "%+v", p)
	return nil
}

// grant creates ACLs for the permissions, and returns when they are effective.
func (s *secured) grant(all ...permission) {
	for _, p := range all {
		created, err := s.admin().CreateACLs(s.t.Context(), p.acls(s.t))
		require.NoError(s.t, err)
		for _, c := range created {
			require.NoError(s.t, c.Err, "%+v", p)
		}
	}
	for _, p := range all {
		s.waitAllowed(p, true)
	}
}

func (s *secured) withdraw(p permission) {
	deleted, err := s.admin().DeleteACLs(s.t.Context(), p.acls(s.t))
	require.NoError(s.t, err)
	for _, d := range deleted {
		require.NoError(s.t, d.Err)
		require.Len(s.t, d.Deleted, 1, "%+v", p)
	}
	s.waitAllowed(p, false)
}

// waitAllowed waits until the change has propagated from the controller to the broker.
func (s *secured) waitAllowed(p permission, allowed bool) {
	waitFor(s.t, time.Minute, "Kafka to apply the ACL change", func() bool {
		described, err := s.admin().DescribeACLs(s.t.Context(), p.acls(s.t))
		require.NoError(s.t, err)
		for _, d := range described {
			require.NoError(s.t, d.Err)
			if (len(d.Described) > 0) != allowed {
				return false
			}
		}
		return true
	})
}

// allowed matches the broker's log lines of granted operations.
var allowed = regexp.MustCompile(
	`Principal = User:(\w+) is Allowed operation = (\w+) from host = \S+ on resource = (\w+):LITERAL:(\S+) for`)

// leastPermissions requires that every granted permission was used: the table must not have unnecessary ones.
func (s *secured) leastPermissions(all []permission) {
	used := map[string][]string{} // names, by user, operation and kind of resource
	for _, m := range allowed.FindAllStringSubmatch(readText(s.t, s.kafka.Node(0).LogPath()), -1) {
		use := strings.ToLower(m[1] + " " + m[2] + " " + m[3])
		used[use] = append(used[use], m[4])
	}
	var unused []string
	for _, p := range all {
		use := strings.ToLower(fmt.Sprintf("%s %s %s", p.user, p.operation, strings.ReplaceAll(p.resource, " ", "")))
		if !slices.ContainsFunc(used[use], func(name string) bool {
			return name == p.name || p.name == "*" || p.prefixed && strings.HasPrefix(name, p.name)
		}) {
			unused = append(unused, use+" "+p.name)
		}
	}
	require.Empty(s.t, unused, "unused permissions in %s", securityDoc)
}

// grantInMySQL executes a block of statements of docs/security.md; the first is to run before the tables exist.
// Passwords are the user's name with secret appended, and all users need certificates.
func (s *secured) grantInMySQL(block int) {
	blocks := regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllStringSubmatch(sectionOf(s.t, "## MySQL"), -1)
	require.Len(s.t, blocks, 2)
	creates := regexp.MustCompile(`(CREATE USER 'kudos_(\w+)'@'%') IDENTIFIED BY '…' REQUIRE SSL`)
	for statement := range strings.SplitSeq(creates.ReplaceAllString(blocks[block][1],
		"${1} IDENTIFIED BY '${2}"+secret+"' REQUIRE X509"), ";") {
		if statement = strings.TrimSpace(statement); statement != "" {
			s.db.MustExec(statement)
		}
	}
}

// TestTableOfACLsIsComplete: the table has every role and every topic.
func TestTableOfACLsIsComplete(t *testing.T) {
	var users, named []string
	for _, p := range permissionsOfTheDocs(t) {
		users = append(users, p.user)
		if p.user == "topics" && p.resource == "topic" && p.operation == kadm.OpCreate {
			named = append(named, p.name)
		}
	}
	require.Subset(t, users,
		[]string{"producer", "processor", "ranker", "reader", "archive", "bridge", "notify", "topics"})
	var topics []string
	for _, topic := range schema.Topics(partitions, 1) {
		topics = append(topics, topic.Name)
	}
	require.ElementsMatch(t, topics, named)
}

// TestStrimziUsersAreTheTableOfACLs: Strimzi grants the roles and the topics job the permissions in docs/security.md,
// which TestRolesWithTheACLsOfTheDocs tests on a real broker.
func TestStrimziUsersAreTheTableOfACLs(t *testing.T) {
	users := map[string]string{"kudos-producer": "producer", "kudos-processor": "processor", "kudos-ranker": "ranker",
		"kudos-reader": "reader", "kudos-archive": "archive", "kudos-bridge": "bridge", "kudos-notify": "notify",
		"kudos-setup": "topics"}
	inDocs := slices.Collect(maps.Values(users))
	isPerson := func(p permission) bool { return !slices.Contains(inDocs, p.user) }
	want, have := slices.DeleteFunc(permissionsOfTheDocs(t), isPerson), []permission{}
	for _, o := range deployed.Read[struct {
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
	}](t, "deploy/kubernetes/strimzi") {
		if o.Kind != "KafkaUser" {
			continue
		}
		require.Contains(t, users, o.Metadata.Name)
		for _, acl := range o.Spec.Authorization.ACLs {
			resource := strings.ReplaceAll(acl.Resource.Type, "transactionalId", "transactional id")
			for _, word := range acl.Operations {
				operation, err := kmsg.ParseACLOperation(word)
				require.NoError(t, err)
				name := acl.Resource.Name
				if resource == "cluster" {
					name = "kafka-cluster" // Strimzi takes no name
				}
				have = append(have, permission{users[o.Metadata.Name], operation, resource, name,
					acl.Resource.PatternType == "prefix"})
			}
		}
	}
	require.ElementsMatch(t, want, have)
}
