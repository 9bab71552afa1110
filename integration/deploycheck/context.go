package main

import (
	"context"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/moby/patternmatcher/ignorefile"
	"github.com/tonistiigi/fsutil"
)

// readContext lists the files beside a .dockerignore that an image is built from: those that it lets through.
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
