package httpserver

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io/fs"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const patience = 20 * time.Second

// files are those of a certificate.
type files struct{ cert, key string }

func newFiles(t *testing.T) files {
	dir := t.TempDir()
	return files{filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")}
}

// pair is a new certificate and its key.
func pair(t *testing.T, serial int64) (cert, key []byte) {
	t.Helper()
	secret, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &secret.PublicKey, secret)
	require.NoError(t, err)
	secretDER, err := x509.MarshalPKCS8PrivateKey(secret)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secretDER})
}

func write(t *testing.T, path string, content []byte) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, content, 0o600))
}

// logged is a log that may be read while it is written.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logged) count(what string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Count(l.text.Bytes(), []byte(what))
}

// serve serves with the certificate until the test ends, and returns where.
func serve(t *testing.T, c *Certificate) (addr string) {
	t.Helper()
	server := &http.Server{Handler: http.NotFoundHandler(), ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelWarn)}
	require.NoError(t, c.Load(server))
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var both sync.WaitGroup
	both.Go(func() { c.Watch(ctx) })
	both.Go(func() {
		if err := c.Serve(server, ln); !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		cancel()
		require.NoError(t, server.Close())
		both.Wait()
	})
	return ln.Addr().String()
}

// shown is what a server shows of itself.
func shown(t *testing.T, addr string) tls.ConnectionState {
	t.Helper()
	conn, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2", "http/1.1"}})
	require.NoError(t, err)
	defer conn.Close()
	return conn.ConnectionState()
}

func serialOf(t *testing.T, addr string) int64 {
	t.Helper()
	return shown(t, addr).PeerCertificates[0].SerialNumber.Int64()
}

// A new certificate is shown without a restart; half of one, or none, changes nothing.
func TestCertificateIsReadAgain(t *testing.T) {
	f, log := newFiles(t), &logged{}
	cert1, key1 := pair(t, 1)
	write(t, f.cert, cert1)
	write(t, f.key, key1)
	c := NewCertificate("reader", f.cert, f.key, slog.New(slog.NewTextHandler(log, nil)))
	c.every = time.Millisecond
	addr := serve(t, c)
	require.EqualValues(t, 1, serialOf(t, addr))

	cert2, key2 := pair(t, 2)
	write(t, f.cert, cert2)
	require.Eventually(t, func() bool { return log.count("private key does not match public key") == 1 }, patience, time.Millisecond)
	require.EqualValues(t, 1, serialOf(t, addr))
	write(t, f.key, key2)
	require.Eventually(t, func() bool { return serialOf(t, addr) == 2 }, patience, time.Millisecond)

	require.NoError(t, os.Remove(f.cert))
	require.Eventually(t, func() bool { return log.count("no such file") == 1 }, patience, time.Millisecond)
	require.EqualValues(t, 2, serialOf(t, addr))
	cert3, key3 := pair(t, 3)
	write(t, f.key, key3)
	write(t, f.cert, cert3)
	require.Eventually(t, func() bool { return serialOf(t, addr) == 3 }, patience, time.Millisecond)
	require.LessOrEqual(t, log.count("a new certificate is used"), 2, "what is not new is not told of")
}

// TLS begins at 1.2; who can speaks HTTP/2.
func TestCertificateSpeaksNoOldTLS(t *testing.T) {
	f := newFiles(t)
	cert, key := pair(t, 1)
	write(t, f.cert, cert)
	write(t, f.key, key)
	addr := serve(t, NewCertificate("reader", f.cert, f.key, slog.New(slog.DiscardHandler)))
	_, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11})
	require.ErrorContains(t, err, "protocol version")
	require.Equal(t, "h2", shown(t, addr).NegotiatedProtocol)
}

// What is wrong with the files names their settings.
func TestCertificateThatCannotBeLoaded(t *testing.T) {
	f := newFiles(t)
	load := func() error {
		return NewCertificate("reader", f.cert, f.key, slog.New(slog.DiscardHandler)).Load(&http.Server{})
	}
	require.ErrorIs(t, load(), fs.ErrNotExist)
	require.ErrorContains(t, load(), "reader.tls_cert: ")
	cert, _ := pair(t, 1)
	write(t, f.cert, cert)
	require.ErrorContains(t, load(), "reader.tls_key: ")
	_, key := pair(t, 2)
	write(t, f.key, key)
	require.ErrorContains(t, load(), "reader.tls_cert "+f.cert+" and tls_key "+f.key+": ")

	require.Nil(t, NewCertificate("reader", "", "", nil), "plain HTTP")
	require.NoError(t, CheckPair("", ""))
	require.NoError(t, CheckPair("cert.pem", "key.pem"))
	require.ErrorContains(t, CheckPair("cert.pem", ""), "go together")
	require.ErrorContains(t, CheckPair("", "key.pem"), "go together")
}
