package simulation

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Script is a schedule without random draws: what happens, in order. Running a seed records one. Lines can be removed:
// a line whose target does not exist does nothing, and without a line for a decision nothing goes wrong.
//
// As text it has a head and numbered lines, each a verb and its target:
//
//	event P …    writes a record to a partition of likes
//	run W n      a worker (process:partition) runs n steps, each to its next call of a model
//	poll W n     a worker's poll loop fetches n batches
//	work         all workers poll and run until they are idle
//	settle       groups start and finish rebalances; all steps and faults do this first too
//	next W "d"   the next time that W faces decision d, it is yes; "after n": n times later
//	assign G "…" the owners of the partitions, in order, in a group's next rebalance
//	ask          the reader is asked, and its answers are compared
//	damage P "d" unrepairable damage, after the drain; then events, if any
//	…            any of the faults, by name
//
// After the last line, or before damage, everything drains.
type Script struct {
	Comments   []string
	Partitions int32
	Processes  int
	MaxBatch   int
	lines      []line
}

// line is one thing that happens. The verb determines which fields are used.
type line struct {
	verb, who string
	n         int64
	how       string
	after     int64 // for verbNext
	event     *event
}

const (
	verbEvent  = "event"
	verbRun    = "run"
	verbPoll   = "poll"
	verbWork   = "work"
	verbSettle = "settle"
	verbNext   = "next"
	verbAssign = "assign"
	verbDamage = "damage"
	verbAsk    = "ask"
)

const head = "kudos simulation script 1: partitions %d, processes %d, batch %d"

func verbs() []string {
	list := []string{verbEvent, verbRun, verbPoll, verbWork, verbSettle, verbNext, verbAssign, verbDamage, verbAsk}
	for _, f := range slices.Concat(faults[1:], readerFaults) {
		list = append(list, f.name)
	}
	return list
}

// String formats a script for ParseScript.
func (s *Script) String() string {
	var b strings.Builder
	for _, c := range s.Comments {
		fmt.Fprintf(&b, "# %s\n", c)
	}
	fmt.Fprintln(&b, s.head())
	for i := range s.lines {
		fmt.Fprintf(&b, "%4d  %s\n", i+1, &s.lines[i])
	}
	return b.String()
}

func (l *line) String() string {
	text := l.verb
	if l.who != "" {
		text += " " + l.who
	}
	if l.event != nil {
		return text + " " + l.event.String()
	}
	if l.how != "" {
		text += " " + strconv.Quote(l.how)
	}
	if l.n != 0 {
		text += " " + strconv.FormatInt(l.n, 10)
	}
	if l.after != 0 {
		text += fmt.Sprintf(" after %d", l.after)
	}
	return text
}

// ParseScript parses the output of String.
func ParseScript(text string) (*Script, error) {
	s := &Script{}
	for row := range strings.Lines(text) {
		row = strings.TrimSpace(row)
		comment, isComment := strings.CutPrefix(row, "#")
		switch {
		case row == "":
		case isComment:
			s.Comments = append(s.Comments, strings.TrimSpace(comment))
		case s.Partitions == 0:
			if err := s.parseHead(row); err != nil {
				return nil, fmt.Errorf("parsing script: %q: %w", row, err)
			}
		default:
			l, err := parseLine(row)
			if err != nil {
				return nil, fmt.Errorf("parsing script: %q: %w", row, err)
			}
			s.lines = append(s.lines, l)
		}
	}
	if s.Partitions == 0 {
		return nil, fmt.Errorf("parsing script: no header like %q", (&Script{}).head())
	}
	return s, nil
}

func (s *Script) head() string { return fmt.Sprintf(head, s.Partitions, s.Processes, s.MaxBatch) }

func (s *Script) parseHead(row string) error {
	if _, err := fmt.Sscanf(row, head, &s.Partitions, &s.Processes, &s.MaxBatch); err != nil {
		return fmt.Errorf("not a header like %q: %w", (&Script{}).head(), err)
	}
	if s.Partitions < 1 || s.Processes < 1 || s.MaxBatch < 1 {
		return fmt.Errorf("partitions, processes and batch must be at least 1")
	}
	return nil
}

var wordForm = regexp.MustCompile(`([^ "]|"([^"\\]|\\.)*")+`)

func parseLine(row string) (line, error) {
	number, rest, _ := strings.Cut(row, " ")
	if _, err := strconv.Atoi(number); err != nil {
		return line{}, fmt.Errorf("a line must start with its number: %w", err)
	}
	rest = strings.TrimSpace(rest) + " "
	known := verbs()
	i := slices.IndexFunc(known, func(verb string) bool { return strings.HasPrefix(rest, verb+" ") })
	if i < 0 {
		return line{}, fmt.Errorf("unknown verb: must be one of %q", known)
	}
	l := line{verb: known[i]}
	rest = rest[len(l.verb):]
	words := wordForm.FindAllString(rest, -1)
	if left := strings.TrimSpace(wordForm.ReplaceAllString(rest, "")); left != "" {
		return line{}, fmt.Errorf("unterminated quoted text in %q", rest)
	}
	if l.verb == verbEvent {
		if len(words) == 0 {
			return line{}, fmt.Errorf("an event needs a partition")
		}
		var err error
		l.who = words[0]
		l.event, err = parseEvent(words[1:])
		return l, err
	}
	if err := l.parse(words); err != nil {
		return line{}, err
	}
	if l.verb == verbDamage && damageNamed(l.how) == nil {
		return line{}, fmt.Errorf("unknown damage %q", l.how)
	}
	return l, nil
}

func (l *line) parse(words []string) (err error) {
	for i := 0; i < len(words); i++ {
		word := words[i]
		n, notNumber := strconv.ParseInt(word, 10, 64)
		switch {
		case notNumber == nil:
			l.n = n
		case word == "after" && i+1 < len(words):
			i++
			if l.after, err = strconv.ParseInt(words[i], 10, 64); err != nil {
				return err
			}
		case word[0] == '"':
			if l.how, err = strconv.Unquote(word); err != nil {
				return err
			}
		case l.who == "":
			l.who = word
		default:
			return fmt.Errorf("unexpected %q", word)
		}
	}
	return nil
}

func (s *Script) size() (events, faults, steps int) {
	for i := range s.lines {
		switch l := &s.lines[i]; l.verb {
		case verbEvent:
			events++
		case verbRun:
			steps += int(max(1, l.n))
		case verbPoll, verbWork, verbSettle:
			steps++
		default:
			faults++
		}
	}
	return events, faults, steps
}

func (s *Script) summary() string {
	events, faults, steps := s.size()
	return fmt.Sprintf("%d lines: %d events, %d faults and decisions, %d steps; %d partitions, %d processes",
		len(s.lines), events, faults, steps, s.Partitions, s.Processes)
}

func (s *Script) merged() *Script {
	m := *s
	m.lines = nil
	for _, l := range s.lines {
		if k := len(m.lines) - 1; k >= 0 && l.verb == verbRun && m.lines[k].verb == verbRun && m.lines[k].who == l.who {
			m.lines[k].n += l.n
			continue
		}
		m.lines = append(m.lines, l)
	}
	return &m
}
