package config

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
)

// Validate says what is wrong with the options, all of it.
func (l Log) Validate() error {
	var errs []error
	if _, err := l.level(); err != nil {
		errs = append(errs, err)
	}
	if l.Format != "auto" && l.Format != "text" && l.Format != "json" {
		errs = append(errs, fmt.Errorf("log.format: %q is none of auto, text, json", l.Format))
	}
	return errors.Join(errs...)
}

func (l Log) level() (level slog.Level, err error) {
	if err := level.UnmarshalText([]byte(l.Level)); err != nil {
		return level, fmt.Errorf("log.level: %q is none of debug, info, warn, error", l.Level)
	}
	return level, nil
}

// New makes the logger that valid options describe; terminal: a person reads along.
func (l Log) New(w io.Writer, terminal bool) *slog.Logger {
	level, _ := l.level() // validated
	opts := &slog.HandlerOptions{Level: level}
	if l.Format == "json" || l.Format == "auto" && !terminal {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}
