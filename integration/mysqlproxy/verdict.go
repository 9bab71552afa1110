package mysqlproxy

// Verdict is what happens to a statement. The zero value lets it pass.
type Verdict struct {
	step   step
	number uint16
	query  string
	then   func(ok bool)
}

type step int

const (
	pass step = iota
	cutBefore
	cutAfter
	refuse
	rewrite
)

// CutBefore breaks the connection; the server never sees the statement.
func CutBefore() Verdict { return Verdict{step: cutBefore} }

// CutAfter breaks the connection once the server has done the statement and answered. then, if not nil, is told whether
// the answer was OK, which is what COMMIT gets when it has committed.
func CutAfter(then func(ok bool)) Verdict { return Verdict{step: cutAfter, then: then} }

// Refuse has the client get an error with this number; the server never sees the statement.
func Refuse(number uint16) Verdict { return Verdict{step: refuse, number: number} }

// Rewrite has the server get another statement.
func Rewrite(query string) Verdict { return Verdict{step: rewrite, query: query} }
