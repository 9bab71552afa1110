package producer

import (
	"cmp"
	"encoding/json"
	"mime"
	"net/http"
	"time"

	"kudos/httpserver/problem"
	"kudos/schema"
)

// cloudEvent is a CloudEvent 1.0 in JSON. Extensions are ignored.
// https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/formats/json-format.md
type cloudEvent struct {
	SpecVersion string          `json:"specversion"`
	ID          string          `json:"id"`
	Source      string          `json:"source"`
	Type        string          `json:"type"`
	Time        *string         `json:"time"` // nil: none
	Data        json.RawMessage `json:"data"`
	DataBase64  []byte          `json:"data_base64"`
}

const structuredMode = "application/cloudevents+json"

// postCloudEvent serves POST of one CloudEvent, in structured or binary mode, whose data is an event in JSON.
func (p *Producer) postCloudEvent(w http.ResponseWriter, r *http.Request, who caller) *problem.Problem {
	defaults, errs := p.eventOf(r)
	return p.postOne(w, r, who, errs, func(body []byte) (schema.Event, *problem.Problem) {
		e, wrong := parseCloudEvent(r.Header, body, &defaults)
		if wrong != nil {
			return e, problem.InvalidRequest(*wrong)
		}
		return e, nil
	}, structuredMode, "application/json")
}

// parseCloudEvent returns the event. Its time is that in the data, or else the CloudEvent's, or else the default.
func parseCloudEvent(h http.Header, body []byte, defaults *schema.Event) (e schema.Event, wrong *fieldError) {
	fail := func(field, reason, detail string) (schema.Event, *fieldError) {
		return e, &fieldError{Field: field, Reason: reason, Detail: detail}
	}
	c := cloudEvent{SpecVersion: h.Get("ce-specversion"), ID: h.Get("ce-id"), Source: h.Get("ce-source"),
		Type: h.Get("ce-type"), Data: body}
	if given := h.Values("ce-time"); len(given) > 0 {
		c.Time = &given[0]
	}
	if mediaType, _, _ := mime.ParseMediaType(h.Get("Content-Type")); mediaType == structuredMode {
		c = cloudEvent{}
		if err := json.Unmarshal(body, &c); err != nil {
			return fail("body", string(schema.Undecodable), "is not a CloudEvent in JSON")
		}
		if c.Data == nil {
			c.Data = c.DataBase64
		}
	}
	if c.SpecVersion != "1.0" {
		return fail("specversion", problem.UnknownValue, "must be 1.0")
	}
	for _, required := range []struct{ name, value string }{{"id", c.ID}, {"source", c.Source}, {"type", c.Type}} {
		if required.value == "" {
			return fail(required.name, problem.Empty, "is missing or empty")
		}
	}
	if wrong := parseEvent(c.Data, "data", &e); wrong != nil {
		return e, wrong
	}
	if c.Time != nil {
		at, err := time.Parse(time.RFC3339, *c.Time)
		switch {
		case err != nil:
			return fail("time", string(schema.Undecodable), "is not a time in RFC 3339")
		case at.UnixMilli() < 0:
			return fail("time", string(schema.NegativeTime), "is before 1970")
		}
		e.TimeMs = cmp.Or(e.TimeMs, at.UnixMilli())
	}
	complete(&e, defaults)
	return e, nil
}
