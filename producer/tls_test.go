package producer

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// certificateFiles are of a certificate for 127.0.0.1 that the client trusts.
func certificateFiles(t *testing.T) (cert, key string, client *http.Client) {
	t.Helper()
	server := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	pair := server.TLS.Certificates[0]
	secret, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	require.NoError(t, err)
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	require.NoError(t, os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]}), 0o600))
	require.NoError(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600))
	return cert, key, server.Client()
}

// With a certificate likes come over HTTPS, and over nothing else.
func TestTLS(t *testing.T) {
	cert, key, client := certificateFiles(t)
	r := start(t, func(o *Options) { o.TLSCert, o.TLSKey = cert, key })
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "https://"+r.Addr()+"/v1/posts/7/likes/9", nil)
	require.NoError(t, err)
	resp, err := client.Do(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusAccepted, resp.StatusCode)
	require.NotNil(t, resp.TLS)

	plain, err := r.trySend(http.MethodPut, "/v1/posts/7/likes/9", nil)
	require.True(t, err != nil || plain.status == http.StatusBadRequest, "plain HTTP: %d %s", plain.status, plain.body)
	r.consume(1)
	client.CloseIdleConnections()
}

// Without its certificate a producer does not start, and least of all in plain HTTP.
func TestTLSWithoutItsFiles(t *testing.T) {
	r := newRig(t, func(o *Options) { o.TLSCert, o.TLSKey = "/nowhere/cert.pem", "/nowhere/key.pem" })
	require.ErrorContains(t, r.Run(context.Background()), "producer.tls_cert: open /nowhere/cert.pem")
	require.Empty(t, r.Addr())
}
