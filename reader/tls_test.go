package reader

import (
	"crypto/x509"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// With a certificate everything is answered over HTTPS, streams too, and over nothing else.
func TestReaderTLS(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	client, pair, dir := server.Client(), server.TLS.Certificates[0], t.TempDir()
	secret, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	require.NoError(t, err)
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	require.NoError(t, os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]}), 0o600))
	require.NoError(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600))

	r := startRole(t, func(o *Options) { o.TLSCert, o.TLSKey = cert, key })
	client.Transport.(*http.Transport).ForceAttemptHTTP2 = true
	for _, path := range []string{"/v1/posts/1/likes", "/v1/stream?post_ids=1"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+r.Addr()+path, nil)
		require.NoError(t, err)
		resp, err := client.Do(req)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, resp.StatusCode, path)
		begin := make([]byte, 6)
		_, err = io.ReadFull(resp.Body, begin)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
	}
	if plain, err := r.ask(http.MethodGet, "/v1/posts/1/likes"); err == nil {
		require.NoError(t, plain.Body.Close())
		require.Equal(t, http.StatusBadRequest, plain.StatusCode, "plain HTTP")
	}
	client.CloseIdleConnections()
}

// A certificate that is not there is no reason to answer in plain HTTP.
func TestReaderTLSWithoutItsFiles(t *testing.T) {
	r := newRole(t, func(o *Options) { o.TLSCert, o.TLSKey = "/nowhere/cert.pem", "/nowhere/key.pem" })
	require.ErrorContains(t, r.Run(t.Context()), "reader.tls_cert: open /nowhere/cert.pem")
	o := DefaultOptions()
	o.TLSKey = "key.pem"
	require.ErrorContains(t, o.Validate(), "reader.tls_cert: tls_cert and tls_key go together")
}
