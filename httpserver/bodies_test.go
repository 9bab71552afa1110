package httpserver

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"kudos/dev/testkit"

	"github.com/stretchr/testify/require"
)

func TestReadBody(t *testing.T) {
	for _, size := range []int{0, 1, firstBytes - 1, firstBytes, firstBytes + 1, 2 * firstBytes, 2_999, 3_000} {
		b := NewBodyReader(3_000, 1)
		want := bytes.Repeat([]byte("x"), size)
		request := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(want))
		got, err := b.Read(httptest.NewRecorder(), request, one)
		require.NoError(t, err, "%d bytes", size)
		require.Equal(t, string(want), string(got))
		require.LessOrEqual(t, cap(got), 3_001)
		require.Zero(t, b.mu.held)
		require.Zero(t, b.mu.oldest.Len())
	}
}

func TestReadBodyFails(t *testing.T) {
	b := NewBodyReader(1_000, 1)
	read := func(body io.Reader) error {
		got, err := b.Read(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", body), one)
		require.Nil(t, got)
		require.Zero(t, b.mu.held)
		require.Zero(t, b.mu.oldest.Len())
		return err
	}
	var tooLarge *http.MaxBytesError
	require.ErrorAs(t, read(strings.NewReader(strings.Repeat("x", 1_001))), &tooLarge)
	require.EqualValues(t, 1_000, tooLarge.Limit)
	late := io.MultiReader(strings.NewReader("x"), iotest.ErrReader(os.ErrDeadlineExceeded))
	require.ErrorIs(t, read(late), os.ErrDeadlineExceeded)
	require.ErrorIs(t, read(iotest.ErrReader(io.ErrUnexpectedEOF)), io.ErrUnexpectedEOF)
}

var one = netip.MustParseAddr("192.0.2.1")

type served struct {
	*BodyReader
	*httptest.Server
	t     *testing.T
	ended map[string]chan error
}

func serveBodies(t *testing.T, b *BodyReader, http2 bool, paths ...string) *served {
	t.Helper()
	s := &served{BodyReader: b, t: t, ended: map[string]chan error{}}
	for _, path := range paths {
		s.ended[path] = make(chan error, 1)
	}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := b.Read(w, r, Networks{netip.MustParsePrefix("127.0.0.0/8")}.ClientOf(r))
		s.ended[r.URL.Path] <- err
		if err != nil {
			w.WriteHeader(http.StatusRequestTimeout)
		}
	}))
	s.EnableHTTP2 = http2
	if http2 {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.CloseClientConnections)
	t.Cleanup(s.Close)
	return s
}

// begin sends the beginning of a request's body. The caller ends the body.
func (s *served) begin(path string, size int) *io.PipeWriter {
	s.t.Helper()
	body, rest := io.Pipe()
	s.t.Cleanup(func() { _ = rest.CloseWithError(io.ErrUnexpectedEOF) })
	request, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.URL+path, body)
	require.NoError(s.t, err)
	go func() {
		if answer, err := s.Client().Do(request); err == nil {
			_ = answer.Body.Close()
		}
	}()
	_, err = rest.Write(bytes.Repeat([]byte("x"), size))
	require.NoError(s.t, err)
	return rest
}

func (s *served) wait(path string) error {
	s.t.Helper()
	return testkit.Receive(s.t, s.ended[path], path+": the body must be read or dropped")
}

// Beyond the bound the oldest body is given up, in both versions of HTTP, although its client is silent.
func TestOldestUnfinishedBodyIsDropped(t *testing.T) {
	for name, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			s := serveBodies(t, NewBodyReader(1_000, 2), http2, "/1", "/2", "/3")
			s.begin("/1", 600)
			s.holds(1_001) // like a complete body
			second := s.begin("/2", 600)
			s.holds(2 * 1_001)
			third := s.begin("/3", 1)
			require.ErrorIs(t, s.wait("/1"), errGivenUp)
			s.holds(1_001 + firstBytes)
			for path, rest := range map[string]*io.PipeWriter{"/2": second, "/3": third} {
				require.NoError(t, rest.Close())
				require.NoError(t, s.wait(path))
			}
			s.holds(0)
		})
	}
}

func (s *served) holds(bytes int64) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.mu.held == bytes
	}, patience, time.Millisecond)
}

// A body that is given up just as it ends is not used: its connection is past its deadline.
func TestUnacknowledgedAtShutdown(t *testing.T) {
	b := NewBodyReader(1_000, 1)
	w := httptest.NewRecorder()
	last := readerFunc(func(p []byte) (int, error) {
		b.hold(b.enter(one, func() {}), 1_001)
		return copy(p, "x"), io.EOF
	})
	_, err := b.Read(w, httptest.NewRequest(http.MethodPost, "/", last), one)
	require.ErrorIs(t, err, errGivenUp)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded, "the error must count as a timeout")
	require.Equal(t, "close", w.Header().Get("Connection"))
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// No setting overflows the bound.
func TestReaderOfHugeBodies(t *testing.T) {
	for _, maxBytes := range []int64{1 << 62, 1<<63 - 1} {
		b := NewBodyReader(maxBytes, 1_000)
		request := httptest.NewRequest(http.MethodPost, "/", strings.NewReader("hello"))
		got, err := b.Read(httptest.NewRecorder(), request, one)
		require.NoError(t, err)
		require.Equal(t, "hello", string(got))
	}
}
