package bridge

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/schema"
	"kudos/stream"
)

func fields(t testing.TB, object string) map[string]json.RawMessage {
	t.Helper()
	var m map[string]json.RawMessage
	require.NoError(t, json.Unmarshal([]byte(object), &m))
	return m
}

// arrivedMs is when the records of these tests arrived, unless they say otherwise.
const arrivedMs = 1_764_000_000_000

func arrived() *kgo.Record { return &kgo.Record{Timestamp: time.UnixMilli(arrivedMs)} }

func TestMapping(t *testing.T) {
	all := Columns{PostID: "post", UserID: "member", Time: "created_at", Deleted: "deleted_at", Reaction: "kind",
		Region: "country"}
	love := []string{"love=LIKE", "meh=UNLIKE", "angry=DISLIKE", "2=DISLIKE"}
	for name, tt := range map[string]struct {
		row  string
		want schema.Event
	}{
		"all": {`{"post": 1, "member": "18446744073709551615", "created_at": "2025-11-24T16:00:00.5Z",
			"deleted_at": null, "kind": "love", "country": "de"}`,
			schema.Event{PostID: 1, UserID: 1<<64 - 1, Action: schema.Like, TimeMs: 1_764_000_000_500,
				Region: schema.Region{'D', 'E'}}},
		"MySQL's time, withdrawn": {`{"post": 1, "member": 2, "created_at": "2025-11-24 16:00:00",
			"deleted_at": 1764000000, "kind": "love"}`,
			schema.Event{PostID: 1, UserID: 2, Action: schema.Unlike, TimeMs: arrivedMs, Region: schema.UnknownRegion}},
		"microseconds, another kind": {`{"post": 1, "member": 2, "created_at": 1764000000123456,
			"deleted_at": 0, "kind": 2, "country": "Mars"}`,
			schema.Event{PostID: 1, UserID: 2, Action: schema.Dislike, TimeMs: 1_764_000_000_123,
				Region: schema.UnknownRegion}},
		"seconds, none": {`{"post":1,"member":2,"created_at":1764000000,"deleted_at":false,"kind":"meh"}`,
			unliked(arrivedMs)},
		"nanoseconds": {`{"post":1,"member":2,"created_at":"1764000000000000000","kind":"meh"}`,
			unliked(arrivedMs)},
		"time of arrival":  {`{"post":1,"member":2,"created_at":null,"kind":"meh"}`, unliked(arrivedMs)},
		"escaped deletion": {`{"post":1,"member":2,"deleted_at":"\u0074rue"}`, unliked(arrivedMs)},
	} {
		t.Run(name, func(t *testing.T) {
			o := Options{Format: "json", Columns: all, Reactions: love}
			var clock int64
			got, err := newMapping(&o).event(&change{row: fields(t, tt.row)}, arrived(), &clock)
			require.NoError(t, err)
			require.Equal(t, tt.want, got)
		})
	}
	undecodable := func(field string) schema.PoisonError {
		return schema.PoisonError{Reason: schema.Undecodable, Field: field}
	}
	for row, want := range map[string]schema.PoisonError{
		`{"member":2}`:                                                 undecodable("post"),
		`{"post":-1,"member":2}`:                                       undecodable("post"),
		`{"post":1,"member":2.5}`:                                      undecodable("member"),
		`{"post":0,"member":2,"kind":"love"}`:                          {Reason: schema.ZeroID, Field: "post_id"},
		`{"post":1,"member":2}`:                                        {Reason: schema.UnknownAction, Field: "kind"},
		`{"post":1,"member":2,"kind":"LIKE"}`:                          {Reason: schema.UnknownAction, Field: "kind"},
		`{"post":1,"member":2,"created_at":"yesterday","kind":"love"}`: undecodable("created_at"),
		`{"post":1,"member":2,"kind":"love","created_at":-5}`:          undecodable("created_at"),
	} {
		o := Options{Format: "json", Columns: all, Reactions: love}
		_, err := newMapping(&o).event(&change{row: fields(t, row)}, arrived(), new(int64))
		var poison *schema.PoisonError
		require.ErrorAs(t, err, &poison, row)
		require.Equal(t, want, schema.PoisonError{Reason: poison.Reason, Field: poison.Field}, row)
	}
}

func unliked(ms int64) schema.Event {
	return schema.Event{PostID: 1, UserID: 2, Action: schema.Unlike, TimeMs: ms, Region: schema.UnknownRegion}
}

func TestTimes(t *testing.T) {
	o := DefaultOptions()
	o.Columns.Time = "at"
	for name, tt := range map[string]struct {
		snapshot          bool
		own, made, before int64
		want, clock       int64
	}{
		"a row keeps its time": {true, arrivedMs - 9e9, arrivedMs, 5, arrivedMs - 9e9, arrivedMs - 9e9},
		"and the clock does not go back": {true, arrivedMs - 9e9, arrivedMs, arrivedMs,
			arrivedMs - 9e9, arrivedMs},
		"a row from the future is of now":     {true, arrivedMs + 9e9, arrivedMs, 5, arrivedMs, arrivedMs},
		"a row without time":                  {true, 0, arrivedMs - 7, 5, arrivedMs - 7, arrivedMs - 7},
		"a row of which nothing is known":     {true, 0, 0, 5, arrivedMs, arrivedMs},
		"a change is made when it is logged":  {false, 1e12, arrivedMs - 7, 5, arrivedMs - 7, arrivedMs - 7},
		"a change after the clock stood back": {false, 1e12, arrivedMs - 7, arrivedMs, arrivedMs, arrivedMs},
		"a change by a clock that is ahead":   {false, 0, arrivedMs + 9e9, 5, arrivedMs + 60_000, arrivedMs + 60_000},
	} {
		t.Run(name, func(t *testing.T) {
			key := `{"post_id":1,"user_id":2}`
			c := change{row: fields(t, key), key: fields(t, key), snapshot: tt.snapshot, madeMs: tt.made}
			c.row["at"] = fmt.Appendf(nil, "%d", tt.own)
			clock := tt.before
			e, err := newMapping(&o).event(&c, arrived(), &clock)
			require.NoError(t, err)
			require.Equal(t, tt.want, e.TimeMs)
			require.Equal(t, tt.clock, clock)
		})
	}
}

func TestWrongTableParks(t *testing.T) {
	o := DefaultOptions()
	o.Columns.Time = "created_at"
	m, key := newMapping(&o), `{"post_id":1,"user_id":2}`
	for name, tt := range map[string]struct{ row, key, want, action string }{
		"key is another column": {`{"post_id":1,"user_id":2,"created_at":0}`, `{"id":1}`,
			"the key of a record must be post_id and user_id", "message.key.columns"},
		"key has more columns": {`{"post_id":1,"user_id":2,"created_at":0}`, `{"post_id":1,"user_id":2,"kind":3}`,
			"the key of a record must be post_id and user_id", "message.key.columns"},
		"no column of that name": {`{"post_id":1,"user_id":2}`, key, "a row has no column created_at",
			"bridge.columns.time"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := m.event(&change{row: fields(t, tt.row), key: fields(t, tt.key)}, arrived(), new(int64))
			var park *stream.ParkError
			require.ErrorAs(t, err, &park)
			require.Contains(t, park.Reason, tt.want)
			require.Contains(t, park.Action, tt.action)
		})
	}
	_, err := m.event(&change{row: fields(t, key), key: fields(t, key), removed: true}, arrived(), new(int64))
	require.NoError(t, err, "a deleted row is known by its key")
}

func TestOptions(t *testing.T) {
	require.NoError(t, DefaultOptions().Validate())
	love := []string{"a=LIKE", "a=LIKE"}
	for want, change := range map[string]func(*Options){
		"bridge.topic: likes is a topic of kudos":            func(o *Options) { o.Topic = schema.TopicLikes },
		`bridge.group: "like-count" is empty, or a group of`: func(o *Options) { o.Group = schema.GroupApply },
		`bridge.format: "xml" is not one of`:                 func(o *Options) { o.Format = "xml" },
		"bridge.columns.post_id: a name is needed":           func(o *Options) { o.Columns.PostID = "" },
		"bridge.columns.user_id: a name is needed":           func(o *Options) { o.Columns.UserID = "" },
		`bridge.reactions: "love" is not VALUE=ACTION`:       func(o *Options) { o.Reactions = []string{"love"} },
		`bridge.reactions: "a" is listed twice`:              func(o *Options) { o.Reactions = love[:2] },
		"bridge.reactions: columns.reaction is not set":      func(o *Options) { o.Reactions = []string{"a=LIKE"} },
		"bridge.max_batch: must be between":                  func(o *Options) { o.MaxBatch = 0 },
		"bridge.transaction_timeout: must be above zero":     func(o *Options) { o.TransactionTimeout = 0 },
		"bridge.session_timeout: must be above zero":         func(o *Options) { o.SessionTimeout = 0 },
		"bridge.park_interval: must be above zero":           func(o *Options) { o.ParkInterval = 0 },
		"bridge.shutdown_timeout: must be above zero":        func(o *Options) { o.ShutdownTimeout = 0 },
	} {
		o := DefaultOptions()
		change(&o)
		require.ErrorContains(t, o.Validate(), want)
	}
}

// table is a database's table of likes and its binary log, as a connector reads them.
type table struct {
	rng     *rand.Rand
	rows    map[string]bool // by key: whether it is soft-deleted
	clockMs int64           // of the database; it may step back
	log     []change        // since capture began
}

func (db *table) key() string {
	return fmt.Sprintf(`{"post_id":%d,"user_id":%d}`, 1+db.rng.IntN(2), 1+db.rng.IntN(3))
}

// step changes a row.
func (db *table) step(t testing.TB) {
	db.clockMs += db.rng.Int64N(3)
	if db.rng.IntN(20) == 0 {
		db.clockMs -= 1000
	}
	key := db.key()
	_, exists := db.rows[key]
	switch {
	case exists && db.rng.IntN(2) == 0:
		delete(db.rows, key)
		db.log = append(db.log, change{row: fields(t, key), key: fields(t, key), removed: true, madeMs: db.clockMs})
		return
	default:
		db.rows[key] = db.rng.IntN(3) == 0
	}
	db.log = append(db.log, db.row(t, key, false))
}

func (db *table) row(t testing.TB, key string, snapshot bool) change {
	row := fields(t, key)
	row["deleted"] = fmt.Appendf(nil, "%v", db.rows[key])
	row["created_at"] = fmt.Appendf(nil, "%d", db.clockMs+db.rng.Int64N(2000)-1900) // by another clock
	return change{row: row, key: fields(t, key), snapshot: snapshot, madeMs: db.clockMs}
}

// TestEventsOfATableFoldToIt: whatever the database's clock does, and however often a connector writes changes again
// and reads rows in between, the latest event of each reaction is what the table has at the end.
func TestEventsOfATableFoldToIt(t *testing.T) {
	for seed := range uint64(2000) {
		rng := rand.New(rand.NewPCG(seed, 1))
		db := &table{rng: rng, rows: map[string]bool{}, clockMs: arrivedMs}
		for range rng.IntN(5) { // before capture begins
			db.step(t)
		}
		db.log = nil
		var topic []change
		for range 40 {
			switch rng.IntN(8) {
			case 0: // a chunk of a snapshot: after all changes up to then
				for key := range db.rows {
					topic = append(topic, db.row(t, key, true))
				}
			case 1: // the connector was killed, and reads the log again from its last position
				topic = append(topic, db.log[rng.IntN(len(db.log)+1):]...)
			default:
				db.step(t)
				topic = append(topic, db.log[len(db.log)-1])
			}
		}
		for key := range db.rows {
			topic = append(topic, db.row(t, key, true))
		}

		o := DefaultOptions()
		o.Columns.Time, o.Columns.Deleted = "created_at", "deleted"
		m, clock, latest := newMapping(&o), int64(0), map[string]schema.Event{}
		for i := range topic {
			e, err := m.event(&topic[i], arrived(), &clock)
			require.NoError(t, err)
			key := fmt.Sprintf(`{"post_id":%d,"user_id":%d}`, e.PostID, e.UserID)
			if e.TimeMs >= latest[key].TimeMs {
				latest[key] = e
			}
		}
		for key, deleted := range db.rows {
			require.Equal(t, deleted, latest[key].Action == schema.Unlike, "seed %d, row %s", seed, key)
		}
		for key, e := range latest {
			if _, exists := db.rows[key]; !exists {
				require.Equal(t, schema.Unlike, e.Action, "seed %d, no row %s", seed, key)
			}
		}
	}
}
