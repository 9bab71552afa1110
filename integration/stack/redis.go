package stack

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
)

// RedisOptions configure a Redis server. The zero value keeps everything in memory.
type RedisOptions struct {
	// Dir is where the server's directory is created; Close removes it. Default: the system's temporary directory.
	Dir        string
	AppendOnly bool         // writes every change to an append-only file, which is synced once per second
	Log        *slog.Logger // of starts and ends; default: none
}

// Redis is one Redis server with its own data.
type Redis struct{ single }

// StartRedis starts this machine's Redis server, without data, and returns once it answers. ctx bounds the start only.
func StartRedis(ctx context.Context, o RedisOptions) (_ *Redis, err error) {
	path, err := find("redis-server", "Redis")
	if err != nil {
		return nil, err
	}
	r := &Redis{}
	if r.dir, err = makeDir(o.Dir, "kudos-redis-"); err != nil {
		return nil, fmt.Errorf("start redis: %w", err)
	}
	defer CloseOnError(&err, r.Close)
	if r.port, err = Reserve(); err != nil {
		return nil, err
	}
	appendOnly := "no"
	if o.AppendOnly {
		appendOnly = "yes"
	}
	r.Server = NewProgram(ProgramOptions{
		Name: "redis", Path: path, Dir: r.dir, Log: o.Log,
		Args: []string{"--port", fmt.Sprint(r.port.number), "--bind", "127.0.0.1", "--dir", r.dir, "--save", "",
			"--appendonly", appendOnly, "--appendfsync", "everysec"},
		Probe: r.answers,
	})
	return r, r.Start(ctx)
}

// answers checks that the server has loaded its data.
func (r *Redis) answers(ctx context.Context) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", r.Address())
	if err != nil {
		return err
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline() // zero: none
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		return err
	}
	answer, err := bufio.NewReader(conn).ReadString('\n')
	if err == nil && strings.TrimSpace(answer) != "+PONG" {
		err = fmt.Errorf("unexpected response to PING: %q", answer)
	}
	return err
}
