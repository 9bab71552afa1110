package cli

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"kudos/integration/stack"
	"kudos/schema"
)

// TestRankerNeedsNoMySQL: without it, rankings are only in Kafka, and one log line says so. Also covers stop and reset.
func TestRankerNeedsNoMySQL(t *testing.T) {
	brokers := startKafka(t)
	const settings = " --set topics.partitions=2 --set topics.replication_factor=1"
	apply := strings.Fields("topics apply --brokers " + brokers + settings)
	done(t, apply...)
	admin := stack.ReserveForTest(t)
	r := start(t, "ranker", "--brokers", brokers, "--set", "admin.addr="+admin,
		"--set", "ranker.state_dir="+t.TempDir())
	waitReady(t, admin)
	reset := []string{"ranker", "reset", "--yes", "--brokers", brokers}
	fails(t, exitFailed, reset, "stop all rankers first")
	require.Equal(t, exitDone, r.end(t), "%s", &r.stderr)
	const without = "rankings are in Kafka only: neither mysql.dsn nor mysql.shards is set"
	require.Equal(t, 1, strings.Count(r.stderr.String(), without), "%s", &r.stderr)

	fails(t, exitUsage, []string{"ranker", "reset", "--brokers", brokers}, "--yes")
	stdout, _ := done(t, reset...)
	require.Contains(t, stdout, "kudos topics apply")
	stdout, _ = done(t, apply...)
	for _, topic := range []string{"trending-local", "trending-local-table", "trending-table"} {
		require.Contains(t, stdout, "created "+topic+" with")
	}
	require.NotContains(t, stdout, "created trending-exclusions")
	require.NotContains(t, stdout, "created trending with")
}

func TestExcludeListInclude(t *testing.T) {
	brokers := startKafka(t, kfake.SeedTopics(1, schema.TopicExclusions))
	run := func(args ...string) string {
		t.Helper()
		stdout, stderr := done(t, append(append([]string{"ranker"}, args...), "--brokers", brokers)...)
		require.Empty(t, stderr)
		return stdout
	}
	require.Equal(t, "no post is excluded from rankings\n", run("exclusions"))
	require.Equal(t, "[]\n", run("exclusions", "--output", "json"))
	require.Equal(t, "excluded from rankings: 42, 18446744073709551615, 7\n",
		run("exclude", "42", "18446744073709551615", "7", "42", "--reason", "spam\nand more"))
	table := run("exclusions")
	require.Regexp(t, `^POST +EXCLUDED AT +REASON\n7 +\S+Z +spam and more\n`+
		`42 +\S+Z +spam and more\n18446744073709551615 .*\n$`, table)

	require.JSONEq(t, `{"posts": ["42", "99"], "excluded": false, "reason": "appeal"}`,
		run("include", "42", "99", "--reason", "appeal", "--output", "json"))
	require.Equal(t, "back in rankings: 7\n", run("include", "7"))
	var list []struct {
		PostID     string    `json:"post_id"`
		Reason     string    `json:"reason"`
		ExcludedAt time.Time `json:"excluded_at"`
	}
	require.NoError(t, json.Unmarshal([]byte(run("exclusions", "--output", "json")), &list))
	require.Len(t, list, 1)
	require.Equal(t, "18446744073709551615", list[0].PostID)
	require.Equal(t, "spam\nand more", list[0].Reason)
	require.WithinDuration(t, time.Now(), list[0].ExcludedAt, time.Minute)
}

func TestExcludeSendsNothingIfAnIDIsInvalid(t *testing.T) {
	brokers := startKafka(t, kfake.SeedTopics(1, schema.TopicExclusions))
	for _, command := range []string{"exclude", "include"} {
		usedWrongly(t, "ranker "+command+" --brokers "+brokers, map[string]string{
			"":                        command + " takes the ids of posts; none was given",
			"42 0":                    `"0" is not a post id: a whole number from 1 to 2^64-1`,
			"42 18446744073709551616": `"18446744073709551616" is not a post id`,
			"42 x y":                  `"y" is not a post id`,
			"42 4.5":                  `"4.5" is not a post id`,
			"42 --colour red":         "unknown flag: --colour",
			"0":                       "kudos ranker " + command + " --help",
		})
	}
	stdout, _ := done(t, "ranker", "exclusions", "--brokers", brokers)
	require.Equal(t, "no post is excluded from rankings\n", stdout)
}

func TestExclusionsNeedTheirTopic(t *testing.T) {
	brokers := likesBroker(t)
	for _, args := range []string{"exclude 42", "include 42", "exclusions"} {
		fails(t, exitFailed, strings.Fields("ranker "+args+" --brokers "+brokers),
			"topic trending-exclusions does not exist on ["+brokers+"]; run `kudos topics apply`")
	}
}
