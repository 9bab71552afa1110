package stack

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"
)

// RedisOptions describe a Redis server. The zero value keeps everything in memory only.
type RedisOptions struct {
	// Dir is where the server makes its directory, which Close removes. Default: the system's temporary directory.
	Dir string
	// Keep leaves data and log in place after Close.
	Keep bool
	// AppendOnly writes every change to an append-only file that is synchronized once a second.
	AppendOnly bool
	// ExtraArgs are added to the server's command line and win over what this package sets.
	ExtraArgs []string
	// StartTimeout and StopTimeout bound Start and Stop. Defaults: DefaultStartTimeout, DefaultStopTimeout.
	StartTimeout, StopTimeout time.Duration
	// Log tells of starts and ends. Default: nothing.
	Log *slog.Logger
}

// Redis is one Redis server with data of its own.
type Redis struct {
	*Server
	dir  string // holds data/ and the log
	keep bool
	port port
}

// StartRedis starts the Redis server that is installed on this machine, without any data, and returns once it answers.
// ctx bounds the start only.
func StartRedis(ctx context.Context, o RedisOptions) (_ *Redis, err error) {
	if err := missingRedis(); err != nil {
		return nil, err
	}
	path, err := findProgram("redis-server")
	if err != nil {
		return nil, err
	}
	r := &Redis{keep: o.Keep}
	if r.dir, err = makeDir(o.Dir, "kudos-redis-"); err != nil {
		return nil, fmt.Errorf("start redis: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Close())
		}
	}()
	if r.port, err = reservePort(); err != nil {
		return nil, err
	}
	appendOnly := "no"
	if o.AppendOnly {
		appendOnly = "yes"
	}
	program := ProgramOptions{
		Name: "redis", Path: path, Dir: r.dir, Log: o.Log,
		Args: append([]string{
			"--port", fmt.Sprint(r.port.number), "--bind", "127.0.0.1", "--dir", r.dir,
			"--save", "", "--appendonly", appendOnly, "--appendfsync", "everysec",
		}, o.ExtraArgs...),
		Probe: r.answers,
	}
	r.Server = NewProgram(program)
	if o.StartTimeout > 0 {
		r.Server.startTimeout = o.StartTimeout
	}
	if o.StopTimeout > 0 {
		r.Server.stopTimeout = o.StopTimeout
	}
	return r, r.Start(ctx)
}

// answers checks that the server has loaded what it had.
func (r *Redis) answers(ctx context.Context) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", r.port.address())
	if err != nil {
		return err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return err
		}
	}
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		return err
	}
	answer, err := bufio.NewReader(conn).ReadString('\n')
	if err == nil && strings.TrimSpace(answer) != "+PONG" {
		err = fmt.Errorf("it answers PING with %q", answer)
	}
	return err
}

// Address is host:port.
func (r *Redis) Address() string { return r.port.address() }

// Dir is where the data and the log are.
func (r *Redis) Dir() string { return r.dir }

// Close kills the server and removes its data. It may be called more than once.
func (r *Redis) Close() error {
	if r.Server != nil {
		r.end()
	}
	err := r.port.release()
	if !r.keep {
		err = errors.Join(err, os.RemoveAll(r.dir))
	}
	return err
}
