package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"kudos/bench/child"
	"kudos/schema"
)

const (
	// Log lines that are events have the key "event". runningEvent: a partition starts to poll (stream/partition.go).
	runningEvent = "partition_running"
	// assignedEvent: a group has assigned partitions (stream/group.go).
	assignedEvent = "partitions_assigned"
	// listeningEvent: the HTTP server that the key "server" names listens at "addr" (httpserver).
	listeningEvent = "listening"
	adminServer    = "admin server"
	answerBytes    = 1 << 20 // bounds a response of a reader
)

// role is a running role of kudos, with what it has logged. It chooses its addresses itself.
type role struct {
	*child.Process
	addr map[string]string // by server
	// running are the fold's partitions that poll for events. The first started at firstRan, the last at lastRan, after
	// the group had assigned them at assigned.
	running                     map[int32]bool
	assigned, firstRan, lastRan time.Time
}

func (k *Kudos) start(s *Servers, name, dir string, env ...string) (*role, error) {
	r := &role{addr: map[string]string{}, running: map[int32]bool{}}
	c := k.on(s, append(env, "KUDOS_ADMIN_ADDR=127.0.0.1:0")...)
	c.Args = append([]string{name}, c.Args...)
	c.Name, c.Dir = filepath.Base(dir), dir
	c.Log = filepath.Join(dir, c.Name+".log")
	c.Lines, c.OfStderr = r.line, true
	var err error
	r.Process, err = child.Start(c)
	return r, err
}

func (r *role) line(text []byte) {
	var l struct {
		Time                       time.Time
		Event, Server, Addr, Group string
		Partition                  int32
	}
	if json.Unmarshal(text, &l) != nil {
		return // not JSON; it is in the log file
	}
	if l.Event == listeningEvent {
		r.addr[l.Server] = l.Addr
	}
	if l.Event == assignedEvent && l.Group == schema.GroupFold {
		r.assigned = l.Time
	}
	if l.Event == runningEvent && l.Group == schema.GroupFold {
		if r.firstRan.IsZero() {
			r.firstRan = l.Time
		}
		r.running[l.Partition], r.lastRan = true, l.Time
	}
}

// serve starts a role with an HTTP API, waits until it is ready, and returns the address of the API.
func (k *Kudos) serve(ctx context.Context, s *Servers, name, dir string, env ...string) (*role, string, error) {
	r, err := k.start(s, name, dir, append(env, "KUDOS_"+strings.ToUpper(name)+"_HTTP_ADDR=127.0.0.1:0")...)
	if err != nil {
		return nil, "", err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	var addr, admin string
	err = r.Wait(ctx, "the addresses", func() bool {
		addr, admin = r.addr[name], r.addr[adminServer]
		return addr != "" && admin != ""
	})
	if err == nil {
		err = r.Poll(ctx, lookAtKafka, "readiness", func() (bool, error) {
			ctx, cancel := context.WithTimeout(ctx, askTimeout)
			defer cancel()
			resp, err := get(ctx, "http://"+admin+"/readyz")
			if err != nil {
				return false, nil
			}
			return resp.StatusCode == http.StatusOK, resp.Body.Close()
		})
	}
	if err != nil {
		r.Kill()
		return nil, "", err
	}
	return r, addr, nil
}

// get sends a request. The caller closes the body.
func get(ctx context.Context, url string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	return http.DefaultClient.Do(req)
}

// askReader queries a reader's API at addr for many counts at once.
func askReader(addr string) func(context.Context, []uint64) ([]likesOf, error) {
	return func(ctx context.Context, posts []uint64) ([]likesOf, error) {
		resp, err := get(ctx, "http://"+addr+"/v1/likes?post_ids="+joined(posts))
		if err != nil {
			return nil, err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(io.LimitReader(resp.Body, answerBytes))
		if err == nil && resp.StatusCode != http.StatusOK {
			err = fmt.Errorf("status %d: %s", resp.StatusCode, body)
		}
		var answer struct{ Posts []likesOf }
		if err == nil {
			err = json.Unmarshal(body, &answer)
		}
		return answer.Posts, err
	}
}

// watchStream watches the live stream (Server-Sent Events) of a reader at addr.
func watchStream(addr string) func(context.Context, []uint64, func([]likesOf)) error {
	return func(ctx context.Context, posts []uint64, see func([]likesOf)) error {
		resp, err := get(ctx, "http://"+addr+"/v1/stream?post_ids="+joined(posts))
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			if data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: ")); ok {
				var count likesOf
				if err := json.Unmarshal(data, &count); err != nil {
					return err
				}
				see([]likesOf{count})
			}
		}
		return fmt.Errorf("the stream has ended: %s", resp.Status)
	}
}
