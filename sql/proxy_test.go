package sql

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"kudos/integration/mysqlproxy"
)

// wireProxy sits between a store and a server, records every statement, and can make exactly one step fail.
type wireProxy struct {
	*mysqlproxy.Proxy

	mu struct {
		sync.Mutex
		queries []string
	}
}

// through puts a proxy in front of d, and returns d as reached through it.
func (d database) through(t testing.TB) (*wireProxy, database) {
	t.Helper()
	p := &wireProxy{}
	through := d.with(t, func(c *mysql.Config) {
		var err error
		p.Proxy, err = mysqlproxy.Start("127.0.0.1:0", c.Addr)
		require.NoError(t, err)
		c.Addr = p.Addr()
	})
	t.Cleanup(p.Close)
	p.On(nil)
	return p, through
}

// proxied is a started store on d behind a proxy that has recorded nothing yet.
func (d database) proxied(t testing.TB, change ...func(*Options)) (*wireProxy, *Store) {
	t.Helper()
	p, through := d.through(t)
	s := through.startedStore(t, change...)
	p.seen()
	return p, s
}

// On sets what happens to statements from now on; nil passes all.
func (p *wireProxy) On(decide func(query string) mysqlproxy.Decision) {
	p.Proxy.On(func(query string) mysqlproxy.Decision {
		p.mu.Lock()
		p.mu.queries = append(p.mu.queries, query)
		p.mu.Unlock()
		if decide == nil {
			return mysqlproxy.Decision{}
		}
		return decide(query) // not under the lock: it may block
	})
}

func (p *wireProxy) always(decisions map[string]mysqlproxy.Decision) {
	p.On(func(query string) mysqlproxy.Decision {
		for prefix, v := range decisions {
			if strings.HasPrefix(query, prefix) {
				return v
			}
		}
		return mysqlproxy.Decision{}
	})
}

// once applies v to the first statement with the prefix only.
func (p *wireProxy) once(prefix string, v mysqlproxy.Decision) { p.inTurn(prefix, v) }

// inTurn applies the decisions, one each, to the next statements with the prefix.
func (p *wireProxy) inTurn(prefix string, decisions ...mysqlproxy.Decision) {
	next := make(chan mysqlproxy.Decision, len(decisions))
	for _, v := range decisions {
		next <- v
	}
	p.each(prefix, func() mysqlproxy.Decision {
		select {
		case v := <-next:
			return v
		default:
			return mysqlproxy.Decision{}
		}
	})
}

// each asks decide about every statement with the prefix and passes all others.
func (p *wireProxy) each(prefix string, decide func() mysqlproxy.Decision) {
	p.On(func(query string) mysqlproxy.Decision {
		if strings.HasPrefix(query, prefix) {
			return decide()
		}
		return mysqlproxy.Decision{}
	})
}

// hold blocks the first statement with the prefix until release or the end of the test.
func (p *wireProxy) hold(t testing.TB, prefix string) (held <-chan struct{}, release func()) {
	reached, goOn := make(chan struct{}), make(chan struct{})
	release = sync.OnceFunc(func() { close(goOn) })
	t.Cleanup(release)
	var first sync.Once
	p.each(prefix, func() mysqlproxy.Decision {
		first.Do(func() {
			close(reached)
			<-goOn
		})
		return mysqlproxy.Decision{}
	})
	return reached, release
}

// cancelledAt is a context that is canceled by a statement with the prefix.
func (p *wireProxy) cancelledAt(t testing.TB, prefix string) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	p.each(prefix, func() mysqlproxy.Decision {
		cancel()
		return mysqlproxy.Decision{}
	})
	return ctx
}

func (p *wireProxy) seen() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	queries := p.mu.queries
	p.mu.queries = nil
	return queries
}

func countQueries(queries []string, prefix string) (n int) {
	for _, query := range queries {
		if strings.HasPrefix(query, prefix) {
			n++
		}
	}
	return n
}
