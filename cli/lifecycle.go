package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"sync"
	"syscall"
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
func runRole(
	ctx context.Context, name string, r role, opts admin.Options, reg *prometheus.Registry, log *slog.Logger,
) error {
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
	log.Info("starting", "role", name, "version", buildVersion().Version)
	err = runOver(ctx, r.Run, admin.New(opts, reg, checksOf(ctx, namedRole{name, r}), log).Run)
	if err == nil {
		log.Info("stopped", "role", name)
	}
	return err
}

type namedRole struct {
	name string
	role
}

// checksOf returns the readiness of a process: that of its roles, and that no signal has ended ctx.
func checksOf(ctx context.Context, roles ...namedRole) []admin.Check {
	var checks []admin.Check
	for _, r := range roles {
		check := admin.Check{Name: r.name, Ready: r.Ready}
		if d, ok := r.role.(interface{ Detail() any }); ok {
			check.Detail = d.Detail
		}
		checks = append(checks, check)
	}
	return append(checks, admin.Check{Name: "lifecycle", Ready: func() error {
		if ctx.Err() != nil {
			return errors.New("shutting down")
		}
		return nil
	}})
}

// observe returns the registry of a process, and makes its Kafka clients count there.
func observe(cfg *config.Config) *prometheus.Registry {
	reg := admin.NewRegistry()
	cfg.Kafka.Hooks = append(cfg.Kafka.Hooks, kafka.NewClientMetrics(reg))
	return reg
}

// checkConnections reads the files that a role connects with, before it starts, and warns of a password in the clear.
func checkConnections(cfg *config.Config, log *slog.Logger) error {
	if err := errors.Join(cfg.Kafka.CheckFiles(), cfg.MySQL.CheckFiles()); err != nil {
		return usageError{err}
	}
	if cfg.Kafka.PasswordReadable() {
		log.Warn("kafka.sasl_mechanism is PLAIN and kafka.tls is false: " +
			"whoever is on the way to Kafka can read the password; set kafka.tls, or a SCRAM mechanism")
	}
	return nil
}

// work blocks until ctx ends or it fails, and leaves nothing running.
type work func(ctx context.Context) error

// runOver runs top on what is beneath it. The end of any of them ends all, top first where ctx is what ends: while it
// finishes, what is beneath still works. It returns everybody's errors.
func runOver(ctx context.Context, top work, beneath ...work) error {
	var group run.Group
	errs := make([]error, 1+len(beneath)) // the group itself returns the first one's only
	for i, w := range append([]work{top}, beneath...) {
		parent := ctx
		if i > 0 {
			parent = context.WithoutCancel(ctx)
		}
		ctx, cancel := context.WithCancel(parent)
		group.Add(
			func() error { errs[i] = w(ctx); return errs[i] },
			func(error) { cancel() },
		)
	}
	_ = group.Run() // in errs
	return errors.Join(errs...)
}

// gcPercent is GOGC's value where a state store is written to: at Go's 100 % a processor has 300 MiB more garbage, and
// saves no time that can be measured (docs/performance.md).
const gcPercent = 50

// collectMoreOften sets gcPercent, unless the user has set GOGC.
func collectMoreOften() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}

// signalContext returns a context that SIGINT or SIGTERM ends. What runs then finishes its work in flight, within the
// limits of its settings; a second signal calls exit at once.
func signalContext(stderr io.Writer, exit func(code int)) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	var wait sync.WaitGroup
	wait.Go(func() {
		for sig := range signals {
			if ctx.Err() != nil {
				exit(exitFailed)
				return
			}
			fmt.Fprintf(stderr, "kudos: %s: finishing what is in hand; once more to exit at once\n", sig)
			cancel(fmt.Errorf("stopped by signal: %s", sig))
		}
	})
	return ctx, func() {
		signal.Stop(signals)
		close(signals)
		wait.Wait()
		cancel(nil)
	}
}
