package cli

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"kudos/schema"
)

// allInOne is a testee for which all rows are in database 0, and which supports nothing else.
const allInOne = `n=0; while read -r line; do n=$((n+1)); case $line in
*'"op":"database"'*) echo "{\"id\":$n,\"database\":0}";; *) echo "{\"id\":$n,\"unsupported\":true}";; esac; done`

func conform(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return kudos(t, "", append([]string{"conform"}, args...)...)
}

func TestConformExitsWithThreeIfACaseFails(t *testing.T) {
	code, stdout, stderr := conform(t, "--only", "^(database|count|exit)$", "sh", "-c", allInOne, "--output", "x")
	require.Equal(t, exitDifferent, code, stderr)
	require.Contains(t, stderr, "kudos: 1 cases failed\n")
	require.Equal(t, `FAILED database: Partition modulo the number of databases
  request   {"databases":2,"op":"database","partition":1}
  expected  {"database":1}
  got       {"database":0}
1 cases passed, 1 failed
count is not supported: 1 cases did not run
`, stdout)

	code, stdout, stderr = conform(t, "--output", "json", "--only", "^(count|exit)$", "--", "sh", "-c", allInOne)
	require.Equal(t, exitDone, code, stderr)
	require.JSONEq(t, `{"passed": 1, "failed": [], "unsupported": {"count": 1}}`, stdout)

	code, _, stderr = conform(t, "--", "/nowhere/testee")
	require.Equal(t, exitFailed, code)
	require.Contains(t, stderr, "starting the testee")
}

func TestConformListsItsCases(t *testing.T) {
	stdout, stderr := done(t, "conform", "--list", "--only", "^count")
	require.Empty(t, stderr)
	require.Regexp(t, `^count +The counts of a post\n`, stdout)
	require.NotContains(t, stdout, "\nstream")
	stdout, _ = done(t, "conform", "--list", "--output", "json")
	require.True(t, json.Valid([]byte(stdout)))
}

func TestConformUsedWrongly(t *testing.T) {
	usedWrongly(t, "conform", map[string]string{
		"":                         "give one of COMMAND, --topic and --list",
		"--list sh":                "give one of COMMAND, --topic and --list",
		"--list --topic likes":     "give one of COMMAND, --topic and --list",
		"--topic likes sh":         "give one of COMMAND, --topic and --list",
		"--only ( sh":              "missing closing )",
		"--only ^nothing$ sh":      "--only ^nothing$: no case has such an id",
		"--topic likes --from 7":   `--from "7" is not partition:offset`,
		"--topic likes --from 0:x": `--from "0:x" is not partition:offset`,
	})
}

func TestConformTopic(t *testing.T) {
	brokers := startKafka(t, kfake.SeedTopics(1, schema.TopicLikes))
	args := []string{"conform", "--topic", schema.TopicLikes, "--brokers", brokers}
	code, _, stderr := kudos(t, "post_id,user_id,action,time_ms\n42,7,LIKE,1\n43,7,LIKE,\n", "import", "-",
		"--brokers", brokers)
	require.Equal(t, exitDone, code, stderr)
	stdout, _ := done(t, args...)
	require.Regexp(t, `^likes: 2 valid events in 1 partitions; kudos forwarded 0 others
note: more than 24 h before their arrival: 1, the first in partition 0 at offset \d: time_ms 1 is \d+ s before .*
to check later records only: --from 0:2
$`, stdout)

	ahead := strconv.FormatInt(1<<62, 10)
	code, _, stderr = kudos(t, "post_id,user_id,action,time_ms\n42,7,LIKE,"+ahead+"\n", "import", "-",
		"--brokers", brokers)
	require.Equal(t, exitDone, code, stderr)
	code, stdout, stderr = kudos(t, "", append(args, "--from", "0:2")...)
	require.Equal(t, exitDifferent, code)
	require.Contains(t, stderr, "records of likes are wrong")
	require.Contains(t, stdout, "likes: 1 valid events")
	require.Contains(t, stdout,
		"more than 60 s after their arrival: 1, the first in partition 0 at offset 2: time_ms "+ahead)
	require.Contains(t, stdout, "--from 0:3\n")

	code, stdout, _ = kudos(t, "", append(args, "--output", "json")...)
	require.Equal(t, exitDifferent, code)
	require.JSONEq(t, `{"0": 3}`, field(t, stdout, "next"))
	require.JSONEq(t, `{}`, field(t, stdout, "dead_letters"))

	code, _, stderr = kudos(t, "", strings.Fields("conform --topic like --brokers "+brokers)...)
	require.Equal(t, exitFailed, code)
	require.Contains(t, stderr, "there is no topic like")
}

func field(t *testing.T, object, name string) string {
	var fields map[string]json.RawMessage
	require.NoError(t, json.Unmarshal([]byte(object), &fields))
	return string(fields[name])
}
