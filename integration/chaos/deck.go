package chaos

import "math/rand/v2"

// deck deals the kinds of fault: each of them once, in random order, and then all of them again. So no kind comes much
// more often than another, however few faults there are.
type deck struct {
	random *rand.Rand
	kinds  []*kind
	left   []*kind
	dealt  int
}

func newDeck(seed uint64, kinds []*kind) *deck {
	return &deck{random: rand.New(rand.NewPCG(seed, 0)), kinds: kinds}
}

// deal gives the next n faults.
func (d *deck) deal(n int) []*fault {
	var faults []*fault
	for range n {
		if len(d.left) == 0 {
			d.left = append(d.left, d.kinds...)
			d.random.Shuffle(len(d.left), func(i, j int) { d.left[i], d.left[j] = d.left[j], d.left[i] })
		}
		k := d.left[0]
		d.left = d.left[1:]
		faults = append(faults, &fault{kind: k, number: d.dealt, random: rand.New(rand.NewPCG(d.random.Uint64(), d.random.Uint64()))})
		d.dealt++
	}
	return faults
}

// giveBack puts a fault that did not come about among the next ones.
func (d *deck) giveBack(k *kind) {
	d.left = append(d.left, k)
	i := d.random.IntN(len(d.left))
	last := len(d.left) - 1
	d.left[i], d.left[last] = d.left[last], d.left[i]
}
