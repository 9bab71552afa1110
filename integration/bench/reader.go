package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"time"
)

// answerBytes bounds an answer of the reader.
const answerBytes = 1 << 20

// readerProcess is a `kudos reader` that has everything.
type readerProcess struct {
	news
	addr, admin string // from its log
	http        *http.Client
}

// startReader starts a reader and waits until it has caught up.
func (k *Kudos) startReader(ctx context.Context, s *Servers, dir string) (*readerProcess, error) {
	r := &readerProcess{http: &http.Client{Timeout: askTimeout}}
	r.init("reader", dir)
	c := k.on(s, 0)
	c.Args = append([]string{"reader"}, c.Args...)
	c.Env = append(c.Env, "KUDOS_READER_STATE_DIR="+filepath.Join(dir, "state"), "KUDOS_READER_HTTP_ADDR=127.0.0.1:0", "KUDOS_ADMIN_ADDR=127.0.0.1:0")
	if err := r.process.start(c, true, r.line); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := r.caughtUp(ctx); err != nil {
		r.Kill()
		return nil, err
	}
	return r, nil
}

// line takes the addresses from what the reader and its admin server log.
func (r *readerProcess) line(text []byte) {
	var l struct{ Msg, Addr string }
	if json.Unmarshal(text, &l) != nil {
		return
	}
	r.tell(func() {
		switch l.Msg {
		case "answering":
			r.addr = l.Addr
		case "listening":
			r.admin = l.Addr
		}
	})
}

func (r *readerProcess) caughtUp(ctx context.Context) error {
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
		case <-r.process.done:
			return r.process.ended()
		case <-ctx.Done():
			return r.gaveUp(ctx, "readiness")
		}
	}
}

func (r *readerProcess) get(ctx context.Context, url string) (status int, body []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, nil, err
	}
	resp, err := r.http.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(io.LimitReader(resp.Body, answerBytes))
	return resp.StatusCode, body, err
}

// ask asks the reader's API for many counts at once.
func (r *readerProcess) ask(ctx context.Context, posts []uint64) (map[uint64]bool, error) {
	status, body, err := r.get(ctx, "http://"+r.addr+"/v1/likes?post_ids="+joined(posts))
	if err != nil {
		return nil, err
	}
	if status != http.StatusOK {
		return nil, fmt.Errorf("status %d: %s", status, body)
	}
	var answer struct {
		Posts []struct {
			PostID uint64 `json:"post_id,string"`
			Likes  int64  `json:"likes"`
		} `json:"posts"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, err
	}
	seen := map[uint64]bool{}
	for _, p := range answer.Posts {
		if p.Likes == 1 {
			seen[p.PostID] = true
		}
	}
	return seen, nil
}
