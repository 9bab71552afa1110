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
func (p *wireProxy) On(judge func(query string) mysqlproxy.Verdict) {
	p.Proxy.On(func(query string) mysqlproxy.Verdict {
		p.mu.Lock()
		p.mu.queries = append(p.mu.queries, query)
		p.mu.Unlock()
		if judge == nil {
			return mysqlproxy.Verdict{}
		}
		return judge(query) // not under the lock: it may block
	})
}

// always applies the Verdicts to every statement with their prefix.
func (p *wireProxy) always(verdicts map[string]mysqlproxy.Verdict) {
	p.On(func(query string) mysqlproxy.Verdict {
		for prefix, v := range verdicts {
			if strings.HasPrefix(query, prefix) {
				return v
			}
		}
		return mysqlproxy.Verdict{}
	})
}

// once applies v to the first statement with the prefix only.
func (p *wireProxy) once(prefix string, v mysqlproxy.Verdict) { p.inTurn(prefix, v) }

// inTurn applies the Verdicts, one each, to the next statements with the prefix.
func (p *wireProxy) inTurn(prefix string, verdicts ...mysqlproxy.Verdict) {
	next := make(chan mysqlproxy.Verdict, len(verdicts))
	for _, v := range verdicts {
		next <- v
	}
	p.each(prefix, func() mysqlproxy.Verdict {
		select {
		case v := <-next:
			return v
		default:
			return mysqlproxy.Verdict{}
		}
	})
}

// each asks judge about every statement with the prefix and passes all others.
func (p *wireProxy) each(prefix string, judge func() mysqlproxy.Verdict) {
	p.On(func(query string) mysqlproxy.Verdict {
		if strings.HasPrefix(query, prefix) {
			return judge()
		}
		return mysqlproxy.Verdict{}
	})
}

// hold blocks the first statement with the prefix until release or the end of the test.
func (p *wireProxy) hold(t testing.TB, prefix string) (held <-chan struct{}, release func()) {
	reached, goOn := make(chan struct{}), make(chan struct{})
	release = sync.OnceFunc(func() { close(goOn) })
	t.Cleanup(release)
	var first sync.Once
	p.each(prefix, func() mysqlproxy.Verdict {
		first.Do(func() {
			close(reached)
			<-goOn
		})
		return mysqlproxy.Verdict{}
	})
	return reached, release
}

// cancelledAt is a context that is canceled by a statement with the prefix.
func (p *wireProxy) cancelledAt(t testing.TB, prefix string) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	p.each(prefix, func() mysqlproxy.Verdict {
		cancel()
		return mysqlproxy.Verdict{}
	})
	return ctx
}

// seen returns the statements since the last call.
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
