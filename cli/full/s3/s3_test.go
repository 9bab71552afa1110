package s3

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kudos/archive"
	"kudos/integration/stack"
	"kudos/stream"
)

func newStore(t *testing.T) (*stack.ObjectStore, archive.Options) {
	for name, value := range stack.Keys {
		t.Setenv(name, value)
	}
	server := stack.ObjectStoreForTest(t, "../../..", "likes")
	o := archive.DefaultOptions()
	o.Dir, o.S3Endpoint = "s3://likes/all/kudos", server.URL
	return server, o
}

func mustOpen(t *testing.T, o archive.Options) archive.Store {
	s, err := Open(o)
	require.NoError(t, err)
	return s
}

func read(t *testing.T, s archive.Store, name string) string {
	t.Helper()
	text, found, err := s.Read(name)
	require.NoError(t, err)
	require.True(t, found)
	return string(text)
}

func refused(t *testing.T, err error) {
	t.Helper()
	require.Equal(t, stream.CauseState, stream.FailureOf(err).Cause, "%v", err)
	require.ErrorContains(t, err, "another process writes to s3://likes/all/kudos")
}

func TestStore(t *testing.T) {
	server, o := newStore(t)
	a, b := mustOpen(t, o), mustOpen(t, o)

	t.Run("a new process takes over, and the former cannot", func(t *testing.T) {
		_, found, err := a.Read("_p3.json")
		require.NoError(t, err)
		require.False(t, found)
		require.NoError(t, a.Write("_p3.json", []byte(`{"next":1}`)))
		require.NoError(t, a.Write("_p3.json", []byte(`{"next":2}`)))
		refused(t, b.Write("_p3.json", []byte(`{"next":3}`))) // it has not read what is there
		require.Equal(t, `{"next":2}`, read(t, b, "_p3.json"))
		for range 2 {
			refused(t, a.Write("_p3.json", []byte(`{"next":3}`)))
			_, _, err = a.Read("_p3.json")
			refused(t, err)
		}
		require.Equal(t, `{"next":2}`, read(t, b, "_p3.json"))
		require.NoError(t, b.Write("_p3.json", []byte(`{"next":3}`)))
		require.Equal(t, `{"next":3}`, read(t, mustOpen(t, o), "_p3.json"))
		refused(t, b.Write("_p3.json", []byte(`{"next":4}`)))
		require.NoError(t, b.Remove("_p3.json"))
		refused(t, b.Write("_p3.json", []byte(`{"next":4}`)))
	})
	t.Run("a new process takes over before there is anything", func(t *testing.T) {
		for _, process := range []archive.Store{a, b} {
			_, found, err := process.Read("_p4.json")
			require.NoError(t, err)
			require.False(t, found)
		}
		refused(t, a.Write("_p4.json", []byte(`{"next":1}`)))
		require.NoError(t, b.Write("_p4.json", []byte(`{"next":1}`)))
		require.NoError(t, b.Remove("_p4.json"))
	})
	t.Run("what this process wrote before it reads a file is refused after that", func(t *testing.T) {
		require.NoError(t, a.Write("_p6.json", []byte(`{"next":1}`)))
		late := a.(*bucket).tags["_p6.json"] // of a request that is on its way
		require.Equal(t, `{"next":1}`, read(t, a, "_p6.json"))
		refused(t, a.(*bucket).put("_p6.json", late, []byte(`{"next":2}`)))
		require.Equal(t, `{"next":1}`, read(t, a, "_p6.json"))
		require.NoError(t, a.Remove("_p6.json"))
	})
	t.Run("a damaged file stays", func(t *testing.T) {
		require.NoError(t, a.(*bucket).put("_p5.json", "", []byte("{")))
		require.Equal(t, "{", read(t, b, "_p5.json"))
		require.NoError(t, b.Remove("_p5.json"))
	})
	t.Run("a file is there when it is finished, and moves once", func(t *testing.T) {
		f, temporary, err := a.Create("_p3-0.unfinished")
		require.NoError(t, err)
		_, err = f.Write([]byte("rows"))
		require.NoError(t, err)
		names, err := a.List(".", "_p3-")
		require.NoError(t, err)
		require.Empty(t, names)
		size, err := f.Finish()
		require.NoError(t, err)
		require.EqualValues(t, 4, size)
		require.ErrorIs(t, f.Close(), os.ErrClosed)
		names, err = b.List(".", "_p3-")
		require.NoError(t, err)
		require.Equal(t, []string{temporary}, names)
		for range 2 {
			require.NoError(t, b.Publish(temporary, "hour=2026-11-21T12/p3-0.parquet"))
		}
		names, err = a.List(".", "")
		require.NoError(t, err)
		require.Equal(t, []string{"hour=2026-11-21T12"}, names)
		names, err = a.List("hour=2026-11-21T12", "p3-")
		require.NoError(t, err)
		require.Equal(t, []string{"p3-0.parquet"}, names)
		text, err := os.ReadFile(filepath.Join(server.Files, "likes/all/kudos/hour=2026-11-21T12/p3-0.parquet"))
		require.NoError(t, err)
		require.Equal(t, "rows", string(text))
	})
	t.Run("a dropped file leaves nothing, and its name is not used again", func(t *testing.T) {
		t.Setenv("TMPDIR", t.TempDir())
		f, temporary, err := a.Create("_p3-1.unfinished")
		require.NoError(t, err)
		require.NoError(t, f.Close())
		f, next, err := a.Create("_p3-1.unfinished")
		require.NoError(t, err)
		require.NotEqual(t, temporary, next)
		require.NoError(t, f.Close())
		left, err := os.ReadDir(os.TempDir())
		require.NoError(t, err)
		require.Empty(t, left)
	})
	t.Run("errors name the object", func(t *testing.T) {
		_, err := Open(archive.Options{Dir: "s3://other", S3Endpoint: o.S3Endpoint})
		require.ErrorContains(t, err, "archive.dir: writing s3://other/_probe-")
		_, err = Open(archive.Options{Dir: "s3:///likes", S3Endpoint: o.S3Endpoint})
		require.ErrorContains(t, err, "is not s3://BUCKET/PREFIX")
		_, err = Open(archive.Options{Dir: "s3://likes/a#b", S3Endpoint: o.S3Endpoint})
		require.ErrorContains(t, err, "is not s3://BUCKET/PREFIX")
		_, err = Open(archive.Options{Dir: o.Dir, S3Endpoint: o.S3Endpoint + "/minio"})
		require.ErrorContains(t, err, "has a path")
	})
}

// A store that takes every write would let two processes write.
func TestStoreWithoutConditionsIsRefused(t *testing.T) {
	for name, value := range stack.Keys {
		t.Setenv(name, value)
	}
	for has, lacks := range map[string]string{"If-None-Match": "If-Match", "If-Match": "If-None-Match"} {
		written := false
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("ETag", `"1"`)
			w.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
			switch {
			case r.Method == http.MethodDelete:
				w.WriteHeader(http.StatusNoContent)
			case written && r.Header.Get(has) != "":
				w.WriteHeader(http.StatusPreconditionFailed)
			}
			written = true
		}))
		_, err := Open(archive.Options{Dir: "s3://likes/all", S3Endpoint: server.URL})
		require.ErrorContains(t, err, "the object store of s3://likes/all ignores "+lacks+":")
		server.Close()
	}
}
