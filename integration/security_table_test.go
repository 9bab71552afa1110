package integration

import (
	"bufio"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/schema"
)

// securityDoc is what operators grant users by; what it says is granted here, and nothing else.
const securityDoc = "../docs/security.md"

// permission is one row of the table of ACLs, for one name.
type permission struct {
	user       string
	operations []kadm.ACLOperation
	resource   string
	name       string
	prefixed   bool
}

// sectionOf is the text below a heading, up to the next one of its level.
func sectionOf(t testing.TB, heading string) string {
	t.Helper()
	text, err := os.ReadFile(securityDoc)
	require.NoError(t, err)
	_, section, found := strings.Cut(string(text), "\n"+heading+"\n")
	require.True(t, found, "%s has no %s", securityDoc, heading)
	level, _, _ := strings.Cut(heading, " ")
	section, _, _ = strings.Cut(section, "\n"+level+" ")
	return section
}

// permissionsOfTheDocs are the ACLs of docs/security.md.
func permissionsOfTheDocs(t testing.TB) (all []permission) {
	t.Helper()
	for line := range strings.SplitSeq(sectionOf(t, "### ACLs"), "\n") {
		cells := strings.Split(strings.Trim(line, "|"), "|")
		if len(cells) != 4 || strings.HasPrefix(cells[0], "-") {
			continue
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if cells[0] == "user" {
			continue
		}
		var operations []kadm.ACLOperation
		for word := range strings.SplitSeq(cells[1], ", ") {
			operation, err := kmsg.ParseACLOperation(word)
			require.NoError(t, err, line)
			operations = append(operations, operation)
		}
		names := regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[3], -1)
		require.NotEmpty(t, names, line)
		for _, name := range names {
			literal, prefixed := strings.CutSuffix(name[1], "*")
			all = append(all, permission{cells[0], operations, cells[2], literal, prefixed})
		}
	}
	require.NotEmpty(t, all, "%s has no table of ACLs", securityDoc)
	return all
}

// usersOf are all that the table names.
func usersOf(all []permission) (users []string) {
	for _, p := range all {
		users = append(users, p.user)
	}
	slices.Sort(users)
	return slices.Compact(users)
}

// acls is the permission as Kafka has it.
func (p permission) acls(t testing.TB) *kadm.ACLBuilder {
	t.Helper()
	b := kadm.NewACLs().Allow("User:" + p.user).AllowHosts("*").Operations(p.operations...).ResourcePatternType(kadm.ACLPatternLiteral)
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
	}
	t.Fatalf("%s: no resource is named %q", securityDoc, p.resource)
	return nil
}

// grant has Kafka allow what the permissions say, and returns when it does.
func (s *secured) grant(all ...permission) {
	s.t.Helper()
	for _, p := range all {
		created, err := s.adm.CreateACLs(s.t.Context(), p.acls(s.t))
		require.NoError(s.t, err)
		for _, c := range created {
			require.NoError(s.t, c.Err, "%+v", p)
		}
	}
	for _, p := range all {
		s.waitAllowed(p, true)
	}
}

// withdraw is the opposite of grant.
func (s *secured) withdraw(p permission) {
	s.t.Helper()
	deleted, err := s.adm.DeleteACLs(s.t.Context(), p.acls(s.t))
	require.NoError(s.t, err)
	for _, d := range deleted {
		require.NoError(s.t, d.Err)
		require.Len(s.t, d.Deleted, 1, "%+v", p)
	}
	s.waitAllowed(p, false)
}

// waitAllowed waits until the broker, which the controller tells, knows.
func (s *secured) waitAllowed(p permission, allowed bool) {
	s.t.Helper()
	waitFor(s.t, time.Minute, "Kafka to know what is allowed", func() bool {
		described, err := s.adm.DescribeACLs(s.t.Context(), p.acls(s.t))
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

// allowed matches what the broker's log tells of each thing that it allowed.
var allowed = regexp.MustCompile(`Principal = User:(\w+) is Allowed operation = (\w+) from host = \S+ on resource = (\w+):LITERAL:(\S+) for`)

// leastPermissions wants everything that was granted to have been made use of: what nobody needs is not to be in the table.
func (s *secured) leastPermissions(all []permission) {
	s.t.Helper()
	log, err := os.Open(s.kafka.Node(0).LogPath())
	require.NoError(s.t, err)
	defer log.Close()
	used := map[string][]string{} // names, by user, operation and kind of resource
	lines := bufio.NewScanner(log)
	for lines.Scan() {
		if m := allowed.FindStringSubmatch(lines.Text()); m != nil {
			use := strings.ToLower(m[1] + " " + m[2] + " " + m[3])
			used[use] = append(used[use], m[4])
		}
	}
	require.NoError(s.t, lines.Err())
	var unused []string
	for _, p := range all {
		for _, operation := range p.operations {
			use := strings.ToLower(strings.Join([]string{p.user, operation.String(), strings.ReplaceAll(p.resource, " ", "")}, " "))
			if !slices.ContainsFunc(used[use], func(name string) bool { return name == p.name || p.prefixed && strings.HasPrefix(name, p.name) }) {
				unused = append(unused, use+" "+p.name)
			}
		}
	}
	require.Empty(s.t, unused, "nobody made use of these, which %s has", securityDoc)
}

// grantInMySQL carries out the statements of docs/security.md: before is those of before the tables are there. Passwords
// are the users' names, and certificates are wanted of everybody.
func (s *secured) grantInMySQL(before bool) {
	s.t.Helper()
	blocks := regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllStringSubmatch(sectionOf(s.t, "## MySQL"), -1)
	require.Len(s.t, blocks, 2)
	block := blocks[1][1]
	if before {
		block = blocks[0][1]
	}
	creates := regexp.MustCompile(`(CREATE USER 'kudos_(\w+)'@'%') IDENTIFIED BY '…' REQUIRE SSL`)
	for statement := range strings.SplitSeq(creates.ReplaceAllString(block, "${1} IDENTIFIED BY '${2}"+secret+"' REQUIRE X509"), ";") {
		if statement = strings.TrimSpace(statement); statement != "" {
			s.db.MustExec(statement)
		}
	}
}

// TestTheTableOfACLsIsComplete: every role and every topic is in it.
func TestTheTableOfACLsIsComplete(t *testing.T) {
	all := permissionsOfTheDocs(t)
	require.Subset(t, usersOf(all), []string{"producer", "processor", "ranker", "reader", "archive", "topics"})
	var named []string
	for _, p := range all {
		if p.user == "topics" && p.resource == "topic" && slices.Contains(p.operations, kadm.OpCreate) {
			named = append(named, p.name)
		}
	}
	var topics []string
	for _, topic := range schema.Topics(partitions, 1) {
		topics = append(topics, topic.Name)
	}
	require.ElementsMatch(t, topics, named)
}
