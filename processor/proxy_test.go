package processor_test

import (
	"strings"
	"sync"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"kudos/integration/mysqlproxy"
)

// proxy stands between the processors and MySQL. Beside keeping the server away, it can
// break connections around a COMMIT.
type proxy struct {
	*mysqlproxy.Proxy

	mu struct {
		sync.Mutex
		commits []mysqlproxy.Verdict // what happens to the next COMMITs
	}
}

// throughProxy has all processors that are started from now on reach MySQL through a
// proxy.
func (s *system) throughProxy() *proxy {
	config, err := mysql.ParseDSN(s.mysql.DSN)
	require.NoError(s.t, err)
	p := &proxy{}
	p.Proxy, err = mysqlproxy.Start("127.0.0.1:0", config.Addr)
	require.NoError(s.t, err)
	s.t.Cleanup(p.Close)
	p.On(p.judge)
	config.Addr = p.Addr()
	s.mysql.DSN = config.FormatDSN()
	return p
}

// cutCommits says what happens to the next COMMITs, one after another.
func (p *proxy) cutCommits(cuts ...mysqlproxy.Verdict) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.commits = cuts
}

// pending is how many COMMITs have not come yet.
func (p *proxy) pending() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.mu.commits)
}

func (p *proxy) judge(query string) mysqlproxy.Verdict {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !strings.EqualFold(query, "COMMIT") || len(p.mu.commits) == 0 {
		return mysqlproxy.Verdict{}
	}
	v := p.mu.commits[0]
	p.mu.commits = p.mu.commits[1:]
	return v
}
