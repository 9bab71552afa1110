package chaos

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDeck(t *testing.T) {
	var kinds []*kind
	for _, k := range allKinds() {
		kinds = append(kinds, &k)
	}
	names := func(seed uint64, n int) (names []string) {
		for _, f := range newDeck(seed, kinds).deal(n) {
			names = append(names, f.kind.name)
		}
		return names
	}
	require.Equal(t, names(1, 200), names(1, 200), "a seed decides all")
	require.NotEqual(t, names(1, 200), names(2, 200))

	d := newDeck(3, kinds)
	dealt := map[string]int{}
	for _, f := range d.deal(5 * len(kinds)) {
		dealt[f.kind.name]++
	}
	for _, name := range Kinds() {
		require.Equal(t, 5, dealt[name], name)
	}
	d.giveBack(kinds[7])
	require.Equal(t, kinds[7].name, d.deal(1)[0].kind.name, "what did not come about comes again")
}
