package producer

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"kudos/schema"
)

func TestCloudEvents(t *testing.T) {
	r := start(t, func(o *Options) { o.RegionHeader = "X-Client-Region" })
	const attributes = `"specversion":"1.0","id":"1","source":"/app","type":"reaction"`
	structured := []string{"Content-Type", "application/cloudevents+json; charset=utf-8"}
	binary := []string{"Content-Type", "application/json", "ce-specversion", "1.0", "ce-id", "1", "ce-source", "/app",
		"ce-type", "reaction", "ce-time", "2025-11-24T16:00:00.5Z", "X-Client-Region", "de"}
	california := schema.Region{'U', 'S', '-', 'C', 'A'}
	event := func(action schema.Action, timeMs int64, region schema.Region) schema.Event {
		return schema.Event{PostID: 8, UserID: 9, Action: action, TimeMs: timeMs, Region: region}
	}
	const data, at = `{"post_id":8,"user_id":"9","action":"LIKE"}`, 1_764_000_000_500
	cases := []struct {
		headers []string
		body    string
		want    schema.Event
	}{
		{structured, `{` + attributes + `,"time":"2025-11-24T17:00:00.5+01:00","extension":1,"data":` + data + `}`,
			event(schema.Like, at, schema.UnknownRegion)},
		{structured, `{` + attributes + `,"time":"2025-11-24T16:00:00Z","data":{"post_id":8,"user_id":9,` +
			`"action":false,"time_ms":7,"region":"US-CA"}}`, event(schema.Unlike, 7, california)},
		{structured, `{` + attributes + `,"time":"2025-11-24T16:00:00.5Z",` +
			`"data_base64":"eyJwb3N0X2lkIjo4LCJ1c2VyX2lkIjoiOSIsImFjdGlvbiI6IkRJU0xJS0UifQ=="}`,
			event(schema.Dislike, at, schema.UnknownRegion)},
		{binary, data, event(schema.Like, at, schema.Region{'D', 'E'})},
	}
	places := make([]position, len(cases))
	for i, tt := range cases {
		places[i] = placeOf(r.Send(http.MethodPost, "/v1/cloudevents", tt.body, tt.headers...))
	}
	records := r.consume(len(cases))
	for i, tt := range cases {
		_, e := record(t, records, places[i])
		require.Equal(t, tt.want, e, tt.body)
	}

	for i, tt := range []struct {
		headers       []string
		body          string
		field, reason string
	}{
		{structured, `{`, "body", "undecodable"},
		{structured, `{"data":` + data + `}`, "specversion", "unknown_value"},
		{structured, `{"specversion":"1.0","source":"/a","type":"t","data":` + data + `}`, "id", "empty"},
		{structured, `{"specversion":"1.0","id":"1","type":"t","data":` + data + `}`, "source", "empty"},
		{structured, `{"specversion":"1.0","id":"1","source":"/a","data":` + data + `}`, "type", "empty"},
		{structured, `{` + attributes + `}`, "data", "empty"},
		{structured, `{` + attributes + `,"data":7}`, "data", "undecodable"},
		{structured, `{` + attributes + `,"data":{"post_id":8,"user_id":0,"action":"LIKE"}}`, "user_id", "zero_id"},
		{structured, `{` + attributes + `,"time":"noon","data":` + data + `}`, "time", "undecodable"},
		{structured, `{` + attributes + `,"time":"","data":` + data + `}`, "time", "undecodable"},
		{structured, `{` + attributes + `,"time":"1960-01-01T00:00:00Z","data":` + data + `}`, "time", "negative_time"},
		{binary[:2], data, "specversion", "unknown_value"},
		{binary, `{"post_id":8,"user_id":9,"action":"LIKE","more":1}`, "more", "unknown_field"},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			a := r.Send(http.MethodPost, "/v1/cloudevents", tt.body, tt.headers...)
			a.T = t
			var p struct{ Errors []fieldError }
			a.Require(http.StatusBadRequest).Decode(&p)
			require.Len(t, p.Errors, 1)
			require.Equal(t, [2]string{tt.field, tt.reason}, [2]string{p.Errors[0].Field, p.Errors[0].Reason})
		})
	}
	r.Send(http.MethodPost, "/v1/cloudevents", "[]", "Content-Type", "application/cloudevents-batch+json").Require(415)
	r.consume(len(cases))
}
