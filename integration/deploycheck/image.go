package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/linter"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"github.com/moby/patternmatcher/ignorefile"
	"github.com/tonistiigi/fsutil"
)

// image is how a Dockerfile's last stage is run.
type image struct {
	Base       string            `json:"base"`
	User       string            `json:"user"`
	WorkingDir string            `json:"workingDir"`
	StopSignal string            `json:"stopSignal"`
	Env        map[string]string `json:"env"`
	Entrypoint []string          `json:"entrypoint"`
	Ports      []string          `json:"ports"`
	Runs       []string          `json:"runs"` // of all stages, in shell form
}

// readDockerfile treats BuildKit's warnings as errors.
func readDockerfile(text []byte) (json.RawMessage, error) {
	parsed, err := parser.Parse(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, w := range parsed.Warnings {
		errs = append(errs, errors.New(w.Short))
	}
	lint := linter.New(&linter.Config{Warn: func(rule, _, _, text string, at []parser.Range) {
		errs = append(errs, fmt.Errorf("%s: %s %v", rule, text, at))
	}})
	stages, _, err := instructions.Parse(parsed.AST, lint)
	if err != nil {
		return nil, err
	}
	last := stages[len(stages)-1]
	i := image{Base: last.BaseName, Env: map[string]string{}}
	for _, s := range stages {
		for _, c := range s.Commands {
			if run, is := c.(*instructions.RunCommand); is {
				i.Runs = append(i.Runs, strings.Join(run.CmdLine, " "))
			}
		}
	}
	for _, c := range last.Commands {
		switch c := c.(type) {
		case *instructions.UserCommand:
			i.User = c.User
		case *instructions.WorkdirCommand:
			i.WorkingDir = c.Path
		case *instructions.StopSignalCommand:
			i.StopSignal = c.Signal
		case *instructions.EntrypointCommand:
			i.Entrypoint = c.CmdLine
		case *instructions.ExposeCommand:
			i.Ports = append(i.Ports, c.Ports...)
		case *instructions.EnvCommand:
			for _, one := range c.Env {
				i.Env[one.Key] = one.Value
			}
		}
	}
	asJSON, err := json.Marshal(i)
	return asJSON, errors.Join(append(errs, err)...)
}

func readContext(path string) ([]json.RawMessage, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	ignored, err := ignorefile.ReadAll(file)
	if err != nil {
		return nil, err
	}
	all, err := fsutil.NewFS(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	sent, err := fsutil.NewFilterFS(all, &fsutil.FilterOpt{ExcludePatterns: ignored})
	if err != nil {
		return nil, err
	}
	var files []json.RawMessage
	err = sent.Walk(context.Background(), "", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		asJSON, err := json.Marshal(name)
		files = append(files, asJSON)
		return err
	})
	return files, err
}
