// Package regex replaces github.com/dolthub/go-icu-regex, which go-mysql-server uses for regular expressions: ICU as
// WebAssembly, with a runtime that compiles it, in every build of kudos. kudos has no such statements. MySQL clients
// get Go's expressions: no back-references and look-around, and `^` matches where the search begins.
package regex

import (
	"context"
	"regexp"
	"unicode/utf8"
)

// RegexFlags has ICU's values.
type RegexFlags uint32

const (
	RegexFlags_None             RegexFlags = 0
	RegexFlags_Unix_Lines       RegexFlags = 1 // Go's default
	RegexFlags_Case_Insensitive RegexFlags = 2
	RegexFlags_Multiline        RegexFlags = 8
	RegexFlags_Dot_All          RegexFlags = 32
)

// Regex is an expression and its text. Positions count characters, from 1.
type Regex = *expression

type expression struct {
	re   *regexp.Regexp
	text string
}

func CreateRegex(uint32) Regex                                            { return &expression{} }
func SetRegexLeakHandler(func())                                          {}
func (e *expression) Close() error                                        { return nil }
func (e *expression) SetMatchString(_ context.Context, text string) error { e.text = text; return nil }

func (e *expression) SetRegexString(_ context.Context, pattern string, flags RegexFlags) (err error) {
	for flag, group := range map[RegexFlags]string{
		RegexFlags_Case_Insensitive: "(?i)", RegexFlags_Multiline: "(?m)", RegexFlags_Dot_All: "(?s)",
	} {
		if flags&flag != 0 {
			pattern = group + pattern
		}
	}
	e.re, err = regexp.Compile(pattern)
	return err
}

// find returns the submatch indices of the matches from start on: of one occurrence, or of all for occurrence 0.
func (e *expression) find(start, occurrence int) [][]int {
	text := []rune(e.text)
	at := len(string(text[:min(start-1, len(text))]))
	found := e.re.FindAllStringSubmatchIndex(e.text[at:], -1)
	for _, groups := range found {
		for i := range groups {
			groups[i] += at // a group without a match stays empty
		}
	}
	if occurrence > 0 {
		return found[min(occurrence-1, len(found)):min(occurrence, len(found))]
	}
	return found
}

func (e *expression) Matches(context.Context, int, int) (bool, error) {
	return e.re.MatchString(e.text), nil
}

// IndexOf returns the start or the end of a match, or 0 without a match.
func (e *expression) IndexOf(_ context.Context, start, occurrence int, end bool) (int, error) {
	found := e.find(start, max(occurrence, 1))
	if len(found) == 0 {
		return 0, nil
	}
	at := found[0][0]
	if end {
		at = found[0][1]
	}
	return utf8.RuneCountInString(e.text[:at]) + 1, nil
}

func (e *expression) Substring(_ context.Context, start, occurrence int) (string, bool, error) {
	found := e.find(start, max(occurrence, 1))
	if len(found) == 0 {
		return "", false, nil
	}
	return e.text[found[0][0]:found[0][1]], true, nil
}

// group matches a reference to a group. Without braces Go would take letters after it as part of the name.
var group = regexp.MustCompile(`\$(\d)`)

func (e *expression) Replace(_ context.Context, with string, start, occurrence int) (string, error) {
	var out []byte
	done := 0
	for _, m := range e.find(start, occurrence) {
		out = append(out, e.text[done:m[0]]...)
		out = e.re.ExpandString(out, group.ReplaceAllString(with, "$${$1}"), e.text, m)
		done = m[1]
	}
	return string(append(out, e.text[done:]...)), nil
}
