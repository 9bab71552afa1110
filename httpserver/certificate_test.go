package httpserver

import (
	"crypto/tls"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kudos/dev/testkit"
	"kudos/dev/testkit/apikit"
	"kudos/integration/stack"
)

// install copies a certificate and its key; "" keeps the existing file.
func (c *certificate) install(t *testing.T, cert, key string) {
	t.Helper()
	for to, from := range map[string]string{c.certFile: cert, c.keyFile: key} {
		if from != "" {
			text, err := os.ReadFile(from)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(to, text, 0o600))
		}
	}
}

// newTLSServer returns a server whose certificate files do not exist yet.
func newTLSServer(t *testing.T, log *slog.Logger) *Server {
	dir := t.TempDir()
	return NewServer(Config{
		Name: "reader", Addr: "127.0.0.1:0", ShutdownTimeout: patience,
		HTTP:    &http.Server{Handler: http.NotFoundHandler()},
		TLSCert: filepath.Join(dir, "cert.pem"), TLSKey: filepath.Join(dir, "key.pem"),
	}, log)
}

func shown(t *testing.T, addr string) tls.ConnectionState {
	t.Helper()
	conn, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2", "http/1.1"}})
	require.NoError(t, err)
	defer conn.Close()
	return conn.ConnectionState()
}

func holder(t *testing.T, addr string) string {
	t.Helper()
	return shown(t, addr).PeerCertificates[0].Subject.CommonName
}

// A new certificate is used without a restart; half of one, or none, changes nothing.
func TestCertificateIsReadAgain(t *testing.T) {
	log := &testkit.Output{}
	s := newTLSServer(t, slog.New(slog.NewTextHandler(log, nil)))
	c := s.certificate
	c.every = time.Millisecond
	a := stack.NewAuthority(t)
	first := a.IssueForTest(t, "first")
	c.install(t, first.Cert, first.Key)
	stop := run(t, s)
	require.Equal(t, "first", holder(t, s.Addr()))
	waitShown := func(name string) {
		t.Helper()
		require.Eventually(t, func() bool { return holder(t, s.Addr()) == name }, patience, time.Millisecond)
	}
	waitLogged := func(what string) {
		t.Helper()
		require.Eventually(t, func() bool { return strings.Count(log.String(), what) == 1 }, patience, time.Millisecond)
	}

	second := a.IssueForTest(t, "second")
	c.install(t, second.Cert, "")
	waitLogged("private key does not match public key")
	require.Equal(t, "first", holder(t, s.Addr()))
	c.install(t, "", second.Key)
	waitShown("second")

	require.NoError(t, os.Remove(c.certFile))
	waitLogged("no such file")
	require.Equal(t, "second", holder(t, s.Addr()))
	third := a.IssueForTest(t, "third")
	c.install(t, "", third.Key)
	c.install(t, third.Cert, "")
	waitShown("third")
	require.LessOrEqual(t, strings.Count(log.String(), "certificate reloaded"), 2,
		"an unchanged certificate must not be logged")
	require.NoError(t, stop())
}

func TestCertificateSpeaksNoOldTLS(t *testing.T) {
	s := newTLSServer(t, slog.New(slog.DiscardHandler))
	own := stack.NewAuthority(t).IssueForTest(t, "reader")
	s.certificate.install(t, own.Cert, own.Key)
	stop := run(t, s)
	old := &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}
	_, err := tls.Dial("tcp", s.Addr(), old)
	require.ErrorContains(t, err, "protocol version")
	require.Equal(t, "h2", shown(t, s.Addr()).NegotiatedProtocol)
	apikit.MustSend(t, nil, http.MethodGet, "http://"+s.Addr(), "").Require(http.StatusBadRequest) // plain HTTP
	require.NoError(t, stop())
}

func TestCertificateThatCannotBeLoaded(t *testing.T) {
	c := newTLSServer(t, slog.New(slog.DiscardHandler)).certificate
	load := func() error {
		s := newTLSServer(t, slog.New(slog.DiscardHandler))
		s.certificate = c
		ln, err := s.Listen(t.Context())
		require.NoError(t, err)
		err = s.Serve(t.Context(), ln)
		require.ErrorIs(t, ln.Close(), net.ErrClosed)
		return err
	}
	require.ErrorIs(t, load(), fs.ErrNotExist)
	require.ErrorContains(t, load(), "reader.tls_cert: ")
	a := stack.NewAuthority(t)
	c.install(t, a.IssueForTest(t, "one").Cert, "")
	require.ErrorContains(t, load(), "reader.tls_key: ")
	c.install(t, "", a.IssueForTest(t, "other").Key)
	require.ErrorContains(t, load(), "reader.tls_cert "+c.certFile+" and tls_key "+c.keyFile+": ")

	require.NoError(t, CheckPair("", ""))
	require.NoError(t, CheckPair("cert.pem", "key.pem"))
	require.ErrorContains(t, CheckPair("cert.pem", ""), "go together")
	require.ErrorContains(t, CheckPair("", "key.pem"), "go together")
}
