package httpserver

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/gzip"
	"github.com/stretchr/testify/require"
)

// A large body is compressed by a coding that the client accepts, and is the same afterwards.
func TestCompress(t *testing.T) {
	large := bytes.Repeat([]byte(`{"post_id":"42","likes":3,"dislikes":0},`), 200)
	for _, c := range []struct{ accepted, coding string }{
		{"", ""}, {"identity", ""}, {"deflate, zstd", ""}, {"gzipped", ""}, {"*", ""},
		{"gzip", "gzip"}, {"GZIP", "gzip"}, {"deflate, gzip;q=0.5", "gzip"}, {"gzip ; q=1", "gzip"},
		{"gzip, deflate, br", "br"}, {"br;q=0.001,gzip", "br"}, {"br;q=0, gzip", "gzip"}, {"br; q=0.000, gzip;q=0", ""},
	} {
		for range 2 { // the second time with a used writer
			r := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
			r.Header.Set("Accept-Encoding", c.accepted)
			h := http.Header{}
			body := Compress(h, r, large)
			require.Equal(t, c.coding, h.Get("Content-Encoding"), c.accepted)
			var plain io.Reader = bytes.NewReader(body)
			switch c.coding {
			case "br":
				plain = brotli.NewReader(plain)
			case "gzip":
				unzipped, err := gzip.NewReader(plain)
				require.NoError(t, err)
				plain = unzipped
			}
			if c.coding != "" {
				require.Less(t, len(body), len(large)/10)
				require.Equal(t, strconv.Itoa(len(body)), h.Get("Content-Length"))
			}
			have, err := io.ReadAll(plain)
			require.NoError(t, err)
			require.Equal(t, string(large), string(have), c.accepted)
		}
	}
	r := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
	r.Header.Set("Accept-Encoding", "gzip, br")
	small, h := strings.Repeat("x", MinCompressed-1), http.Header{}
	require.Equal(t, small, string(Compress(h, r, []byte(small))))
	require.Empty(t, h)
}
