package producer

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/httpserver/problem"
	"kudos/schema"
	"kudos/stream/kafka/tracing"
)

// react serves PUT and DELETE of a user's reaction to a post. Both ids are in the path; the body is not read.
func (p *Producer) react(reaction schema.Action) action {
	return func(w http.ResponseWriter, r *http.Request, who caller) *problem.Problem {
		e, errs := p.eventOf(r, "post_id", "user_id")
		if len(errs) > 0 {
			return problem.InvalidRequest(errs...)
		}
		e.Action = reaction
		return p.publishOne(w, r, who, e)
	}
}

func (p *Producer) postLike(w http.ResponseWriter, r *http.Request, who caller) *problem.Problem {
	defaults, errs := p.eventOf(r, "post_id")
	return p.postOne(w, r, who, errs, func(body []byte) (schema.Event, *problem.Problem) {
		return parseLike(body, &defaults)
	}, "application/json")
}

// postOne publishes the event that parse finds in the body. The errors found outside the body come first.
func (p *Producer) postOne(w http.ResponseWriter, r *http.Request, who caller, errs []fieldError,
	parse func(body []byte) (schema.Event, *problem.Problem), mediaTypes ...string) *problem.Problem {
	if prob := problem.RequireMediaType(r, mediaTypes...); prob != nil {
		return prob
	}
	if len(errs) > 0 {
		return problem.InvalidRequest(errs...)
	}
	body, err := p.bodies.Read(w, r, who.address)
	if err != nil {
		return unwritten(problem.UnreadBody(err, p.options.MaxBodyBytes))
	}
	if prob := p.takeSlot(p.requests, who.address); prob != nil {
		return prob
	}
	defer p.requests.Return(who.address, 1)
	e, prob := parse(body)
	if prob != nil {
		return prob
	}
	return p.publishOne(w, r, who, e)
}

// eventOf reads what a request says outside its body: the ids in its path, and time_ms and region in its query. Without
// time_ms the event time is the time of receipt, taken before the body is read or anything waits.
func (p *Producer) eventOf(r *http.Request, ids ...string) (e schema.Event, errs []fieldError) {
	e.TimeMs = time.Now().UnixMilli()
	wrong := func(field, reason, detail string) {
		errs = append(errs, fieldError{Field: field, Reason: reason, Detail: detail})
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil { // URL.Query would drop it
		wrong("query", string(schema.Undecodable), "is not valid URL encoding")
	}
	for _, name := range []string{"time_ms", "region", "lines"} {
		if len(query[name]) > 1 {
			wrong(name, problem.Repeated, "is given more than once")
		}
	}
	if s := query.Get("time_ms"); query.Has("time_ms") {
		ms, err := strconv.ParseInt(s, 10, 64)
		switch {
		case s == "":
			wrong("time_ms", problem.Empty, "is empty")
		case err != nil:
			errs = append(errs, *problem.NotANumber("time_ms", s))
		case ms < 0:
			wrong("time_ms", string(schema.NegativeTime), "is negative")
		case ms > 0:
			e.TimeMs = ms
		}
	}
	region := query.Get("region")
	if region == "" && p.options.RegionHeader != "" {
		region = r.Header.Get(p.options.RegionHeader)
	}
	var wellFormed bool
	e.Region, wellFormed = schema.ParseRegion(region)
	e.RegionMalformed = !wellFormed
	for _, name := range ids {
		id, invalid := problem.ParseID(name, r.PathValue(name))
		if invalid != nil {
			errs = append(errs, *invalid)
		}
		if name == "user_id" {
			e.UserID = id
		} else {
			e.PostID = id
		}
	}
	return e, errs
}

// complete fills in what the event leaves open. A malformed region stays unknown: the default does not replace it.
func complete(e, defaults *schema.Event) {
	e.TimeMs = cmp.Or(e.TimeMs, defaults.TimeMs)
	if e.Region == schema.UnknownRegion && !e.RegionMalformed {
		e.Region, e.RegionMalformed = defaults.Region, defaults.RegionMalformed
	}
}

// parseLike decodes the body of a POST to a post's likes: user_id, optionally region and time_ms, formed as in events.
func parseLike(raw []byte, defaults *schema.Event) (e schema.Event, prob *problem.Problem) {
	fields, wrong := eventFields(raw, "body", "user_id", "userId", "region", "time_ms", "timeMs")
	if wrong != nil {
		return e, problem.InvalidRequest(*wrong)
	}
	// The path has the post and the action. The event is then checked like one that comes from Kafka.
	fields["action"] = json.RawMessage(`"LIKE"`)
	value, err := json.Marshal(fields)
	if err == nil {
		err = schema.DecodeEvent(schema.AppendPostKey(nil, defaults.PostID), value, &e)
	}
	if err != nil {
		return e, problem.InvalidRequest(problem.FieldErrorOf(err, "body"))
	}
	complete(&e, defaults)
	return e, nil
}

// eventFields parses the JSON of an event. Unlike in Kafka, where nobody can correct it, the region must be a string.
func eventFields(raw []byte, whole string, known ...string) (map[string]json.RawMessage, *fieldError) {
	fields, wrong := problem.ParseFields(raw, whole, known...)
	if region := string(fields["region"]); region != "" && region[0] != '"' && region != "null" {
		wrong = &fieldError{Field: "region", Reason: string(schema.Undecodable), Detail: "is not a string"}
	}
	return fields, wrong
}

func (p *Producer) publishOne(w http.ResponseWriter, r *http.Request, who caller, e schema.Event) *problem.Problem {
	if wrong, wait := p.refusal(who, &e); wrong != nil {
		prob := forbidden("%s %s", wrong.Field, wrong.Detail)
		if wait > 0 {
			prob = rateLimited("%s %s", wrong.Field, wrong.Detail)
			retryIn(w, wait)
		}
		prob.Errors = []fieldError{*wrong}
		return unwritten(prob)
	}
	if e.RegionMalformed {
		p.metrics.regionMalformed.Inc()
	}
	acks, err := p.publish(r.Context(), who.address, []schema.Event{e})
	switch {
	case err != nil:
		return p.notWritten(err)
	case !acks[0].accepted:
		p.failWith(w, http.StatusServiceUnavailable, p.notAcknowledged(acks[0].err, e.TimeMs))
	default:
		problem.Answer(w, http.StatusAccepted, acks[0].position)
	}
	return nil
}

// ack is the result of one event. Unless accepted, Kafka has not acknowledged it: it may or may not be there.
type ack struct {
	accepted bool
	position
	err error // why not; nil while the client has not reported
}

type position struct {
	Partition int32 `json:"partition"`
	Offset    int64 `json:"offset"`
}

// publish writes the events in order and waits for Kafka, at most AckTimeout. An error means that none was written.
func (p *Producer) publish(ctx context.Context, address netip.Addr, events []schema.Event) ([]ack, error) {
	client := p.client.Load()
	if client == nil {
		return nil, errNotRunning
	}
	// Reserve capacity for all first: if one line of a batch were rejected, a later one of its post could overtake it.
	if err := p.buffer.Take(address, int64(len(events))); err != nil {
		return nil, err
	}
	began := time.Now()
	// Acks count until the request stops waiting; later ones change nothing.
	waiting, stop := context.WithTimeout(ctx, p.options.AckTimeout)
	defer stop()
	var mu sync.Mutex
	acks, missing, accepted := make([]ack, len(events)), len(events), 0

	traced := tracing.Detach(ctx)
	buf := make([]byte, 0, len(events)*maxRecordBytes)
	records := make([]kgo.Record, len(events))
	for i := range events {
		r := &records[i]
		r.Topic = schema.TopicLikes
		r.Key, r.Value, buf = appendRecord(buf, p.layout, &events[i])
		// Not the request's context: when a record's ends, kgo fails the partition's whole buffer, with others' events.
		client.TryProduce(traced, r, func(r *kgo.Record, err error) {
			defer p.buffer.Return(address, 1)
			mu.Lock()
			defer mu.Unlock()
			if waiting.Err() == nil {
				acks[i] = ack{err == nil, position{r.Partition, r.Offset}, err}
			}
			if acks[i].accepted {
				accepted++
			}
			if missing--; missing == 0 {
				stop()
			}
		})
	}
	<-waiting.Done() // also if the client left: nobody reads the response
	mu.Lock()
	defer mu.Unlock()
	p.metrics.publishSeconds.Observe(time.Since(began).Seconds())
	p.metrics.accepted.Add(float64(accepted))
	p.metrics.unacknowledged.Add(float64(len(events) - accepted))
	return acks, nil
}

// maxRecordBytes is the maximum size of a record's key (20 digits, and 5 for a bucket) and value.
const maxRecordBytes = 25 + 11 + 11 + 3 + 11 + 8

func appendRecord(buf []byte, layout schema.Layout, e *schema.Event) (key, value, rest []byte) {
	start := len(buf)
	buf = layout.AppendKey(buf, e.PostID, e.UserID)
	mid := len(buf)
	buf = schema.AppendEvent(buf, e)
	return buf[start:mid:mid], buf[mid:len(buf):len(buf)], buf
}
