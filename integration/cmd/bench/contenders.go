package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"kudos/bench"
	"kudos/integration/stack"
)

// kudosName is the contender that all others are compared with.
const kudosName = "kudos"

// maker builds a contender's program from its source.
type maker struct {
	name  string
	build func(ctx context.Context, root, into string) (bench.Contender, error)
}

// programFlags are what kudos is built with: what is measured is what ships. Tests, which measure nothing, save a compilation.
var programFlags = stack.AsShipped()

// makers are all contenders, in the order of reports.
func makers() []maker {
	peer := func(name, about string, redis bool) maker {
		return maker{name, func(ctx context.Context, root, into string) (bench.Contender, error) {
			c, err := buildGo(ctx, root, into, name)
			return &bench.Peer{Title: name, Text: about, Redis: redis, Program: c}, err
		}}
	}
	return []maker{
		{kudosName, func(ctx context.Context, _, into string) (bench.Contender, error) {
			path, err := stack.BuildKudos(ctx, into, programFlags)
			return &bench.Kudos{Program: bench.Command{Path: path}}, err
		}},
		peer("redis", "Redis counters: SADD and INCR in Lua over 64 shards, pipelined, AOF everysec; flushed to MySQL", true),
		peer("goka", "stock goka: one message a callback, SetValue, its default stores; a sink to MySQL", false),
		{"streams", func(ctx context.Context, root, into string) (bench.Contender, error) {
			c, err := buildStreams(ctx, root)
			return &bench.Peer{Title: "streams", Text: "Kafka Streams: latest action, count, exactly_once_v2; a sink to MySQL", Program: c}, err
		}},
		peer("sql", "one SQL transaction a like", false),
	}
}

// peersDir is where the peers' sources are, below the project's root.
func peersDir(root string) string { return filepath.Join(root, "integration", "peers") }

// present tells whether a contender's source is here.
func (m maker) present(root string) bool {
	if m.name == kudosName {
		return true
	}
	_, err := os.Stat(filepath.Join(peersDir(root), m.name))
	return err == nil
}

// buildGo builds a peer that is a command of the peers' module.
func buildGo(ctx context.Context, root, into, name string) (bench.Command, error) {
	path := filepath.Join(into, "peer-"+name)
	return bench.Command{Path: path}, output(ctx, peersDir(root), "go", "build", "-o", path, "./"+name)
}

// buildStreams builds the peer in Java. Maven is first asked to do with what it has; that it cannot is no news.
func buildStreams(ctx context.Context, root string) (bench.Command, error) {
	dir := filepath.Join(peersDir(root), "streams")
	if output(ctx, dir, "mvn", "-q", "-o", "package") != nil {
		if err := output(ctx, dir, "mvn", "-q", "package"); err != nil {
			return bench.Command{}, err
		}
	}
	args, err := javaOptions(filepath.Join(dir, "java.options"))
	if err != nil {
		return bench.Command{}, err
	}
	java, err := exec.LookPath("java")
	if err != nil {
		return bench.Command{}, fmt.Errorf("find Java: %w; run `make deps`", err)
	}
	return bench.Command{Path: java, Args: append(args, "-jar", filepath.Join(dir, "target", "streams.jar"))}, nil
}

// javaOptions reads flags from a file, if it is there: words with blanks or line ends between, # begins a comment.
func javaOptions(path string) ([]string, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var words []string
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "#")
		words = append(words, strings.Fields(line)...)
	}
	return words, nil
}

// output runs a command to its end; what it printed is in the error.
func output(ctx context.Context, dir, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s in %s: %w\n%s", name, strings.Join(args, " "), dir, err, out)
	}
	return nil
}

// build builds the contenders with these names, or all whose source is here. profiles is the folder for those of kudos.
func build(ctx context.Context, root, into string, names []string, profiles string) ([]bench.Contender, error) {
	var list []bench.Contender
	var known []string
	for _, m := range makers() {
		known = append(known, m.name)
		if len(names) > 0 && !slices.Contains(names, m.name) || len(names) == 0 && !m.present(root) {
			continue
		}
		c, err := m.build(ctx, root, into)
		if err != nil {
			return nil, fmt.Errorf("building %s: %w", m.name, err)
		}
		if k, ok := c.(*bench.Kudos); ok {
			k.Profiles = profiles
		}
		list = append(list, c)
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("there is no contender %q; there are %s", name, strings.Join(known, ", "))
		}
	}
	return list, nil
}
