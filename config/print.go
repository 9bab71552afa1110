package config

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/go-sql-driver/mysql"
)

// Entry is one setting as `kudos config` shows it.
type Entry struct {
	Key string `json:"key"`
	// Value is a number, true or false, a text or a list; a duration is a text.
	// Secrets in it are masked.
	Value any `json:"value"`
	// From is flag, env, file or default, and Name which flag, variable or file.
	From string `json:"from"`
	Name string `json:"name,omitempty"`
	// Env is the variable that would set it.
	Env string `json:"env"`
}

// Entries lists every setting, in the order of the example file.
func (l *Loaded) Entries() []Entry {
	tree := settings(&l.Config)
	entries := make([]Entry, len(tree))
	for i, s := range tree {
		origin := l.origins[s.key]
		_, secret := fileOf(tree, s.key)
		entries[i] = Entry{Key: s.key, Value: shown(s, secret), From: origin.Kind, Name: origin.Name, Env: EnvName(s.key)}
	}
	return entries
}

func shown(s setting, secret bool) any {
	if secret {
		return masked(s)
	}
	switch v := s.value.Interface().(type) {
	case time.Duration:
		return durationText(v)
	case []time.Duration:
		texts := make([]string, len(v))
		for i, d := range v {
			texts[i] = durationText(d)
		}
		return texts
	default:
		return v
	}
}

// durationText writes a duration as people do: 24h, not 24h0m0s.
func durationText(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

const mask = "***"

// masked shows that a secret is set, and of a DSN what is none.
func masked(s setting) any {
	if dsns, ok := s.value.Interface().([]string); ok {
		list := make([]string, len(dsns))
		for i, dsn := range dsns {
			list[i] = maskDSN(dsn)
		}
		return list
	}
	text := s.value.String()
	switch {
	case text == "":
		return ""
	case strings.HasSuffix(s.key, "dsn"):
		return maskDSN(text)
	}
	return mask
}

// maskDSN hides the password, and all of a DSN in which it cannot be told where the
// password is.
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

// WriteTable writes the settings for a person.
func (l *Loaded) WriteTable(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "KEY\tVALUE\tFROM") // errors of writes come with Flush
	for _, e := range l.Entries() {
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

// WriteJSON writes the settings for a script.
func (l *Loaded) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(l.Entries())
}
