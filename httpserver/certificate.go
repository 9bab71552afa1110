package httpserver

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync/atomic"
	"time"
)

// watchEvery bounds how long a new certificate waits to be used. Its files are some KB.
const watchEvery = 10 * time.Second

// certificate is what a server shows of itself over TLS: two PEM files, which are read again when they change, so
// that a new certificate needs no restart.
type certificate struct {
	section           string // of the settings
	certFile, keyFile string
	every             time.Duration // between two looks at the files
	log               *slog.Logger

	current atomic.Pointer[tls.Certificate]
	read    [sha256.Size]byte // of the files as current has them; Serve's, and then watch's
}

// CheckPair says what is wrong with the settings of a certificate's files.
func CheckPair(certFile, keyFile string) error {
	if (certFile == "") != (keyFile == "") {
		return errors.New("tls_cert and tls_key go together; set both, or neither for plain HTTP")
	}
	return nil
}

// watch uses what is new in the files, until ctx ends. Files that cannot be used change nothing: one may be written,
// and the other not yet.
func (c *certificate) watch(ctx context.Context) {
	ticker := time.NewTicker(c.every)
	defer ticker.Stop()
	last := "" // failure, which is logged once
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		changed, err := c.reload()
		switch {
		case err == nil:
			last = ""
			if changed {
				c.log.Info("a new certificate is used", "not_after", c.current.Load().Leaf.NotAfter)
			}
		case err.Error() != last:
			last = err.Error()
			c.log.Warn("the certificate's files cannot be used; the one read before stays", "err", err)
		}
	}
}

func (c *certificate) reload() (changed bool, err error) {
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
