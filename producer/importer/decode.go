package importer

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"kudos/schema"
)

// Format is the format of the lines.
type Format string

const (
	Auto   Format = "auto"
	CSV    Format = "csv"
	NDJSON Format = "ndjson"
)

// ParseFormat parses the value of --format.
func ParseFormat(s string) (Format, error) {
	if f := Format(s); slices.Contains([]Format{Auto, CSV, NDJSON}, f) {
		return f, nil
	}
	return "", fmt.Errorf("format %q is not one of auto, csv, ndjson", s)
}

type decoder func(line []byte, e *schema.Event) error

// newDecoder detects the format if it is auto, and reads the header of CSV.
func newDecoder(format Format, lines *lines) (decoder, Format, error) {
	if format == "" || format == Auto {
		first, err := lines.peek()
		if err != nil {
			return nil, "", fmt.Errorf("detecting the format: %w", err)
		}
		format = CSV
		if first == '{' {
			format = NDJSON
		}
	}
	if format == NDJSON {
		return decodeJSON, format, nil
	}
	columns, err := readHeader(lines)
	if err != nil {
		return nil, "", err
	}
	return columns.decode, format, nil
}

func decodeJSON(line []byte, e *schema.Event) error {
	line = bytes.TrimSpace(line)
	if line[0] != '{' {
		return errors.New("is not a JSON object")
	}
	return schema.DecodeEvent(nil, line, e)
}

// The columns of CSV, in any order; time_ms and region are optional.
const (
	colPostID = iota
	colUserID
	colAction
	colTimeMs
	colRegion
	columnCount
)

var columnNames = [columnCount]string{"post_id", "user_id", "action", "time_ms", "region"}

// columns decodes CSV lines. at is the index of each column's field, or -1.
type columns struct {
	at     [columnCount]int
	width  int
	fields [][]byte // reused from line to line
}

func readHeader(lines *lines) (*columns, error) {
	var head line
	for len(head.text) == 0 {
		var err error
		if head, err = lines.next(); errors.Is(err, io.EOF) {
			return nil, errors.New("is empty; CSV starts with a header: " + strings.Join(columnNames[:], ","))
		} else if err != nil {
			return nil, fmt.Errorf("reading the header: %w", err)
		}
	}
	c := &columns{at: [columnCount]int{-1, -1, -1, -1, -1}}
	if err := c.split(head.text); err != nil {
		return nil, fmt.Errorf("header in line %d: %w", lines.number, err)
	}
	c.width = len(c.fields)
	for i, field := range c.fields {
		col := slices.Index(columnNames[:], strings.ToLower(strings.TrimSpace(string(field))))
		if col < 0 {
			return nil, fmt.Errorf("line %d is %.80q, not a header of the columns %s; %.40q is not one of them",
				lines.number, head.text, strings.Join(columnNames[:], ", "), field)
		}
		if c.at[col] >= 0 {
			return nil, fmt.Errorf("header in line %d has the column %s twice", lines.number, columnNames[col])
		}
		c.at[col] = i
	}
	for _, col := range []int{colPostID, colUserID, colAction} {
		if c.at[col] < 0 {
			return nil, fmt.Errorf("header in line %d lacks the column %s", lines.number, columnNames[col])
		}
	}
	return c, nil
}

func (c *columns) split(text []byte) error {
	c.fields = c.fields[:0]
	if bytes.IndexByte(text, '"') >= 0 {
		fields, err := csv.NewReader(bytes.NewReader(text)).Read()
		if err != nil {
			return fmt.Errorf("is not CSV: %w", errors.Unwrap(err))
		}
		for _, f := range fields {
			c.fields = append(c.fields, []byte(f))
		}
		return nil
	}
	for more := true; more; {
		var field []byte
		field, text, more = bytes.Cut(text, []byte{','})
		c.fields = append(c.fields, field)
	}
	return nil
}

func (c *columns) decode(text []byte, e *schema.Event) error {
	if err := c.split(text); err != nil {
		return err
	}
	if len(c.fields) != c.width {
		return fmt.Errorf("has %d fields, the header has %d", len(c.fields), c.width)
	}
	*e = schema.Event{}
	var errs [3]error
	e.PostID, errs[0] = strconv.ParseUint(c.text(colPostID), 10, 64)
	e.UserID, errs[1] = strconv.ParseUint(c.text(colUserID), 10, 64)
	if t := c.text(colTimeMs); t != "" {
		e.TimeMs, errs[2] = strconv.ParseInt(t, 10, 64)
	}
	for i, col := range []int{colPostID, colUserID, colTimeMs} {
		if errs[i] != nil {
			return fmt.Errorf("%s: %.40q is not a whole number in range", columnNames[col], c.text(col))
		}
	}
	switch action := c.text(colAction); action { // as in JSON
	case "LIKE", "true":
		e.Action = schema.Like
	case "UNLIKE", "false":
		e.Action = schema.Unlike
	case "DISLIKE":
		e.Action = schema.Dislike
	default:
		return fmt.Errorf("action: %.40q is unknown; must be LIKE, UNLIKE, DISLIKE, true or false", action)
	}
	region, wellFormed := schema.ParseRegion(c.text(colRegion))
	e.Region, e.RegionMalformed = region, !wellFormed
	return e.Check()
}

func (c *columns) text(col int) string {
	if c.at[col] < 0 {
		return ""
	}
	return string(bytes.TrimSpace(c.fields[c.at[col]]))
}
