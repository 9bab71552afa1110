package chaos

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// burstTimeout bounds the writing of a burst; brokers may be down meanwhile.
const burstTimeout = time.Minute

// burst is some records of a special kind: what they are called, how they are made, and how they are sent.
type burst struct {
	what string
	n    int
	next func() *kgo.Record
	opts []kgo.Opt
}

func poisonEvents(f *fault, g *generator) burst {
	return burst{what: "poison records", n: 200 + f.random.IntN(2000), next: g.malformed}
}

func oversizedEvents(f *fault, g *generator) burst {
	return burst{what: "oversized records", n: 20 + f.random.IntN(80), next: g.oversized}
}

func misroutedEvents(f *fault, g *generator) burst {
	return burst{what: "misrouted events", n: 500 + f.random.IntN(3000), next: func() *kgo.Record { return g.astray(f.sys.opts.Partitions) },
		opts: []kgo.Opt{kgo.RecordPartitioner(kgo.ManualPartitioner())}}
}

func futureEvents(f *fault, g *generator) burst {
	return burst{what: "future-dated events", n: 200 + f.random.IntN(2000), next: g.future}
}

// loadFault has the load bring a burst.
func loadFault(make func(*fault, *generator) burst) func(context.Context, *fault) error {
	return func(ctx context.Context, f *fault) error {
		b := make(f, newGenerator(f.sys.opts.Seed, uint64(f.number)+10))
		f.on("%d %s", b.n, b.what)
		ctx, cancel := context.WithTimeout(ctx, burstTimeout)
		defer cancel()
		taken, err := f.load.burst(ctx, b.n, b.next, b.opts...)
		f.show(b.what, int64(taken))
		if taken == 0 {
			return missed("%v", err)
		}
		return nil
	}
}

func killProducer(ctx context.Context, f *fault) error {
	u := f.sys.producer
	u.held.Lock()
	defer u.held.Unlock()
	f.on("%v", u)
	before := f.load.refused()
	if err := u.Kill(); err != nil {
		return missed("%v", err)
	}
	if err := errors.Join(wait(ctx, f.between(500*time.Millisecond, 2*time.Second)), u.Start(ctx)); err != nil {
		return err
	}
	if f.load.refused() == before {
		return missed("nobody asked it anything meanwhile")
	}
	f.show("HTTP requests that the end of the producer cut off or kept out", int64(f.load.refused()-before))
	return nil
}
