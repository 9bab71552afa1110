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
	if l.Format != "text" && l.Format != "json" {
		errs = append(errs, fmt.Errorf("log.format: %q is neither text nor json", l.Format))
	}
	return errors.Join(errs...)
}

func (l Log) level() (level slog.Level, err error) {
	if err := level.UnmarshalText([]byte(l.Level)); err != nil {
		return level, fmt.Errorf("log.level: %q is none of debug, info, warn, error", l.Level)
	}
	return level, nil
}

// New makes the logger that valid options describe.
func (l Log) New(w io.Writer) *slog.Logger {
	level, _ := l.level() // validated
	opts := &slog.HandlerOptions{Level: level}
	if l.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}
