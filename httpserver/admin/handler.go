package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/pprof"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Check is one readiness condition.
type Check struct {
	Name string
	// Ready returns nil, or an error with reason and action. It returns at once, from what its owner already knows.
	Ready  func() error
	Detail func() any // if not nil: what /readyz?verbose shows in addition
}

// Readiness is the body of /readyz.
type Readiness struct {
	Ready  bool          `json:"ready"`
	Checks []CheckResult `json:"checks"`
}

// CheckResult is the result of a Check.
type CheckResult struct {
	Name   string `json:"name"`
	Ready  bool   `json:"ready"`
	Error  string `json:"error,omitempty"`
	Detail any    `json:"detail,omitempty"` // with ?verbose
}

const index = `kudos admin
/livez         200 while the process answers
/readyz        200 when every check passes, 503 otherwise; JSON lists each check;
               /readyz?verbose also lists each partition
/metrics       Prometheus metrics
/debug/pprof/  Go profiles, with admin.profiles=true
`

func newHandler(opts Options, reg *prometheus.Registry, checks []Check) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", text(index))
	mux.HandleFunc("GET /livez", text("ok\n"))
	mux.Handle("GET /readyz", http.TimeoutHandler(readyz(checks), answerTimeout, "a readiness check timed out\n"))
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{
		Registry: reg, MaxRequestsInFlight: maxScrapes, Timeout: answerTimeout, EnableOpenMetrics: true,
	}))
	if opts.Profiles {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("POST /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	return mux
}

func text(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = fmt.Fprint(w, body) // the client may be gone
	}
}

func readyz(checks []Check) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		verbose := r.URL.Query().Has("verbose")
		answer := Readiness{Ready: true, Checks: make([]CheckResult, 0, len(checks))}
		for _, c := range checks {
			result := CheckResult{Name: c.Name, Ready: true}
			if err := c.Ready(); err != nil {
				result.Ready, result.Error = false, err.Error()
				answer.Ready = false
			}
			if verbose && c.Detail != nil {
				result.Detail = c.Detail()
			}
			answer.Checks = append(answer.Checks, result)
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		if !answer.Ready {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_ = json.NewEncoder(w).Encode(answer) // the client may be gone
	}
}
