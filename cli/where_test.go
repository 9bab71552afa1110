package cli

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"kudos/schema"
)

// Of eight partitions (nine of the rankings, which is another topic) and three databases; Kafka says how many partitions there are, whatever topics.partitions does.
func TestWhere(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(8, schema.TopicLikes), kfake.SeedTopics(9, schema.TopicTrending))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	brokers := strings.Join(cluster.ListenAddrs(), ",")
	t.Setenv("KUDOS_MYSQL_SHARDS", "me:hunter2@tcp(a:3306)/kudos,me:hunter2@tcp(b:3306)/kudos,me:hunter2@tcp(c:3306)/kudos")
	where := func(args ...string) string {
		code, stdout, stderr := kudos(t, "", append(append([]string{"where"}, args...), "--brokers", brokers, "--set", "topics.partitions=5")...)
		require.Equal(t, exitDone, code, stderr)
		require.Empty(t, stderr)
		return stdout
	}
	require.Regexp(t, `^KEY +PARTITION +SHARD +SERVER\n42 +4 +1 +b:3306/kudos\n43 +2 +2 +c:3306/kudos\nDE/1h +7 +1 +b:3306/kudos\n$`, where("42", "0043", "DE/1h"))
	require.JSONEq(t, `[{"key": "42", "partition": 4, "shard": 1, "server": "b:3306/kudos"}]`, where("42", "--output", "json"))

	t.Setenv("KUDOS_MYSQL_SHARDS", "")
	t.Setenv("KUDOS_MYSQL_DSN", "me:hunter2@tcp(a:3306)/kudos")
	require.Regexp(t, `\n42 +4 +0 +a:3306/kudos\n`, where("42"))
}
