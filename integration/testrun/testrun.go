// Package testrun lets a test run something until its context ends, and inspect its metrics.
package testrun

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"kudos/integration/mysqlproxy"
)

// Start calls run, until stop is called or the test ends. run must then return within patience and without an error.
func Start(t testing.TB, what string, patience time.Duration, run func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-ended:
			assert.NoError(t, err, what)
		case <-time.After(patience):
			t.Errorf("%s did not stop within %s", what, patience)
		}
	})
	t.Cleanup(stop)
	return stop
}

// Series returns the series of a metric that have all of these label values.
func Series(t testing.TB, from prometheus.Gatherer, name string, labels ...string) (found []*dto.Metric) {
	t.Helper()
	families, err := from.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() == name {
			found = f.GetMetric()
		}
	}
	return slices.DeleteFunc(found, func(m *dto.Metric) bool {
		return slices.ContainsFunc(labels, func(label string) bool {
			return !slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetValue() == label })
		})
	})
}

// Metric sums up those series: counters, gauges, and the sample counts of histograms.
func Metric(t testing.TB, from prometheus.Gatherer, name string, labels ...string) (sum float64) {
	t.Helper()
	for _, m := range Series(t, from, name, labels...) {
		sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
	}
	return sum
}

// ProxyMySQL starts a proxy for the duration of the test, and changes the DSN to go through it.
func ProxyMySQL(t testing.TB, dsn *string) *mysqlproxy.Proxy {
	t.Helper()
	config, err := mysql.ParseDSN(*dsn)
	require.NoError(t, err)
	p, err := mysqlproxy.Start("127.0.0.1:0", config.Addr)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	config.Addr = p.Addr()
	*dsn = config.FormatDSN()
	return p
}
