package simulation

// damage is what no rule repairs.
type damage struct {
	name string
}

var damages = []damage{{"none yet"}}

func (w *world) suffer() {}
