package bench

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"time"
)

// answerBytes bounds an answer of a role.
const answerBytes = 1 << 20

// roleProcess is a role of kudos that answers by HTTP, on ports that it has chosen itself.
type roleProcess struct {
	news
	told        string // the message of its log that has its address
	addr, admin string // from its log
	http        *http.Client
}

// startRole starts a role whose files go to dir, and waits until it is ready.
func (k *Kudos) startRole(ctx context.Context, s *Servers, role, told, dir string, env ...string) (*roleProcess, error) {
	r := &roleProcess{told: told, http: &http.Client{Timeout: askTimeout}}
	r.init(role, dir)
	c := k.on(s, 0)
	c.Args = append([]string{role}, c.Args...)
	c.Env = append(append(c.Env, "KUDOS_"+strings.ToUpper(role)+"_HTTP_ADDR=127.0.0.1:0", "KUDOS_ADMIN_ADDR=127.0.0.1:0"), env...)
	if err := r.process.start(c, true, r.line); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := r.ready(ctx); err != nil {
		r.Kill()
		return nil, err
	}
	return r, nil
}

// line takes the addresses from what the role and its admin server log.
func (r *roleProcess) line(text []byte) {
	var l struct{ Msg, Addr string }
	if json.Unmarshal(text, &l) != nil {
		return
	}
	r.tell(func() {
		switch l.Msg {
		case r.told:
			r.addr = l.Addr
		case listeningMessage:
			r.admin = l.Addr
		}
	})
}

func (r *roleProcess) ready(ctx context.Context) error {
	if err := r.wait(ctx, "the addresses", func() bool { return r.addr != "" && r.admin != "" }); err != nil {
		return err
	}
	tick := time.NewTicker(lookAtKafka)
	defer tick.Stop()
	for {
		status, _, err := r.get(ctx, "http://"+r.admin+"/readyz")
		if err == nil && status == http.StatusOK {
			return nil
		}
		select {
		case <-tick.C:
		case <-r.process.Done():
			return r.process.ended()
		case <-ctx.Done():
			return r.gaveUp(ctx, "readiness")
		}
	}
}

func (r *roleProcess) get(ctx context.Context, url string) (status int, body []byte, err error) {
	return get(ctx, r.http, url, answerBytes)
}

// get reads so many bytes of an answer at most.
func get(ctx context.Context, client *http.Client, url string, most int64) (status int, body []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(io.LimitReader(resp.Body, most))
	return resp.StatusCode, body, err
}
