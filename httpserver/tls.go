package httpserver

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"sync/atomic"
	"time"
)

// watchEvery bounds how long a new certificate waits to be used. Its files are some KB.
const watchEvery = 10 * time.Second

// Certificate is what a server shows of itself over TLS: two PEM files, which are read
// again when they change, so that a new certificate needs no restart. nil is plain HTTP.
type Certificate struct {
	section           string // of the settings
	certFile, keyFile string
	every             time.Duration // between two looks at the files
	log               *slog.Logger

	current atomic.Pointer[tls.Certificate]
	read    [sha256.Size]byte // of the files as current has them; Load's, and then Watch's
}

// CheckPair says what is wrong with the settings of a certificate's files.
func CheckPair(certFile, keyFile string) error {
	if (certFile == "") != (keyFile == "") {
		return errors.New("tls_cert and tls_key go together; set both, or neither for plain HTTP")
	}
	return nil
}

// NewCertificate makes the certificate of a section's settings, and reads nothing yet.
// Without files it is nil.
func NewCertificate(section, certFile, keyFile string, log *slog.Logger) *Certificate {
	if certFile == "" {
		return nil
	}
	return &Certificate{section: section, certFile: certFile, keyFile: keyFile, every: watchEvery, log: log}
}

// Load reads the files, and has the server show what they hold.
func (c *Certificate) Load(server *http.Server) error {
	if c == nil {
		return nil
	}
	if _, err := c.reload(); err != nil {
		return err
	}
	server.TLSConfig = &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.current.Load(), nil },
	}
	return nil
}

// Serve serves as the server would itself, over TLS if there is a certificate.
func (c *Certificate) Serve(server *http.Server, ln net.Listener) error {
	if c == nil {
		return server.Serve(ln)
	}
	return server.ServeTLS(ln, "", "")
}

// Watch uses what is new in the files, until ctx ends. What cannot be used changes
// nothing: the one file may be written, and the other not yet.
func (c *Certificate) Watch(ctx context.Context) {
	if c == nil {
		return
	}
	ticker := time.NewTicker(c.every)
	defer ticker.Stop()
	trouble := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		changed, err := c.reload()
		switch {
		case err == nil:
			trouble = ""
			if changed {
				c.log.Info("a new certificate is used", "not_after", c.current.Load().Leaf.NotAfter)
			}
		case err.Error() != trouble: // once, however long it lasts
			trouble = err.Error()
			c.log.Warn("the certificate's files cannot be used; the one read before stays", "err", err)
		}
	}
}

func (c *Certificate) reload() (changed bool, err error) {
	cert, err := os.ReadFile(c.certFile)
	if err != nil {
		return false, fmt.Errorf("%s.tls_cert: %w", c.section, err)
	}
	key, err := os.ReadFile(c.keyFile)
	if err != nil {
		return false, fmt.Errorf("%s.tls_key: %w", c.section, err)
	}
	read := sha256.Sum256(slices.Concat(cert, key))
	if read == c.read {
		return false, nil
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return false, fmt.Errorf("%s.tls_cert %s and tls_key %s: %w", c.section, c.certFile, c.keyFile, err)
	}
	c.current.Store(&pair)
	c.read = read
	return true, nil
}
