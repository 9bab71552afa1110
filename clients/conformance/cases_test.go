package conformance

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"kudos/schema"
)

var update = flag.Bool("update", false, "write what kudos/schema says to cases.json")

var all = regexp.MustCompile("")

// TestCasesAgreeWithSchema: -update writes the answers that follow from kudos/schema to cases.json.
func TestCasesAgreeWithSchema(t *testing.T) {
	cases := Select(all)
	if *update {
		for i := range cases {
			for j, s := range cases[i].Steps {
				if want := derived(t, s.Request); want != nil {
					cases[i].Steps[j].Want = want
				}
			}
		}
		require.NoError(t, os.WriteFile("cases.json", format(cases), 0o644))
		return
	}
	found := disagreements(t, cases)
	require.Empty(t, found[:min(len(found), 5)], "fix: go test ./clients/conformance -update")
	require.Equal(t, string(format(cases)), string(casesJSON), "the form of cases.json; fix: as above")
}

// TestDisagreementsAreFound changes one answer of each operation.
func TestDisagreementsAreFound(t *testing.T) {
	for id, change := range map[string]func(want map[string]any){
		"event-actions":               func(want map[string]any) { want["action"] = "DISLIKE" },
		"event-region-malformed":      func(want map[string]any) { want["region"] = "DE" },
		"partition-of-12":             func(want map[string]any) { want["partition"] = 12.0 },
		"partition-with-user-buckets": func(want map[string]any) { want["key"] = "42/16" },
		"database":                    func(want map[string]any) { want["database"] = 1.0 },
	} {
		cases := Select(regexp.MustCompile("^" + id + "$"))
		require.Len(t, cases, 1, id)
		require.Empty(t, disagreements(t, cases))
		change(cases[0].Steps[0].Want)
		require.Len(t, disagreements(t, cases), 1, id)
	}
}

func TestCasesAreComplete(t *testing.T) {
	ids, ops := map[string]bool{}, map[string]int{}
	for _, c := range Select(all) {
		require.False(t, ids[c.ID], "%s is there twice", c.ID)
		ids[c.ID] = true
		require.NotEmpty(t, c.About, c.ID)
		for _, s := range c.Steps {
			op := s.Request["op"].(string)
			ops[op]++
			require.NotEmpty(t, s.Want, c.ID)
			for i, x := range s.HTTP {
				require.Equal(t, x.Close == "unread", x.Request == "", c.ID)
				require.False(t, x.Close == "unread" && i > 0 && s.HTTP[i-1].Close != "unread", c.ID)
				require.Contains(t, []string{"", "unread", "read"}, x.Close, c.ID)
				require.Equal(t, x.Status == 429 || x.Status == 503, x.RetryAfter > 0, c.ID)
				if i == len(s.HTTP)-1 {
					require.True(t, x.Close == "" && x.RetryAfter == 0, "%s: the last request must be answered", c.ID)
				}
			}
			require.Equal(t, op == "react" || op == "count" || op == "stream", s.HTTP != nil, c.ID)
		}
	}
	require.Greater(t, ops["partition"], 200)
	require.Len(t, ops, 6)
}

func disagreements(t *testing.T, cases []Case) (found []string) {
	for _, c := range cases {
		for _, s := range c.Steps {
			if want := derived(t, s.Request); want != nil && text(want) != text(s.Want) {
				found = append(found, c.ID+": "+text(s.Request)+": "+text(s.Want)+" is not "+text(want))
			}
		}
	}
	return found
}

// derived returns the answer that follows from kudos/schema; nil if none does.
func derived(t *testing.T, request map[string]any) map[string]any {
	var q typed
	require.NoError(t, json.Unmarshal([]byte(text(request)), &q))
	switch q.Op {
	case "event":
		region, _ := schema.ParseRegion(q.Region)
		want := map[string]any{"key": string(schema.AppendPostKey(nil, q.post(t))), "post_id": q.PostID,
			"user_id": q.UserID, "action": q.Action, "region": region.String()}
		if q.TimeMs != "" {
			want["time_ms"] = q.TimeMs
		}
		return want
	case "partition":
		buckets, err := schema.ParseUserBuckets(q.UserBuckets)
		require.NoError(t, err)
		layout, err := schema.NewLayout(q.Partitions, buckets)
		require.NoError(t, err)
		user, err := strconv.ParseUint(q.UserID, 10, 64)
		require.NoError(t, err)
		return map[string]any{"key": string(layout.AppendKey(nil, q.post(t), user)),
			"partition": layout.PartitionOf(q.post(t), user)}
	case "database":
		return map[string]any{"database": q.Partition % q.Databases}
	}
	return nil
}

// typed is a request with methods for the tests.
type typed request

func (q typed) post(t *testing.T) uint64 {
	post, err := strconv.ParseUint(q.PostID, 10, 64)
	require.NoError(t, err)
	return post
}

// format writes a step, and an exchange of it, on each line.
func format(cases []Case) []byte {
	var b bytes.Buffer
	plain := func(value any) string {
		var text strings.Builder
		encoder := json.NewEncoder(&text)
		encoder.SetEscapeHTML(false)
		_ = encoder.Encode(value) // our structs: cannot fail
		return strings.TrimSpace(text.String())
	}
	list := func(n int, indent string, item func(i int)) {
		b.WriteString("[")
		for i := range n {
			b.WriteString(strings.Repeat(",", min(i, 1)) + "\n" + indent)
			item(i)
		}
		b.WriteString("\n" + indent[2:] + "]")
	}
	list(len(cases), "  ", func(i int) {
		c := cases[i]
		b.WriteString(`{"id": ` + plain(c.ID) + `, "about": ` + plain(c.About))
		if c.Steps != nil {
			b.WriteString(`, "steps": `)
			list(len(c.Steps), "    ", func(i int) {
				s := c.Steps[i]
				b.WriteString(`{"request": ` + plain(s.Request))
				if s.HTTP != nil {
					b.WriteString(`, "http": `)
					list(len(s.HTTP), "      ", func(i int) { b.WriteString(plain(s.HTTP[i])) })
				}
				b.WriteString(`, "want": ` + plain(s.Want) + `}`)
			})
		}
		b.WriteString("}")
	})
	return append(b.Bytes(), '\n')
}
