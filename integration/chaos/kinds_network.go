package chaos

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/Shopify/toxiproxy/v2"
)

// weather is what a network may do: toxics, and for how long.
type weather func(f *fault) (toxics []toxic, d time.Duration)

func latency(f *fault) ([]toxic, time.Duration) {
	ms := 20 + f.random.IntN(250)
	attributes := map[string]any{"latency": ms, "jitter": ms / 2}
	return []toxic{{Type: "latency", Stream: f.direction(), Attributes: attributes}}, f.between(time.Second, 5*time.Second)
}

// reset ends connections, at once or after some more bytes: in the middle of a message, most of the time.
func reset(f *fault) ([]toxic, time.Duration) {
	t := toxic{Type: "reset_peer", Stream: f.direction(), Attributes: map[string]any{"timeout": f.random.IntN(300)}}
	if f.random.IntN(2) == 0 {
		t = toxic{Type: "limit_data", Stream: f.direction(), Attributes: map[string]any{"bytes": 1 + f.random.IntN(20_000)}}
	}
	return []toxic{t}, f.between(300*time.Millisecond, 3*time.Second)
}

// silence loses what is sent in one direction, or in both.
func silence(f *fault) ([]toxic, time.Duration) {
	toxics := []toxic{{Type: "timeout", Stream: f.direction(), Attributes: map[string]any{"timeout": 0}}}
	if f.random.IntN(3) == 0 {
		toxics = []toxic{{Type: "timeout", Stream: "upstream", Attributes: map[string]any{"timeout": 0}}, {Type: "timeout", Stream: "downstream", Attributes: map[string]any{"timeout": 0}}}
	}
	return toxics, f.between(500*time.Millisecond, 7*time.Second)
}

func (f *fault) direction() string {
	if f.random.IntN(2) == 0 {
		return "upstream"
	}
	return "downstream"
}

func mysqlNetwork(w weather) func(context.Context, *fault) error {
	return func(ctx context.Context, f *fault) error {
		return f.weather(ctx, w, f.sys.network.mysql)
	}
}

// kafkaNetwork strikes one broker's connections, or those of all.
func kafkaNetwork(w weather) func(context.Context, *fault) error {
	return func(ctx context.Context, f *fault) error {
		brokers := f.sys.network.brokers
		if f.random.IntN(3) > 0 {
			one := f.random.IntN(len(brokers))
			brokers = brokers[one : one+1]
		}
		return f.weather(ctx, w, brokers...)
	}
}

func (f *fault) weather(ctx context.Context, w weather, proxies ...*toxiproxy.Proxy) error {
	toxics, d := w(f)
	names := ""
	for _, p := range proxies {
		names += " " + p.Name
	}
	f.on("connections to%s: %v for %v", names, toxics, d.Round(time.Millisecond))
	heal, err := disturb(proxies, toxics...)
	if err != nil {
		return err
	}
	if err := errors.Join(wait(ctx, d), heal()); err != nil {
		return fmt.Errorf("%s: %w", f.kind.name, err)
	}
	return nil
}
