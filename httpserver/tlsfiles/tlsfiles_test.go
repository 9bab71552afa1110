package tlsfiles_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"kudos/httpserver/tlsfiles"
	"kudos/integration/stack"
)

func server(t *testing.T, a *stack.Authority) net.Listener {
	t.Helper()
	own := a.IssueForTest(t, "server")
	pair, err := tls.LoadX509KeyPair(own.Cert, own.Key)
	require.NoError(t, err)
	trusted, text := x509.NewCertPool(), read(t, a.CA())
	require.True(t, trusted.AppendCertsFromPEM(text))
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: []tls.Certificate{pair}, ClientCAs: trusted, ClientAuth: tls.RequireAndVerifyClientCert,
	})
	require.NoError(t, err)
	go answerAll(l)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	return l
}

func answerAll(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		_, _ = conn.Write([]byte{1}) // this does the handshake; rejected clients notice by themselves
		_ = conn.Close()
	}
}

func greet(f tlsfiles.Files, l net.Listener) error {
	config, err := f.Config("127.0.0.1")
	if err != nil {
		return err
	}
	conn, err := tls.Dial("tcp", l.Addr().String(), config)
	if err != nil {
		return err
	}
	_, err = conn.Read(make([]byte, 1)) // with TLS 1.3, our certificate is rejected only after the handshake
	return errors.Join(err, conn.Close())
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return text
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	require.NoError(t, os.WriteFile(to, read(t, from), 0o600))
}

// TestCertificatesAreReadForEachConnection: after both sides change their authority, the client only needs new files.
func TestCertificatesAreReadForEachConnection(t *testing.T) {
	before, after := stack.NewAuthority(t), stack.NewAuthority(t)
	dir := t.TempDir()
	f := tlsfiles.Files{
		Setting: "kafka.tls",
		CA:      filepath.Join(dir, "ca"), Cert: filepath.Join(dir, "cert"), Key: filepath.Join(dir, "key"),
	}
	install := func(a *stack.Authority) {
		own := a.IssueForTest(t, "client")
		copyFile(t, a.CA(), f.CA)
		copyFile(t, own.Cert, f.Cert)
		copyFile(t, own.Key, f.Key)
	}
	install(before)
	old, fresh := server(t, before), server(t, after)
	require.NoError(t, greet(f, old))
	require.ErrorAs(t, greet(f, fresh), new(x509.UnknownAuthorityError), "a server with an unknown authority")
	install(after)
	require.NoError(t, greet(f, fresh))
	require.ErrorAs(t, greet(f, old), new(x509.UnknownAuthorityError))
	f.Cert, f.Key = "", ""
	require.Error(t, greet(f, fresh), "the server requires a client certificate")
}

func TestServersAreVerifiedByName(t *testing.T) {
	a := stack.NewAuthority(t)
	own := a.IssueForTest(t, "client")
	config, err := tlsfiles.Files{CA: a.CA(), Cert: own.Cert, Key: own.Key}.Config("127.0.0.2")
	require.NoError(t, err)
	_, err = tls.Dial("tcp", server(t, a).Addr().String(), config)
	require.ErrorAs(t, err, new(x509.HostnameError))
}

func TestInvalidFileIsExplained(t *testing.T) {
	a := stack.NewAuthority(t)
	one, other := a.IssueForTest(t, "one"), a.IssueForTest(t, "other")
	nowhere := filepath.Join(t.TempDir(), "nowhere")
	wrong := func(f tlsfiles.Files, wants ...string) {
		t.Helper()
		f.Setting = "kafka.tls"
		_, err := f.Config("127.0.0.1")
		for _, want := range wants {
			require.ErrorContains(t, err, want)
		}
	}
	wrong(tlsfiles.Files{CA: nowhere}, "kafka.tls_ca", nowhere, "no such file")
	wrong(tlsfiles.Files{CA: one.Key}, "kafka.tls_ca", one.Key, "contains no PEM certificate")
	wrong(tlsfiles.Files{Cert: nowhere, Key: one.Key}, "kafka.tls_cert", nowhere, "no such file")
	wrong(tlsfiles.Files{Cert: one.Cert, Key: nowhere}, "kafka.tls_key", nowhere, "no such file")
	wrong(tlsfiles.Files{Cert: one.Cert, Key: other.Key},
		"kafka.tls_cert", one.Cert, "kafka.tls_key", other.Key, "does not match")
}

// TestFilesThatDoNotBelongTogether checks that they are rejected without being read.
func TestFilesThatDoNotBelongTogether(t *testing.T) {
	const unused, apart = "kafka.tls is false", "kafka.tls_cert and kafka.tls_key belong together"
	for _, c := range []struct {
		files tlsfiles.Files
		used  bool
		want  []string
	}{
		{tlsfiles.Files{}, false, nil},
		{tlsfiles.Files{}, true, nil},
		{tlsfiles.Files{CA: "a", Cert: "b", Key: "c"}, true, nil},
		{tlsfiles.Files{CA: "a"}, false, []string{unused}},
		{tlsfiles.Files{Cert: "a"}, true, []string{apart}},
		{tlsfiles.Files{Key: "a"}, false, []string{unused, apart}},
	} {
		c.files.Setting = "kafka.tls"
		err := c.files.Validate(c.used)
		if c.want == nil {
			require.NoError(t, err)
		}
		for _, want := range c.want {
			require.ErrorContains(t, err, want)
		}
	}
}
