// Package tlsfiles makes the TLS configuration of client connections from PEM files. The files are read for each
// connection, so certificates can be replaced while the program runs.
package tlsfiles

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
)

// Files are the PEM files of client connections. All may be empty.
type Files struct {
	// Setting names the setting that enables TLS, for messages: kafka.tls. The others start with it: kafka.tls_ca.
	Setting string
	CA      string // certificates to verify servers with; "": the system's
	// Cert and Key are the client's own, if servers require it. Cert may also have the intermediate certificates.
	Cert, Key string
}

// Validate returns everything that does not fit together; it does not read the files. used says whether TLS is enabled.
func (f Files) Validate(used bool) error {
	var errs []error
	if !used && f.CA+f.Cert+f.Key != "" {
		errs = append(errs, fmt.Errorf("%[1]s is false, so nothing is encrypted and %[1]s_ca, %[1]s_cert and "+
			"%[1]s_key have no effect: set it to true, or remove them", f.Setting))
	}
	if (f.Cert == "") != (f.Key == "") {
		errs = append(errs, fmt.Errorf("%[1]s_cert and %[1]s_key belong together: set both, or neither", f.Setting))
	}
	return errors.Join(errs...)
}

// Check reads the files, if TLS is used.
func (f Files) Check(used bool) error {
	if !used {
		return nil
	}
	_, err := f.Config("")
	return err
}

// Config reads the files into a configuration. The server's certificate must be valid for server, a name or address.
func (f Files) Config(server string) (*tls.Config, error) {
	config := &tls.Config{ServerName: server, MinVersion: tls.VersionTLS12}
	if f.CA != "" {
		text, err := os.ReadFile(f.CA)
		if err != nil {
			return nil, fmt.Errorf("%s_ca: %w", f.Setting, err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s_ca: %s contains no PEM certificate", f.Setting, f.CA)
		}
	}
	if f.Cert != "" {
		own, err := tls.LoadX509KeyPair(f.Cert, f.Key)
		if err != nil {
			return nil, fmt.Errorf("%[1]s_cert %[2]s with %[1]s_key %[3]s: %[4]w", f.Setting, f.Cert, f.Key, err)
		}
		config.Certificates = []tls.Certificate{own}
	}
	return config, nil
}
