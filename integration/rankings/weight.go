package rankings

import (
	"math/big"
	"sort"
)

const one = 1_000_000 // what a like weighs that has not aged

// weight is what a like weighs at an age, in millionths: the largest whole w that is at most 10^6 · 2^(−age/halfLife). With
// both sides to the power of halfLife these are whole numbers: w^halfLife · 2^age ≤ 10^(6·halfLife).
func weight(age, halfLife int64) int64 {
	if age > 20*halfLife {
		return 0 // 2^20 > 10^6
	}
	if d := new(big.Int).GCD(nil, nil, big.NewInt(age), big.NewInt(halfLife)).Int64(); d > 1 {
		age, halfLife = age/d, halfLife/d
	}
	q := big.NewInt(halfLife)
	limit := new(big.Int).Exp(big.NewInt(one), q, nil)
	tooMuch := func(w int) bool {
		n := new(big.Int).Exp(big.NewInt(int64(w)), q, nil)
		return n.Lsh(n, uint(age)).Cmp(limit) > 0
	}
	return int64(sort.Search(one+1, tooMuch)) - 1
}
