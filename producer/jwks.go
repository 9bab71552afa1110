package producer

import (
	"crypto"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/go-jose/go-jose/v4"
)

// keySet are public keys by their ids.
type keySet map[string]publicKey

// publicKey verifies signatures. alg is the one algorithm that it is for, if it says so;
// which others fit its type is the verifier's to know.
type publicKey struct {
	key crypto.PublicKey
	alg string
}

// find returns the key for a token's kid and algorithm. A token without a kid can only
// mean the key of a set that has no other.
func (s keySet) find(kid, alg string) (crypto.PublicKey, bool) {
	key, ok := s[kid]
	if kid == "" && len(s) == 1 {
		for _, key = range s {
			ok = true
		}
	}
	if !ok || key.alg != "" && key.alg != alg {
		return nil, false
	}
	return key.key, true
}

// parseKeys reads a set. Keys of other kinds and for other uses are passed over, as the
// RFC wishes: an issuer may have those for others.
func parseKeys(raw []byte) (keySet, error) {
	var doc struct{ Keys []json.RawMessage }
	if err := json.Unmarshal(raw, &doc); err != nil {
		return nil, fmt.Errorf("is no JSON Web Key Set: %w", err)
	}
	keys := keySet{}
	var errs []error
	for i, raw := range doc.Keys {
		var j jose.JSONWebKey
		err := json.Unmarshal(raw, &j)
		if err == nil {
			err = checkKey(j)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("key %d: %w", i+1, err))
			continue
		}
		keys[j.KeyID] = publicKey{j.Public().Key, j.Algorithm}
	}
	if len(keys) == 0 {
		return nil, errors.Join(append([]error{errors.New("has no key that can be used")}, errs...)...)
	}
	return keys, nil
}

// checkKey refuses what is not to verify tokens with: RSA keys below 2048 bits (RFC 7518, 3.3), or larger than is quick.
func checkKey(j jose.JSONWebKey) error {
	if j.Use != "" && j.Use != "sig" {
		return fmt.Errorf("is not for signatures, but for %.20q", j.Use)
	}
	switch key := j.Public().Key.(type) {
	case nil:
		return errors.New("is not a public key")
	case *rsa.PublicKey:
		if bits := key.N.BitLen(); bits < 2048 || bits > 8192 {
			return fmt.Errorf("has %d bits, not 2048 to 8192", bits)
		}
	}
	return nil
}
