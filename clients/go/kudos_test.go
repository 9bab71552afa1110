package kudos

import (
	"encoding/hex"
	"encoding/json"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestRecord(t *testing.T) {
	at := time.UnixMilli(1700000000123)
	for _, c := range []struct {
		event      Event
		key, value string
	}{
		{Event{42, 7, Like, at, ""}, "42", "082a1007180120fbd095ffbc31"},
		{Event{42, 7, Unlike, at.Add(400 * time.Microsecond), "DE"}, "42", "082a1007180220fbd095ffbc312a024445"},
		{Event{1<<64 - 1, 8, Dislike, at, strings.Repeat("x", 5000)}, "18446744073709551615/12",
			"08ffffffffffffffffff011008180320fbd095ffbc312a0778787878787878"},
	} {
		key, value, err := Record(c.event, Layout{UserBuckets: map[uint64]int32{1<<64 - 1: 16}})
		if err != nil || key != c.key && c.event.PostID == 42 || hex.EncodeToString(value) != c.value {
			t.Errorf("%+v: %s, %x, %v; want %s, %s", c.event, key, value, err, c.key, c.value)
		}
	}
	_, value, err := Record(Event{PostID: 1, UserID: 1, Action: Like}, Layout{})
	if err != nil || len(value) != len("082a1007180120fbd095ffbc31")/2 {
		t.Errorf("an event without a time has none: %x, %v", value, err)
	}
}

func TestInvalidEventsAreRejected(t *testing.T) {
	for _, e := range []Event{{}, {UserID: 1, Action: Like}, {PostID: 1, Action: Like}, {PostID: 1, UserID: 1},
		{PostID: 1, UserID: 1, Action: None}, {PostID: 1, UserID: 1, Action: "like"},
		{PostID: 1, UserID: 1, Action: Like, Time: time.UnixMilli(0)}} {
		if _, _, err := Record(e, Layout{}); err == nil {
			t.Errorf("%+v has no error", e)
		}
		_, err := (&Client{}).React(t.Context(), e)
		if err == nil || !strings.Contains(err.Error(), "must be valid") {
			t.Errorf("%+v: %v", e, err)
		}
	}
}

// TestPartitionsAreThoseOfKudos compares with the cases that all clients share.
func TestPartitionsAreThoseOfKudos(t *testing.T) {
	text, err := os.ReadFile("../conformance/cases.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Steps []struct {
			Request struct {
				Op          string
				PostID      uint64   `json:"post_id,string"`
				UserID      uint64   `json:"user_id,string"`
				UserBuckets []string `json:"user_buckets"`
				Partitions  int32
				Partition   int32
				Databases   int32
			}
			Want map[string]any
		}
	}
	if err := json.Unmarshal(text, &cases); err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, c := range cases {
		for _, s := range c.Steps {
			got, q := map[string]any{}, s.Request
			switch q.Op {
			case "partition":
				l := Layout{Partitions: q.Partitions, UserBuckets: map[uint64]int32{}}
				for _, b := range q.UserBuckets {
					id, n, _ := strings.Cut(b, ":")
					post, _ := strconv.ParseUint(id, 10, 64)
					buckets, _ := strconv.Atoi(n)
					l.UserBuckets[post] = int32(buckets)
				}
				got["key"], got["partition"] = Key(q.PostID, q.UserID, l), float64(Partition(q.PostID, q.UserID, l))
			case "database":
				got["database"] = float64(DatabaseOf(q.Partition, q.Databases))
			default:
				continue
			}
			if checked++; !reflect.DeepEqual(got, s.Want) {
				t.Errorf("%+v: %v, want %v", q, got, s.Want)
			}
		}
	}
	if checked < 200 {
		t.Errorf("only %d cases", checked)
	}
}
