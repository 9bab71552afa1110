package chaos

import (
	"strings"
	"sync"

	"kudos/integration/mysqlproxy"
)

// commitProxy passes MySQL connections on, and can break one at the worst of moments: the server has committed and has
// answered, and the answer does not arrive.
type commitProxy struct {
	*mysqlproxy.Proxy

	mu struct {
		sync.Mutex
		armed int // COMMITs whose answers are still to be lost
		lost  int // those that were
	}
}

func newCommitProxy(listen, server string) (*commitProxy, error) {
	proxy, err := mysqlproxy.Start(listen, server)
	if err != nil {
		return nil, err
	}
	p := &commitProxy{Proxy: proxy}
	p.On(p.judge)
	return p, nil
}

// lose has the answers to the next n COMMITs lost.
func (p *commitProxy) lose(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.armed = n
}

// lost is how many answers were lost so far.
func (p *commitProxy) lost() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.lost
}

func (p *commitProxy) judge(query string) mysqlproxy.Verdict {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.armed == 0 || !strings.EqualFold(query, "COMMIT") {
		return mysqlproxy.Verdict{}
	}
	p.mu.armed--
	return mysqlproxy.CutAfter(func(ok bool) {
		if ok { // otherwise it is just a connection that breaks
			p.mu.Lock()
			defer p.mu.Unlock()
			p.mu.lost++
		}
	})
}
