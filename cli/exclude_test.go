package cli

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"kudos/schema"
)

func exclusionsBroker(t *testing.T) (brokers string) {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, schema.TopicExclusions))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	return strings.Join(cluster.ListenAddrs(), ",")
}

func TestExcludeListInclude(t *testing.T) {
	brokers := exclusionsBroker(t)
	run := func(args ...string) string {
		t.Helper()
		code, stdout, stderr := kudos(t, "", append(append([]string{"ranker"}, args...), "--brokers", brokers)...)
		require.Equal(t, exitDone, code, stderr)
		require.Empty(t, stderr)
		return stdout
	}
	require.Equal(t, "no post is excluded from rankings\n", run("exclusions"))
	require.Equal(t, "[]\n", run("exclusions", "--output", "json"))
	require.Equal(t, "excluded from rankings: 42, 18446744073709551615, 7\n",
		run("exclude", "42", "18446744073709551615", "7", "42", "--reason", "spam\nand more"))
	table := run("exclusions")
	require.Regexp(t, `^POST +EXCLUDED AT +REASON\n7 +\S+Z +spam and more\n42 +\S+Z +spam and more\n18446744073709551615 .*\n$`, table)

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

// TestExcludeSendsNothingIfAnIdIsNone: not the others, either.
func TestExcludeSendsNothingIfAnIdIsNone(t *testing.T) {
	brokers := exclusionsBroker(t)
	for _, command := range []string{"exclude", "include"} {
		for args, want := range map[string]string{
			"":                        command + " takes the ids of posts; none was given",
			"42 0":                    `"0" is no post id: a whole number from 1 to 2^64-1`,
			"42 18446744073709551616": `"18446744073709551616" is no post id`,
			"42 x y":                  `"y" is no post id`,
			"42 4.5":                  `"4.5" is no post id`,
			"42 --colour red":         "unknown flag: --colour",
		} {
			code, stdout, stderr := kudos(t, "", append([]string{"ranker", command, "--brokers", brokers}, strings.Fields(args)...)...)
			require.Equal(t, exitUsage, code, args)
			require.Empty(t, stdout)
			require.Contains(t, stderr, want)
			require.Contains(t, stderr, "kudos ranker "+command+" --help")
		}
	}
	_, stdout, _ := kudos(t, "", "ranker", "exclusions", "--brokers", brokers)
	require.Equal(t, "no post is excluded from rankings\n", stdout)
}

func TestExclusionsNeedTheirTopic(t *testing.T) {
	brokers := likesBroker(t)
	for _, args := range [][]string{{"exclude", "42"}, {"include", "42"}, {"exclusions"}} {
		code, stdout, stderr := kudos(t, "", append(append([]string{"ranker"}, args...), "--brokers", brokers)...)
		require.Equal(t, exitFailed, code)
		require.Empty(t, stdout)
		require.Contains(t, stderr, "topic trending-exclusions does not exist on ["+brokers+`]; create the topics with "kudos topics apply"`)
	}
}
