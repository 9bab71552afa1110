package integration

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"

	"kudos/integration/mysqlproxy"
	"kudos/integration/stack"
	"kudos/integration/tier"
)

// galera is a system whose processes write to one node of a cluster at any time, by one address.
type galera struct {
	*system
	address string
	nodes   []*stack.Database
	direct  []*sqlx.DB // to each node
	proxy   *mysqlproxy.Proxy
}

func newGalera(t *testing.T) *galera {
	parallel(t, tier.Verify)
	const name = "kudos"
	g := &galera{address: stack.ReserveForTest(t), nodes: stack.GaleraForTest(t, 3)}
	g.system = newEmptySystem(t)
	require.NoError(t, g.nodes[0].CreateDatabase(t.Context(), name))
	for _, node := range g.nodes {
		config := node.Config(name)
		db, err := sqlx.Open("mysql", config.FormatDSN())
		require.NoError(t, err)
		t.Cleanup(func() { db.Close() })
		g.direct = append(g.direct, db)
		config.Addr = g.address
		g.dsn = config.FormatDSN()
	}
	g.processorArgs = []string{"--set", "mysql.single_writer=true", "--set", "processor.max_batch=300"}
	g.writeTo(0)
	t.Cleanup(func() { g.proxy.Close() })
	g.prepare()
	return g
}

// writeTo moves the address to a node, and first closes the connections to the previous one.
func (g *galera) writeTo(node int) {
	if g.proxy != nil {
		g.proxy.Close()
	}
	var err error
	g.proxy, err = mysqlproxy.Start(g.address, g.nodes[node].Address())
	require.NoError(g.t, err)
}

// applied is how many updates a node has applied; 0 while it is down or not ready.
func (g *galera) applied(node int) (n int64) {
	_ = g.direct[node].GetContext(g.t.Context(), &n, "SELECT SUM(next_seq) FROM applied_offset")
	return n
}

func (g *galera) waitApplied(node int, more int64) {
	waitFor(g.t, 3*time.Minute, "updates at another node", func() bool { return g.applied(node) > more })
}

// The node that is written to is killed, twice, and joins again after another has taken over. Then the address moves to
// a node that has not yet applied what the others have committed, so positions there are behind: none is counted twice.
// Audit and rebuild work there, too.
func TestSingleWriterOnGalera(t *testing.T) {
	g := newGalera(t)
	g.twoProcessors()
	stop := g.keepCounting(5)
	for killed := range 2 {
		next := killed + 1
		require.NoError(t, g.nodes[killed].Kill())
		before := g.applied(next)
		g.writeTo(next)
		g.waitApplied(next, before)
		require.NoError(t, g.nodes[killed].Start(t.Context()))
		g.waitApplied(killed, g.applied(next))
	}

	const lagging, ahead = 0, 2
	lock, err := g.direct[lagging].Connx(t.Context())
	require.NoError(t, err)
	defer lock.Close()
	_, err = lock.ExecContext(t.Context(), "LOCK TABLES like_count READ") // it cannot apply others' transactions
	require.NoError(t, err)
	g.waitApplied(ahead, g.applied(lagging)+20)
	g.writeTo(lagging)
	var swaps atomic.Int64
	g.proxy.On(func(query string) mysqlproxy.Decision {
		if strings.HasPrefix(query, "UPDATE applied_offset") {
			swaps.Add(1)
		}
		return mysqlproxy.Decision{}
	})
	waitFor(t, time.Minute, "compare-and-swaps from positions that are behind", func() bool { return swaps.Load() > 2 })
	require.Less(t, g.applied(lagging), g.applied(ahead))
	_, err = lock.ExecContext(t.Context(), "UNLOCK TABLES")
	require.NoError(t, err)
	g.waitApplied(lagging, g.applied(ahead))

	t.Logf("events %d", stop())
	g.drainExact(3 * time.Minute)
	g.command(g.on("audit")...)
	g.rebuild("--set", "mysql.single_writer=true")
	g.drainExact(time.Minute)
	for i, db := range g.direct {
		waitSame(t, g.nodes[i].Address(), g.mysqlCounts(), func() map[uint64]count { return countsIn(t, db) })
	}
}
