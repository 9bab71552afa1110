package sql

import (
	"strings"
	"sync"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"kudos/integration/mysqlproxy"
)

// wireProxy stands between a store and a server, notes every statement, and can fail exactly one step.
type wireProxy struct {
	*mysqlproxy.Proxy

	mu struct {
		sync.Mutex
		queries []string
	}
}

// through puts a proxy in front of d, and returns d as seen through it.
func (d database) through(t testing.TB) (*wireProxy, database) {
	t.Helper()
	config, err := mysql.ParseDSN(d.options.DSN)
	require.NoError(t, err)
	p := &wireProxy{}
	p.Proxy, err = mysqlproxy.Start("127.0.0.1:0", config.Addr)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	p.On(nil)
	config.Addr = p.Addr()
	d.options.DSN = config.FormatDSN()
	return p, d
}

// On sets what happens to the statements from now on; nil lets all pass.
func (p *wireProxy) On(judge func(query string) mysqlproxy.Verdict) {
	p.Proxy.On(func(query string) mysqlproxy.Verdict {
		p.mu.Lock()
		p.mu.queries = append(p.mu.queries, query)
		p.mu.Unlock()
		if judge == nil {
			return mysqlproxy.Verdict{}
		}
		return judge(query) // not under the lock: it may wait
	})
}

// once lets v happen to the first statement that begins with prefix, and to no other.
func (p *wireProxy) once(prefix string, v mysqlproxy.Verdict) {
	var done sync.Once
	p.On(func(query string) (answer mysqlproxy.Verdict) {
		if strings.HasPrefix(query, prefix) {
			done.Do(func() { answer = v })
		}
		return answer
	})
}

// hold stops the first statement that begins with prefix until release, or the end of the test.
func (p *wireProxy) hold(t testing.TB, prefix string) (held <-chan struct{}, release func()) {
	reached, goOn := make(chan struct{}), make(chan struct{})
	release = sync.OnceFunc(func() { close(goOn) })
	t.Cleanup(release)
	var first sync.Once
	p.On(func(query string) mysqlproxy.Verdict {
		if strings.HasPrefix(query, prefix) {
			first.Do(func() {
				close(reached)
				<-goOn
			})
		}
		return mysqlproxy.Verdict{}
	})
	return reached, release
}

// seen returns the statements since the last call.
func (p *wireProxy) seen() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	queries := p.mu.queries
	p.mu.queries = nil
	return queries
}
