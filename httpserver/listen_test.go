package httpserver

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPoint(t *testing.T) {
	p := NewPoint("reader", "reader.http_addr", "127.0.0.1:0")
	require.Empty(t, p.Addr())
	ln, err := p.Listen(t.Context())
	require.NoError(t, err)
	defer ln.Close()
	require.NoError(t, p.Begin())
	p.Tell(ln)
	<-p.Listening()
	require.Equal(t, ln.Addr().String(), p.Addr())
	require.EqualError(t, p.Begin(), "reader: Run was called twice")

	_, err = NewPoint("reader", "reader.http_addr", p.Addr()).Listen(t.Context())
	require.ErrorContains(t, err, "reader: listening on "+p.Addr()+" (set reader.http_addr to a free host:port): ")
}
