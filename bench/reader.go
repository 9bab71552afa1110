package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
)

// readerProcess is a `kudos reader` that has everything.
type readerProcess struct{ *roleProcess }

// startReader starts a reader and waits until it has caught up.
func (k *Kudos) startReader(ctx context.Context, s *Servers, dir string) (readerProcess, error) {
	r, err := k.startRole(ctx, s, "reader", "answering", dir, "KUDOS_READER_STATE_DIR="+filepath.Join(dir, "state"))
	return readerProcess{r}, err
}

// ask asks the reader's API for many counts at once.
func (r readerProcess) ask(ctx context.Context, posts []uint64) (map[uint64]bool, error) {
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
