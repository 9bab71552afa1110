package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"
)

// A setting that has another one beside it named for its file (kafka.sasl_password and kafka.sasl_password_file) is a
// secret: it can be given by that file, and is never shown.

// secretBytes bounds what a secret's file may hold.
const secretBytes = 64 << 10

// fileOf returns the setting that names the file of a secret; false if key is none.
func fileOf(tree []setting, key string) (setting, bool) {
	for _, s := range tree {
		if s.key == key+"_file" {
			return s, true
		}
	}
	return setting{}, false
}

// readSecrets puts what stands in their files in the place of secrets. Where a secret and its file are both given, the
// stronger source holds, as for any setting; that of one source one of them is to hold is not plain to see.
func (l *Loaded) readSecrets(tree []setting) error {
	var errs []error
	for _, s := range tree {
		file, ok := fileOf(tree, s.key)
		if !ok || file.value.String() == "" {
			continue
		}
		direct, from := l.origins[s.key], l.origins[file.key]
		switch {
		case direct.strength() > from.strength():
			continue
		case direct.strength() == from.strength() && s.value.Len() > 0:
			errs = append(errs, fmt.Errorf("%s (%s) and %s (%s) are both given: give one", s.key, direct, file.key, from))
			continue
		}
		text, err := readSecret(file.value.String())
		if err != nil {
			errs = append(errs, fmt.Errorf("%s (%s): %w", file.key, from, err))
			continue
		}
		s.setSecret(text)
		l.origins[s.key] = from
	}
	return errors.Join(errs...)
}

// setSecret takes what a file holds; of a list, each line.
func (s setting) setSecret(text string) {
	if s.value.Kind() != reflect.Slice {
		s.value.SetString(text)
		return
	}
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimSuffix(line, "\r")
	}
	s.value.Set(reflect.ValueOf(lines))
}

// strength orders sources: what is stronger holds.
func (o Origin) strength() int {
	switch o.Kind {
	case "flag":
		return 3
	case "env":
		return 2
	case "file":
		return 1
	}
	return 0
}

// readSecret returns what a file holds, but for the newline at its end, which editors put there.
func readSecret(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, secretBytes+1))
	switch {
	case err != nil:
		return "", err
	case len(text) > secretBytes:
		return "", fmt.Errorf("%s has more than %d bytes, which no secret has", path, secretBytes)
	}
	secret := strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r")
	if secret == "" {
		return "", fmt.Errorf("%s is empty", path)
	}
	return secret, nil
}
