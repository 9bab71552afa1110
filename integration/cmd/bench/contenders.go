package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"kudos/bench"
	"kudos/bench/child"
	"kudos/integration/stack"
	"kudos/schema"
)

const kudosName = "kudos"

// known are all contenders, in the order of reports.
var known = []string{kudosName, "redis", "goka", "streams", "sql"}

// programFlags build kudos as in releases. Tests, which measure nothing, override them to save a compilation.
var programFlags = stack.AsShipped()

// build builds the named contenders, or all whose source is present. profiles is the directory for profiles of kudos.
func build(ctx context.Context, root, into string, names []string, profiles string) ([]bench.Contender, error) {
	for _, name := range names {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("unknown contender %q; must be one of %s", name, strings.Join(known, ", "))
		}
	}
	var list []bench.Contender
	for _, name := range known {
		source := filepath.Join(root, "integration", "peers", name)
		if len(names) > 0 && !slices.Contains(names, name) {
			continue
		}
		if _, err := os.Stat(source); len(names) == 0 && name != kudosName && err != nil {
			continue
		}
		c, err := buildOne(ctx, name, source, into, profiles)
		if err != nil {
			return nil, fmt.Errorf("building %s: %w", name, err)
		}
		list = append(list, c)
	}
	return list, nil
}

func buildOne(ctx context.Context, name, source, into, profiles string) (_ bench.Contender, err error) {
	p := &peer{name: name}
	switch name {
	case kudosName:
		k := &bench.Kudos{}
		if profiles != "" {
			k.Profile = func(ctx context.Context, admin string) error { return profile(ctx, admin, profiles) }
		}
		k.Program.Path, err = stack.BuildKudos(ctx, into, programFlags)
		return k, err
	case "streams":
		p.about = "Kafka Streams: latest action, count, exactly_once_v2, a commit every 100 ms; a sink to MySQL"
		p.program, err = buildStreams(ctx, source)
		return p, err
	case "redis":
		p.needsRedis = true
		p.about = "Redis counters: SADD and INCR in Lua over 64 shards, pipelined, AOF everysec; flushed to MySQL"
	case "goka":
		p.about = "stock goka: one message per callback, SetValue, its default stores; a sink to MySQL"
	case "sql":
		p.about = "one SQL transaction per like"
	}
	p.program.Path = filepath.Join(into, "peer-"+name)
	return p, output(ctx, source, "go", "build", "-o", p.program.Path, ".")
}

// buildStreams builds the Java peer. It tries Maven offline first and ignores that error.
func buildStreams(ctx context.Context, dir string) (c child.Command, err error) {
	if output(ctx, dir, "mvn", "-q", "-o", "package") != nil {
		if err := output(ctx, dir, "mvn", "-q", "package"); err != nil {
			return c, err
		}
	}
	if c.Args, err = javaOptions(filepath.Join(dir, "java.options")); err != nil {
		return c, err
	}
	c.Args = append(c.Args, "-jar", filepath.Join(dir, "target", "streams.jar"))
	if c.Path, err = exec.LookPath("java"); err != nil {
		return c, fmt.Errorf("finding Java: %w; run `make deps`", err)
	}
	return c, nil
}

// javaOptions reads flags from a file, if it exists: words separated by white space; # starts a comment.
func javaOptions(path string) ([]string, error) {
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var words []string
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "#")
		words = append(words, strings.Fields(line)...)
	}
	return words, nil
}

func output(ctx context.Context, dir, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s in %s: %w\n%s", name, strings.Join(args, " "), dir, err, out)
	}
	return nil
}

const (
	profileSeconds = 5 // how long a drain is profiled: shorter than any drain of 5,000,000 events
	profileTimeout = 30*time.Second + profileSeconds*time.Second
)

// profile saves a CPU profile of the next seconds. The program is built with these profiles (make pgo).
func profile(ctx context.Context, admin, into string) error {
	ctx, cancel := context.WithTimeout(ctx, profileTimeout)
	defer cancel()
	url := fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", admin, profileSeconds)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: status %d: %s", url, resp.StatusCode, body)
	}
	return os.WriteFile(filepath.Join(into, time.Now().UTC().Format("20060102-150405.000")+".pprof"), body, 0o644)
}

// peer is a contender other than kudos: a program that reports its progress in lines of JSON (see peers/README.md).
type peer struct {
	name, about string
	needsRedis  bool
	program     child.Command // without the flags common to all peers
	redis       string        // host:port, set by the site
}

func (p *peer) Name() string  { return p.name }
func (p *peer) About() string { return p.about }

// Prepare creates the topic likes as kudos does. The peer creates everything else.
func (p *peer) Prepare(ctx context.Context, s *bench.Servers, partitions int32) error {
	cl, err := s.Kafka.NewClient(s.Log)
	if err != nil {
		return err
	}
	defer cl.Close()
	topics := schema.Topics(partitions, s.Replication)
	likes := topics[slices.IndexFunc(topics, func(t schema.Topic) bool { return t.Name == schema.TopicLikes })]
	configs := map[string]*string{}
	for name, value := range likes.Configs {
		configs[name] = &value
	}
	_, err = kadm.NewClient(cl).CreateTopic(ctx, likes.Partitions, likes.ReplicationFactor, configs, likes.Name)
	if err != nil {
		return fmt.Errorf("creating topic %s: %w", likes.Name, err)
	}
	return nil
}

func (p *peer) Start(s *bench.Servers, dir string) (bench.Running, error) {
	r, c := &peerProcess{name: p.name}, p.program
	c.Name, c.Dir, c.Log, c.Lines = p.name, dir, filepath.Join(dir, p.name+".log"), r.line
	c.Args = append(slices.Clone(c.Args), "--brokers", strings.Join(s.Kafka.Brokers, ","),
		"--mysql-dsn", s.DSN, "--state-dir", filepath.Join(dir, "state"))
	if p.needsRedis {
		c.Args = append(c.Args, "--redis", p.redis)
	}
	var err error
	if r.Process, err = child.Start(c); err != nil {
		return nil, err
	}
	return r, nil
}

type peerProcess struct {
	*child.Process
	name      string
	firstPoll time.Time
	committed peerLine
	state     *bench.State
	bad       error // the first line that violates the contract
}

type peerLine struct {
	Event      string `json:"event"`
	TimeUnixNs int64  `json:"time_unix_ns"`
	Events     int64  `json:"events"`
	bench.State
}

func (r *peerProcess) line(text []byte) {
	var l peerLine
	err := json.Unmarshal(text, &l)
	switch {
	case err != nil:
	case r.state != nil:
		err = errors.New("no line may follow the one with event \"state\"")
	case l.Event == "first_poll":
		r.firstPoll = time.Unix(0, l.TimeUnixNs)
	case l.Event == "committed" && l.Events > r.committed.Events:
		r.committed = l
	case l.Event == "committed" && l.Events == r.committed.Events: // the first such line has the time
	case l.Event == "state":
		r.state = &l.State
	default:
		err = errors.New("unknown event, or the count decreased")
	}
	if err != nil && r.bad == nil {
		r.bad = fmt.Errorf("%s printed the line %q: %w", r.name, text, err)
	}
}

func (r *peerProcess) told(ctx context.Context, what string, known func() bool) error {
	var bad error
	err := r.Wait(ctx, what, func() bool { bad = r.bad; return bad != nil || known() })
	return errors.Join(err, bad)
}

func (r *peerProcess) FirstPoll(ctx context.Context) (at time.Time, err error) {
	err = r.told(ctx, "the first poll", func() bool { at = r.firstPoll; return !at.IsZero() })
	return at, err
}

func (r *peerProcess) Counted(ctx context.Context, events int64) (time.Time, error) {
	var last peerLine
	err := r.told(ctx, fmt.Sprintf("%d events to be committed", events), func() bool {
		last = r.committed
		return last.Events >= events
	})
	if err == nil && last.Events > events {
		err = fmt.Errorf("%s reported %d counted events, but there are only %d", r.name, last.Events, events)
	}
	return time.Unix(0, last.TimeUnixNs), err
}

func (r *peerProcess) Stop() (bench.State, error) {
	if err := r.Terminate(bench.StopTimeout); err != nil {
		return bench.State{}, err
	}
	if r.state == nil {
		err := fmt.Errorf("%s exited without reporting its state\n%s", r.name, r.Tail())
		return bench.State{}, errors.Join(r.bad, err)
	}
	return *r.state, r.bad
}
