package window

import (
	"math"
	"math/big"

	"kudos/schema"
)

// weights are the weights of likes of age 0, 1, … n-1 buckets: 2^(-age/halfLife), rounded down to millionths. Integer
// arithmetic makes them equal on every machine, which floating point does not guarantee. Exponential decay shrinks all
// scores of a window by the same factor, so their order is independent of time (Cormode, Shkapenyuk, Srivastava, Xu:
// Forward Decay: A Practical Time Decay Model for Streaming Systems, ICDE 2009).
func weights(n, bucket, halfLife int64) []schema.Score {
	w := make([]schema.Score, n)
	for age := range w {
		w[age] = halved(int64(age)*bucket, halfLife)
	}
	return w
}

// halved is ⌊10⁶ · 2^(-p/q)⌋: the largest x with x^q · 2^p ≤ (10⁶)^q. Floating point only provides the first guess.
func halved(p, q int64) schema.Score {
	near := int64(float64(schema.ScoreOne) * math.Exp2(-float64(p)/float64(q)))
	if d := new(big.Int).GCD(nil, nil, big.NewInt(p), big.NewInt(q)).Int64(); d > 1 {
		p, q = p/d, q/d
	}
	exponent := big.NewInt(q)
	bound := new(big.Int).Exp(big.NewInt(int64(schema.ScoreOne)), exponent, nil)
	fits := func(x int64) bool {
		power := new(big.Int).Exp(big.NewInt(x), exponent, nil)
		return power.Lsh(power, uint(p)).Cmp(bound) <= 0
	}
	for !fits(near) {
		near--
	}
	for fits(near + 1) {
		near++
	}
	return schema.Score(near)
}
