package conformance

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"kudos/schema"
)

const (
	CaseTimeout = 20 * time.Second
	maxSilent   = 3 // cases without an answer, after which the rest does not run
)

// Options say what Run checks.
type Options struct {
	Command []string      // starts the testee
	Cases   []Case        // of Select
	Timeout time.Duration // of a case
	Stderr  io.Writer     // of the testee
	Done    func()        // is called after each case
}

// Report is the result of Run.
type Report struct {
	Passed      int            `json:"passed"` // cases
	Failed      []Failure      `json:"failed"`
	Unsupported map[string]int `json:"unsupported"` // cases that did not run, by the operation that the testee lacks
}

// Failure is a failed case.
type Failure struct {
	ID       string `json:"id"`
	About    string `json:"about"`
	Request  string `json:"request"` // to the testee
	Expected string `json:"expected"`
	Got      string `json:"got"`

	silent      bool   // the testee did not answer, and has ended
	unsupported string // the operation that the testee does not have
}

// Run runs the cases. A testee that does not answer is killed, and started again for the next case.
func Run(ctx context.Context, opts Options) (*Report, error) {
	report := &Report{Failed: []Failure{}, Unsupported: map[string]int{}}
	var t *testee
	var err error
	silent := 0
	for _, c := range opts.Cases {
		if t == nil {
			if t, err = start(opts.Command, opts.Stderr); err != nil {
				return report, err
			}
		}
		f := t.run(ctx, &c, opts.Timeout)
		switch {
		case ctx.Err() != nil:
			return report, context.Cause(ctx)
		case f == nil:
			report.Passed++
		case f.unsupported != "":
			report.Unsupported[f.unsupported]++
		default:
			f.ID, f.About = c.ID, c.About
			report.Failed = append(report.Failed, *f)
		}
		opts.Done()
		if f != nil && f.silent {
			if silent++; silent == maxSilent {
				return report, fmt.Errorf("%d cases without an answer; the last one: %s", silent, f.Got)
			}
		}
		if len(c.Steps) == 0 || f != nil && f.silent {
			t = nil
		}
	}
	if t != nil {
		_ = t.end() // how it exits is a case of its own
	}
	return report, nil
}

// run plays a case up to its first failure, and returns nil if there is none.
func (t *testee) run(ctx context.Context, c *Case, timeout time.Duration) *Failure {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("%s are over", timeout))
	defer cancel()
	for i := range c.Steps {
		if f := t.step(ctx, &c.Steps[i]); f != nil {
			return f
		}
	}
	if len(c.Steps) == 0 {
		if err := t.end(); err != nil {
			return &Failure{Request: "the end of the input", Expected: "exit status 0", Got: err.Error()}
		}
	}
	return nil
}

func (t *testee) step(ctx context.Context, s *Step) *Failure {
	srv, err := serve(s.HTTP)
	if err != nil {
		return &Failure{Request: text(s.Request), Expected: "a server", Got: err.Error()}
	}
	q := maps.Clone(s.Request)
	if s.HTTP != nil {
		q["base_url"] = "http://" + srv.Addr().String()
	}
	answer, err := t.ask(ctx, q)
	wants, gots := srv.requests()
	if answer["unsupported"] == true {
		return &Failure{unsupported: fmt.Sprint(q["op"])}
	}
	if q["op"] == "event" && err == nil {
		answer = decoded(answer, q["time_ms"] != nil)
	}
	switch {
	case err != nil:
		wants, gots = append(wants, text(s.Want)), append(gots, err.Error())
	case !matches(answer, s.Want):
		wants, gots = append(wants, text(s.Want)), append(gots, text(answer))
	case slices.Equal(wants, gots):
		return nil
	}
	return &Failure{Request: text(s.Request), Expected: strings.Join(wants, "; "), Got: strings.Join(gots, "; "),
		silent: err != nil}
}

func matches(answer, want map[string]any) bool {
	for name, value := range want {
		if !reflect.DeepEqual(answer[name], value) {
			return false
		}
	}
	return answer["error"] == nil
}

// decoded returns the event of an answer in the form of Step.Want.
func decoded(answer map[string]any, timed bool) map[string]any {
	key, _ := answer["key"].(string)
	value, _ := answer["value"].(string)
	b, err := hex.DecodeString(value)
	var e schema.Event
	if err == nil {
		err = schema.DecodeEvent([]byte(key), b, &e)
	}
	timeMs := strconv.FormatInt(e.TimeMs, 10)
	if err == nil && !timed && e.TimeMs != 0 && !isNow(timeMs) {
		err = fmt.Errorf("time_ms is %s, neither absent nor the current time", timeMs)
	}
	if err != nil {
		answer["error"] = err.Error()
		return answer
	}
	return map[string]any{"key": key, "post_id": strconv.FormatUint(e.PostID, 10),
		"user_id": strconv.FormatUint(e.UserID, 10), "action": e.Action.String(), "region": e.Region.String(),
		"time_ms": timeMs}
}

func text(value any) string {
	b, _ := json.Marshal(value) // decoded JSON: cannot fail
	return string(b)
}
