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

type role interface {
	Run(ctx context.Context) error // blocks until ctx ends or the role fails, and leaves nothing running
	Ready() error                  // nil, or the reason why the role cannot work at the moment
}

// traceTimeout bounds the flush of the remaining traces at shutdown.
const traceTimeout = 5 * time.Second

// runRole runs a role with an admin server, which outlives the role.
func runRole(ctx context.Context, name string, r role, opts admin.Options, reg *prometheus.Registry, log *slog.Logger,
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

// checksOf returns the readiness checks of a process: one per role, and one that fails once a signal has ended ctx.
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

// observe returns the registry of a process, and registers the metrics of its Kafka clients there.
func observe(cfg *config.Config) *prometheus.Registry {
	reg := admin.NewRegistry()
	cfg.Kafka.Hooks = append(cfg.Kafka.Hooks, kafka.NewClientMetrics(reg))
	return reg
}

// checkConnections reads the TLS and credential files before the role starts and warns of a password sent in the clear.
func checkConnections(cfg *config.Config, log *slog.Logger) error {
	if err := errors.Join(cfg.Kafka.CheckFiles(), cfg.MySQL.CheckFiles()); err != nil {
		return usageError{err}
	}
	if cfg.Kafka.PasswordReadable() {
		log.Warn("kafka.sasl_mechanism is PLAIN and kafka.tls is false: " +
			"the password is sent in the clear; set kafka.tls to true, or use a SCRAM mechanism")
	}
	return nil
}

type work func(ctx context.Context) error

// runOver runs top on the works beneath it. When any of them ends, all end. If ctx ends, top stops first, and the works
// beneath keep running until it has returned. runOver returns the joined errors.
func runOver(ctx context.Context, top work, beneath ...work) error {
	var group run.Group
	errs := make([]error, 1+len(beneath)) // group returns the first error only
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
	_ = group.Run() // its error is in errs
	return errors.Join(errs...)
}

// collectMoreOften sets GOGC to 50, for processes that write to a state store. At Go's default of 100 a processor has
// 300 MiB more garbage and is not measurably faster (docs/performance.md).
func collectMoreOften() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50)
	}
}

// signalContext returns a context that SIGINT or SIGTERM cancels, to end gracefully. A second signal calls exit.
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
			fmt.Fprintf(stderr, "kudos: %s: shutting down; press Ctrl-C again to exit immediately\n", sig)
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
