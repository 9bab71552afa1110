//go:build !nodev

package cli

import (
	stdsql "database/sql"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kudos/ops/forget"
)

// TestForgetOnTheWholeSystem goes through the commands, up to MySQL.
func TestForgetOnTheWholeSystem(t *testing.T) {
	at, end := startDev(t, embedded...)
	defer end()
	db, err := stdsql.Open("mysql", "root@tcp("+at.MySQL+")/kudos")
	require.NoError(t, err)
	defer db.Close()
	waitCounts := func(want string) {
		t.Helper()
		counts := func() string {
			rows, err := db.Query("SELECT CONCAT(post_id, ':', count, ',', dislike_count) FROM like_count WHERE count <> 0 OR dislike_count <> 0 ORDER BY post_id")
			if err != nil {
				return err.Error()
			}
			defer rows.Close()
			var all []string
			for rows.Next() {
				var one string
				if err := rows.Scan(&one); err != nil {
					return err.Error()
				}
				all = append(all, one)
			}
			return strings.Join(all, " ")
		}
		require.Eventually(t, func() bool { return counts() == want }, time.Minute, 50*time.Millisecond, "counts in MySQL: %s", counts())
	}
	code, _, stderr := kudos(t, "post_id,user_id,action\n42,7,LIKE\n42,8,LIKE\n42,9,DISLIKE\n43,7,LIKE\n43,8,LIKE\n44,9,DISLIKE\n", "import", "-", "--brokers", at.Kafka)
	require.Equal(t, exitDone, code, stderr)
	waitCounts("42:2,1 43:2,0 44:0,1")

	code, stdout, stderr := kudos(t, "", "forget", "post", "42", "--dry-run", "--brokers", at.Kafka)
	require.Equal(t, exitDone, code, stderr)
	require.Contains(t, stdout, "post 42: 2 likes and 1 dislike would be withdrawn; nothing was changed\n")
	require.Contains(t, stdout, "  latest-like-action-table (3 records, with user ids)\n    who has or had a reaction")

	code, stdout, stderr = kudos(t, "", "forget", "user", "7", "99", "--brokers", at.Kafka)
	require.Equal(t, exitDone, code, stderr)
	require.Regexp(t, `^user 7, 99: withdrew 2 likes and 0 dislikes in \S+; nothing is left\n`, stdout)
	require.Contains(t, stdout, "  likes (with user ids)\n    the events themselves, withdrawals included\n    kept for 7 days from now")
	require.Contains(t, stdout, "  likes.dlt (0 records, no user ids)\n")
	require.Contains(t, stdout, "  like-updates (no user ids)\n")
	waitCounts("42:1,1 43:1,0 44:0,1")

	code, stdout, stderr = kudos(t, "", "forget", "post", "42", "44", "--output", "json", "--brokers", at.Kafka)
	require.Equal(t, exitDone, code, stderr)
	var r forget.Report
	require.NoError(t, json.Unmarshal([]byte(stdout), &r))
	require.Equal(t, []string{"42", "44"}, r.IDs)
	require.Equal(t, forget.Reactions{Likes: 1, Dislikes: 2}, r.Withdrawn)
	require.True(t, r.Complete)
	waitCounts("43:1,0")
}

func TestForgetIsUsedRightly(t *testing.T) {
	brokers := likesBroker(t)
	for args, want := range map[string]string{
		"":                                "kudos forget needs a command",
		"page 42":                         `unknown command "page"`,
		"post":                            "kudos forget post takes the ids of posts; none was given",
		"post 42 0":                       `"0" is no post id: a whole number from 1 to 2^64-1`,
		"user 42 x":                       `"x" is no user id`,
		"user 18446744073709551616":       "is no user id",
		"post 42 --timeout 0s":            "timeout must be above zero",
		"post 42 --timeout soon":          "invalid argument",
		"post 42 --set kafka.borkers=a:1": "kafka.borkers",
	} {
		code, stdout, stderr := kudos(t, "", append([]string{"forget"}, strings.Fields(args)...)...)
		require.Equal(t, exitUsage, code, args)
		require.Empty(t, stdout)
		require.Contains(t, stderr, want)
	}
	code, stdout, stderr := kudos(t, "", "forget", "post", "42", "--brokers", brokers)
	require.Equal(t, exitFailed, code)
	require.Empty(t, stdout)
	require.Contains(t, stderr, "topic latest-like-action-table does not exist on ["+brokers+`]; create the topics with "kudos topics apply"`)
}
