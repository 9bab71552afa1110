package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"regexp"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/go-sql-driver/mysql"
)

// A setting with a companion setting for a file (kafka.sasl_password and kafka.sasl_password_file) is a secret: it can
// be read from that file, and is never shown.

// secretBytes bounds the size of a secret's file.
const secretBytes = 64 << 10

// fileOf returns the setting for the file of a secret; false if key is not a secret.
func fileOf(tree []setting, key string) (setting, bool) {
	for _, s := range tree {
		if s.key == key+"_file" {
			return s, true
		}
	}
	return setting{}, false
}

// readSecrets reads secrets from their files. If both a secret and its file are given, the source with the higher
// precedence wins, as for any setting; giving both in one source is an error.
func (l *Loaded) readSecrets(tree []setting) error {
	var errs []error
	for _, s := range tree {
		file, ok := fileOf(tree, s.key)
		if !ok || file.value.String() == "" {
			continue
		}
		direct, from := l.origins[s.key], l.origins[file.key]
		switch {
		case strength[direct.Kind] > strength[from.Kind]:
			continue
		case strength[direct.Kind] == strength[from.Kind] && s.value.Len() > 0:
			err := fmt.Errorf("%s (%s) and %s (%s) are both set: set only one", s.key, direct, file.key, from)
			errs = append(errs, err)
			continue
		}
		text, err := readSecret(file.value.String())
		if err != nil {
			errs = append(errs, fmt.Errorf("%s (%s): %w", file.key, from, err))
			continue
		}
		if s.value.Kind() == reflect.Slice { // one per line
			s.value.Set(reflect.ValueOf(strings.Split(strings.ReplaceAll(text, "\r\n", "\n"), "\n")))
		} else {
			s.value.SetString(text)
		}
		l.origins[s.key] = from
	}
	return errors.Join(errs...)
}

// strength is the precedence of a source; the highest wins.
var strength = map[string]int{"flag": 3, "env": 2, "file": 1}

// readSecret returns the contents of a file without a final newline, which editors add.
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
		return "", fmt.Errorf("%s has more than %d bytes, which is too large for a secret", path, secretBytes)
	}
	secret := strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r")
	if secret == "" {
		return "", fmt.Errorf("%s is empty", path)
	}
	return secret, nil
}

// entry is one setting in the output of `kudos config`.
type entry struct {
	Key   string `json:"key"`
	Value any    `json:"value"` // number, boolean, string or list; durations: strings; secrets, users in URLs: masked
	From  string `json:"from"`  // flag, env, file or default
	Name  string `json:"name,omitempty"`
	Env   string `json:"env"` // the variable that sets it
}

// entries returns every setting, in the order of the example file.
func (l *Loaded) entries() []entry {
	tree := settings(&l.Config)
	entries := make([]entry, len(tree))
	for i, s := range tree {
		from := l.origins[s.key]
		_, secret := fileOf(tree, s.key)
		entries[i] = entry{Key: s.key, Value: shown(s, secret), From: from.Kind, Name: from.Name, Env: EnvName(s.key)}
	}
	return entries
}

func shown(s setting, secret bool) any {
	if secret {
		return masked(s)
	}
	switch v := s.value.Interface().(type) {
	case string:
		return maskURL(v)
	case []string:
		return texts(v, maskURL)
	case time.Duration:
		return durationText(v)
	case []time.Duration:
		return texts(v, durationText)
	}
	return s.value.Interface()
}

func texts[T any](list []T, text func(T) string) []string {
	result := make([]string, len(list))
	for i, item := range list {
		result[i] = text(item)
	}
	return result
}

// durationText formats a duration briefly: 24h, not 24h0m0s.
func durationText(d time.Duration) string {
	return strings.NewReplacer("h0m0s", "h", "m0s", "m").Replace(d.String())
}

const mask = "***"

// masked shows only whether a secret is set, and of a DSN everything but the password.
func masked(s setting) any {
	if dsns, ok := s.value.Interface().([]string); ok {
		return texts(dsns, maskDSN)
	}
	switch text := s.value.String(); {
	case strings.HasSuffix(s.key, "dsn"):
		return maskDSN(text)
	case text == "":
		return ""
	}
	return mask
}

// maskDSN hides the password, or all of a DSN that cannot be parsed.
func maskDSN(dsn string) string {
	if dsn == "" {
		return ""
	}
	c, err := mysql.ParseDSN(dsn)
	if err != nil {
		return mask
	}
	if c.Passwd != "" {
		c.Passwd = mask
	}
	return c.FormatDSN()
}

var userinfo = regexp.MustCompile(`://[^/?#]*@`)

// maskURL hides the user and the password of a URL.
func maskURL(text string) string { return userinfo.ReplaceAllString(text, "://"+mask+"@") }

// WriteTable writes the settings as a table.
func (l *Loaded) WriteTable(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "KEY\tVALUE\tFROM") // Flush returns write errors
	for _, e := range l.entries() {
		value := e.Value
		if list, ok := value.([]string); ok {
			value = strings.Join(list, ",")
		}
		if value == "" {
			value = "(not set)"
		}
		fmt.Fprintf(t, "%s\t%v\t%s\n", e.Key, value, l.origins[e.Key])
	}
	return t.Flush()
}

// WriteJSON writes the settings as JSON.
func (l *Loaded) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(l.entries())
}
