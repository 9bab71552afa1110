package live

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func posts(ids ...uint64) *wanted { return &wanted{posts: ids} }

func seen(t *testing.T, id string, q *wanted) *wanted {
	t.Helper()
	var err error
	q.seen, err = parseEventID(id)
	require.NoError(t, err)
	return q
}

func TestParse(t *testing.T) {
	const id = "5f0c1d2e.3:1018,12:0"
	seen := &eventID{epoch: "5f0c1d2e", offsets: map[int32]int64{3: 1018, 12: 0}}
	for _, c := range []struct {
		query, header string
		want          wanted
	}{
		{query: "post_ids=42", want: wanted{posts: []uint64{42}}},
		{query: "post_ids=42,7&post_ids=7,18446744073709551615",
			want: wanted{posts: []uint64{42, 7, 18446744073709551615}}},
		{query: "post_ids=1%2C2&last_event_id=", want: wanted{posts: []uint64{1, 2}}},
		{query: "post_ids=1&last_event_id=" + id, want: wanted{posts: []uint64{1}, seen: seen}},
		{query: "post_ids=1&last_event_id=0badc0de.1:1", header: id, want: wanted{posts: []uint64{1}, seen: seen}},
		{query: "post_ids=1&last_event_id=rubbish", header: id, want: wanted{posts: []uint64{1}, seen: seen}},
		// A header of another server counts as none, since an EventSource would never connect again after a 400.
		{query: "post_ids=1", header: "nonsense", want: wanted{posts: []uint64{1}}},
		{query: "post_ids=1&last_event_id=" + id, header: "7", want: wanted{posts: []uint64{1}, seen: seen}},
		{query: "trending=global", want: wanted{ranking: &rankingKey{"global", "1h"}}},
		{query: "trending=Global&window=day", want: wanted{ranking: &rankingKey{"global", "day"}}},
		{query: "trending=us-ca&window=10m", header: id,
			want: wanted{ranking: &rankingKey{"US-CA", "10m"}, seen: seen}},
	} {
		r := httptest.NewRequest("GET", "/v1/stream?"+c.query, nil)
		r.Header.Set("Last-Event-ID", c.header)
		got, p := parse(r, 4)
		require.Nil(t, p, c.query)
		require.Equal(t, &c.want, got, c.query)
	}
}

func TestParseRejectsInvalidInput(t *testing.T) {
	for query, detail := range map[string]string{
		"":                             "post_ids: either post_ids or trending",
		"post_ids=1&trending=DE":       "post_ids: either post_ids or trending",
		"post_ids=":                    "post_ids: is empty",
		"trending=":                    "trending: is empty",
		"post_ids=1,,2":                `post_ids: "" is not a whole number`,
		"post_ids=1,1,1,1":             "post_ids: has 4 posts; at most 3",
		"post_ids=1&window=1h":         "window: is valid only with trending",
		"trending=Germany":             "trending: ",
		"trending=DE&trending=FR":      "trending: is given more than once",
		"trending=DE&window=last/hour": "window: ",
		"trending=DE&since=now":        "since: is unknown",
		"post_ids=%zz":                 "post_ids: is not valid URL encoding",
		"post_ids=1&last_event_id=5":   "last_event_id: ",
		"post_ids=1&last_event_id=5&last_event_id=6": "last_event_id: is given more than once",
	} {
		_, p := parse(httptest.NewRequest("GET", "/v1/stream?"+query, nil), 3)
		require.NotNil(t, p, query)
		require.Equal(t, 400, p.Status, query)
		require.Contains(t, p.Detail, detail, query)
		require.NotEmpty(t, p.Errors, query)
	}
}

func TestEventIDRejectsInvalidInput(t *testing.T) {
	for _, bad := range []string{
		"x", "5f0c1d2e", "5f0c1d2e.", "5f0c1d2.1:2", "5F0C1D2E.1:2", "5f0c1d2e.1", "5f0c1d2e.1:", "5f0c1d2e.:1",
		"5f0c1d2e.1:2,", "5f0c1d2e.1:-2", "5f0c1d2e.-1:2", "5f0c1d2e.1:+2", "5f0c1d2e.4294967296:1",
		"5f0c1d2e.1:9999999999999999999", "5f0c1d2e.1:2,1:3", "5f0c1d2e.1:2 ", "5f0c1d2e.1:2,\n2:3",
		"5f0c1d2e." + strings.Repeat("1:1,", 1024) + "2:2",
	} {
		_, err := parseEventID(bad)
		require.Error(t, err, "%q", bad)
	}
}

// FuzzEventID checks that an id that parses is formatted to an equal one.
func FuzzEventID(f *testing.F) {
	f.Add("5f0c1d2e.3:1018,12:0")
	f.Add("5f0c1d2e.2147483647:9223372036854775807")
	f.Fuzz(func(t *testing.T, s string) {
		id, err := parseEventID(s)
		if err != nil {
			return
		}
		var groups []*group
		for partition, offset := range id.offsets {
			groups = append(groups, &group{partition: partition, covered: offset})
		}
		again, err := parseEventID(string(appendEventID(nil, id.epoch, groups)))
		require.NoError(t, err)
		require.Equal(t, id, again)
	})
}

// TestLargestEventIDIsAccepted checks that a client can send back any id that it was sent.
func TestLargestEventIDIsAccepted(t *testing.T) {
	var groups []*group
	for i := range int32(100) {
		groups = append(groups, &group{partition: 2147483647 - i, covered: 9223372036854775807})
	}
	parsed, err := parseEventID(string(appendEventID(nil, "5f0c1d2e", groups)))
	require.NoError(t, err)
	require.Len(t, parsed.offsets, 100)
}
