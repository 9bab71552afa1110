package cli

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"runtime/debug"
	"time"

	"github.com/oklog/run"
	"github.com/prometheus/client_golang/prometheus"

	"kudos/config"
	"kudos/httpserver/admin"
	"kudos/stream/kafka"
	"kudos/stream/kafka/tracing"
)

// role is one of the program's long-running parts.
type role interface {
	// Run blocks until ctx ends or the role fails, and leaves nothing running.
	Run(ctx context.Context) error
	// Ready is nil, or why the role cannot do its work at the moment.
	Ready() error
}

// traceTimeout bounds the sending of what is left of traces at the end.
const traceTimeout = 5 * time.Second

// runRole runs a role, and an admin server beneath it.
func runRole(ctx context.Context, name string, r role, opts admin.Options, reg *prometheus.Registry, log *slog.Logger) error {
	stopTracing, err := tracing.Setup(ctx, "kudos-"+name, buildVersion().Version)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), traceTimeout)
		defer cancel()
		if err := stopTracing(ctx); err != nil {
			log.Warn("traces could not be sent", "error", err)
		}
	}()
	server := admin.New(opts, reg, []admin.Check{checkOf(name, r), notStopping(ctx)}, log)
	log.Info("starting", "role", name, "version", buildVersion().Version)
	err = runOver(ctx, r.Run, server.Run)
	if err == nil {
		log.Info("stopped", "role", name)
	}
	return err
}

// checkOf is a role's readiness, with what it tells beside.
func checkOf(name string, r role) admin.Check {
	check := admin.Check{Name: name, Ready: r.Ready}
	if d, ok := r.(interface{ Detail() any }); ok {
		check.Detail = d.Detail
	}
	return check
}

// observe returns the registry of a process, and has its clients of Kafka count there.
func observe(cfg *config.Config) *prometheus.Registry {
	reg := admin.NewRegistry()
	cfg.Kafka.Hooks = append(cfg.Kafka.Hooks, kafka.NewClientMetrics(reg))
	return reg
}

// checkConnections reads the files that a role connects with, so that it does not start
// only to find out, and warns of a password that goes over the network as it is.
func checkConnections(cfg *config.Config, log *slog.Logger) error {
	if err := errors.Join(cfg.Kafka.CheckFiles(), cfg.MySQL.CheckFiles()); err != nil {
		return usageError{err}
	}
	if cfg.Kafka.PasswordReadable() {
		log.Warn("kafka.sasl_mechanism is PLAIN and kafka.tls is false: whoever is on the way to Kafka can read the password; set kafka.tls, or a SCRAM mechanism")
	}
	return nil
}

// notStopping is the check that fails from the first signal on.
func notStopping(ctx context.Context) admin.Check {
	return admin.Check{Name: "lifecycle", Ready: func() error {
		if ctx.Err() != nil {
			return errors.New("shutting down")
		}
		return nil
	}}
}

// work blocks until ctx ends or it fails, and leaves nothing running.
type work func(ctx context.Context) error

// runOver runs top on what is beneath it. The end of any of them ends all, top first
// where ctx is what ends: while it finishes, what is beneath still works. It returns
// everybody's errors.
func runOver(ctx context.Context, top work, beneath ...work) error {
	var group run.Group
	errs := make([]error, 1+len(beneath)) // the group itself returns the first one's only
	add := func(ctx context.Context, w work, err *error) {
		ctx, cancel := context.WithCancel(ctx)
		group.Add(
			func() error { *err = w(ctx); return *err },
			func(error) { cancel() },
		)
	}
	add(ctx, top, &errs[0])
	for i, w := range beneath {
		add(context.WithoutCancel(ctx), w, &errs[1+i])
	}
	_ = group.Run() // in errs
	return errors.Join(errs...)
}

// gcPercent is GOGC's value where a state store is written to: at Go's 100 % a processor has 300 MiB more
// garbage, and saves no time that can be measured (docs/performance.md).
const gcPercent = 50

// collectMoreOften sets gcPercent, unless the user has set GOGC.
func collectMoreOften() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}
