package stack

import (
	"context"
	"log/slog"
	"path/filepath"
)

// ProgramOptions describe a program that is neither Kafka nor a database.
type ProgramOptions struct {
	Name string // in messages and of its log file
	Path string
	Args []string
	Dir  string // working directory, where the log file goes too
	// Probe tells whether it answers; nil: as soon as it runs.
	Probe func(context.Context) error
	// Log tells of starts and ends. Default: nothing.
	Log *slog.Logger
}

// NewProgram makes a Server of any program, which Start starts. Kill it at the end.
func NewProgram(o ProgramOptions) *Server {
	if o.Probe == nil {
		o.Probe = func(context.Context) error { return nil }
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Server{
		command: command{
			name: o.Name, path: o.Path, args: o.Args, dir: o.Dir,
			log: filepath.Join(o.Dir, o.Name+".log"),
		},
		probe:        o.Probe,
		startTimeout: DefaultStartTimeout,
		stopTimeout:  DefaultStopTimeout,
		log:          o.Log,
	}
}
