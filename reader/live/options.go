package live

import (
	"errors"
	"fmt"
	"time"
)

// Options of the live streams.
type Options struct {
	// MaxStreams is how many are open at a time; more are refused with 429.
	MaxStreams int
	// MaxPosts is how many posts one stream may show.
	MaxPosts int
	// Interval is the time between two values of a subject that goes on changing.
	Interval time.Duration
	// Heartbeat is the time between two signs of life on a stream.
	Heartbeat time.Duration
	// WriteTimeout is how long a client may take to accept what is written, and to
	// answer a ping, before its stream is closed.
	WriteTimeout time.Duration
	// Origins are the web pages of other hosts that may open a WebSocket, such as
	// https://www.example.com; "*" is all. (For SSE the browser asks CORS.)
	Origins []string
}

// validate says what is wrong with the options, all of it.
func (o Options) validate() error {
	var errs []error
	for _, n := range []struct {
		name  string
		value int64
	}{
		{"MaxStreams", int64(o.MaxStreams)},
		{"MaxPosts", int64(o.MaxPosts)},
		{"Interval", int64(o.Interval)},
		{"Heartbeat", int64(o.Heartbeat)},
		{"WriteTimeout", int64(o.WriteTimeout)},
	} {
		if n.value <= 0 {
			errs = append(errs, fmt.Errorf("live.Options: %s must be above zero", n.name))
		}
	}
	return errors.Join(errs...)
}
