package stack

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Authority is a test's own certificate authority. Its certificates are for 127.0.0.1, for servers and clients alike,
// in files that every account can read: databases run under another one.
type Authority struct {
	dir         string
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	issued      int64
}

// Certificate are the PEM files of one holder.
type Certificate struct {
	Cert, Key string
	Both      string // both in one file, as Kafka requires
}

const certificateLife = 24 * time.Hour

// NewAuthority returns an authority whose files are removed at the end of the test.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	dir, err := makeDir("", "kudos-authority-")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(dir), "clean up") })
	require.NoError(t, os.Chmod(dir, 0o755))
	a := &Authority{dir: dir}
	der, key, err := a.sign("authority of a test", func(c *x509.Certificate) {
		c.IsCA, c.BasicConstraintsValid = true, true
		c.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign
	})
	require.NoError(t, err, "create a certificate authority")
	a.key = key
	a.certificate, err = x509.ParseCertificate(der)
	require.NoError(t, err, "create a certificate authority")
	require.NoError(t, os.WriteFile(a.CA(), inPEM("CERTIFICATE", der), 0o644))
	return a
}

// sign creates a key and a certificate for it; set defines its uses. The first certificate is the authority's own.
func (a *Authority) sign(name string, set func(*x509.Certificate)) (der []byte, key *ecdsa.PrivateKey, err error) {
	if key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, nil, err
	}
	a.issued++
	certificate := &x509.Certificate{
		SerialNumber: big.NewInt(a.issued),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-time.Hour), // clocks differ
		NotAfter:     time.Now().Add(certificateLife),
	}
	set(certificate)
	der, err = x509.CreateCertificate(rand.Reader, certificate, cmp.Or(a.certificate, certificate), key.Public(),
		cmp.Or(a.key, key))
	return der, key, err
}

// CA is the file with the authority's own certificate.
func (a *Authority) CA() string { return filepath.Join(a.dir, "ca.pem") }

// Issue writes a certificate for a holder. It overwrites an earlier one with the same name.
func (a *Authority) Issue(name string) (c Certificate, err error) {
	der, key, err := a.sign(name, func(c *x509.Certificate) {
		c.KeyUsage = x509.KeyUsageDigitalSignature
		c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
		c.IPAddresses, c.DNSNames = []net.IP{net.IPv4(127, 0, 0, 1)}, []string{"localhost"}
	})
	if err != nil {
		return c, err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return c, err
	}
	at := filepath.Join(a.dir, name)
	c = Certificate{Cert: at + ".pem", Key: at + ".key", Both: at + "-both.pem"}
	certPEM, keyPEM := inPEM("CERTIFICATE", der), inPEM("PRIVATE KEY", secret)
	return c, errors.Join(
		os.WriteFile(c.Cert, certPEM, 0o644), os.WriteFile(c.Key, keyPEM, 0o644),
		os.WriteFile(c.Both, slices.Concat(keyPEM, certPEM), 0o644))
}

// IssueForTest calls Issue, and fails the test on an error.
func (a *Authority) IssueForTest(t testing.TB, name string) Certificate {
	t.Helper()
	c, err := a.Issue(name)
	require.NoError(t, err, "issue a certificate to %s", name)
	return c
}

func inPEM(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
