package audit

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"kudos/schema"
	"kudos/stream/kafka"
)

// Report is the result of an audit.
type Report struct {
	Equal      bool              `json:"equal"` // everything compared is the same and nothing else is wrong
	Deep       bool              `json:"deep"`  // the counts were recounted from the state table
	Partitions []PartitionReport `json:"partitions"`
	Posts      Section[PostRow]  `json:"posts"`
	Hours      Section[HourRow]  `json:"hours"`
	// State is about the state table itself: posts whose stored counts differ from the sum of their pairs.
	State Section[StateRow] `json:"state"`
	// Strays are rows of a partition that belongs to another shard. Nothing updates them, and nobody should read them.
	Strays   Section[StrayRow] `json:"strays"`
	Problems []string          `json:"problems"` // differences that do not concern a row
	Unknown  []string          `json:"unknown"`  // what could not be compared, and why
	Seconds  float64           `json:"seconds"`
}

// newReport sets empty lists, which would otherwise be null in JSON.
func newReport(deep bool) *Report {
	return &Report{Deep: deep, Partitions: []PartitionReport{}, Problems: []string{}, Unknown: []string{},
		Posts: Section[PostRow]{Rows: []PostRow{}}, Hours: Section[HourRow]{Rows: []HourRow{}},
		State: Section[StateRow]{Rows: []StateRow{}}, Strays: Section[StrayRow]{Rows: []StrayRow{}}}
}

// Section is one kind of rows: how many were compared, how many differ, and the first of those.
type Section[R any] struct {
	Compared  int64 `json:"compared"`
	Different int64 `json:"different"`
	Rows      []R   `json:"rows"`
}

// PartitionReport says as of which position a partition was compared.
type PartitionReport struct {
	Partition  int32  `json:"partition"`
	Shard      int32  `json:"shard"`       // with its counts
	Compared   bool   `json:"compared"`    // false if a problem or an unknown prevented it
	NextOffset int64  `json:"next_offset"` // with NextSeq, MySQL's position in like-updates
	NextSeq    uint64 `json:"next_seq"`
	StateSeq   uint64 `json:"state_seq,omitempty"` // the next one of the state table, in a deep audit
}

// PostRow is a post whose counts differ or are negative.
type PostRow struct {
	PostID    uint64 `json:"post_id,string"`
	Partition int32  `json:"partition"`
	Pair
}

// HourRow is a row of like_hourly that differs or is negative.
type HourRow struct {
	Hour      time.Time `json:"hour"`
	Region    string    `json:"region"`
	Partition int32     `json:"partition"`
	Pair
}

// StateRow is a post whose counts in the state table differ from the sum of its pairs.
type StateRow struct {
	PostID    uint64        `json:"post_id,string"`
	Partition int32         `json:"partition"`
	Stored    schema.Counts `json:"stored"`
	Pairs     schema.Counts `json:"pairs"`
}

// StrayRow is a row of a partition that belongs to another shard.
type StrayRow struct {
	Table     string        `json:"table"`
	Row       string        `json:"row"` // its post, or its hour and region
	Partition int32         `json:"partition"`
	Shard     int32         `json:"shard"`
	Belongs   int32         `json:"belongs"`
	MySQL     schema.Counts `json:"mysql"`
}

// Pair is two counts that should be equal.
type Pair struct {
	MySQL  schema.Counts `json:"mysql"`
	Stream schema.Counts `json:"stream"`
}

// difference describes how far MySQL is off.
func (p Pair) difference() string {
	off := fmt.Sprintf("%+d / %+d", p.MySQL.Likes-p.Stream.Likes, p.MySQL.Dislikes-p.Stream.Dislikes)
	if p.MySQL.Likes < 0 || p.MySQL.Dislikes < 0 || p.Stream.Likes < 0 || p.Stream.Dislikes < 0 {
		off += "  negative"
	}
	return off
}

// found adds a row that differs; limit bounds the rows kept.
func (s *Section[R]) found(row R, limit int) {
	s.Different++
	if len(s.Rows) < limit {
		s.Rows = append(s.Rows, row)
	}
}

// writeText prints a table of the rows that differ. title has their number; columns are separated by tabs.
func (s *Section[R]) writeText(t io.Writer, title, columns string, cells func(R) []any) {
	if s.Different == 0 {
		return
	}
	fmt.Fprintf(t, "%s (likes / dislikes):\n  %s\n", title, columns)
	for _, row := range s.Rows {
		c := cells(row)
		fmt.Fprintf(t, "  %v"+strings.Repeat("\t%v", len(c)-1)+"\n", c...)
	}
	if rest := s.Different - int64(len(s.Rows)); rest > 0 {
		fmt.Fprintf(t, "  … and %d more (--limit shows more)\n", rest)
	}
}

// Differences is the total number of differences.
func (r *Report) Differences() int64 {
	return r.Posts.Different + r.Hours.Different + r.State.Different + r.Strays.Different + int64(len(r.Problems))
}

// Store commits the result as an offset's metadata, for health pages (schema.AuditResult).
func (r *Report) Store(ctx context.Context, kafka kafka.Options, exit int, log *slog.Logger) error {
	metadata, _ := json.Marshal(schema.AuditResult{At: time.Now().UTC(), Deep: r.Deep, // cannot fail
		Differences: r.Differences(), NotCompared: len(r.Unknown), Exit: exit})
	cl, err := kafka.NewClient(log)
	if err != nil {
		return err
	}
	defer cl.Close()
	var offsets kadm.Offsets
	offsets.Add(kadm.Offset{Topic: schema.TopicState, LeaderEpoch: -1, Metadata: string(metadata)})
	return kadm.NewClient(cl).CommitAllOffsets(ctx, schema.GroupAudit, offsets)
}

// WriteText prints the report as text, and what to do next.
func (r *Report) WriteText(w io.Writer) error {
	err := r.WriteFindings(w)
	if next := r.next(); err == nil && next != "" {
		_, err = fmt.Fprintln(w, next)
	}
	return err
}

const hourFormat = "2006-01-02 15:04"

// WriteFindings prints the report without what to do next.
func (r *Report) WriteFindings(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	r.Posts.writeText(t, fmt.Sprintf("%d of %d posts differ", r.Posts.Different, r.Posts.Compared),
		"post\tpartition\tMySQL\tstream\tdifference",
		func(row PostRow) []any {
			return []any{row.PostID, row.Partition, row.MySQL, row.Stream, row.difference()}
		})
	r.Hours.writeText(t, fmt.Sprintf("%d of %d rows of like_hourly differ", r.Hours.Different, r.Hours.Compared),
		"hour (UTC)\tregion\tpartition\tMySQL\tstream\tdifference",
		func(row HourRow) []any {
			hour := row.Hour.UTC().Format(hourFormat)
			return []any{hour, row.Region, row.Partition, row.MySQL, row.Stream, row.difference()}
		})
	r.State.writeText(t,
		fmt.Sprintf("%d posts have counts in the state table that differ from their reactions", r.State.Different),
		"post\tpartition\tcounts\treactions",
		func(row StateRow) []any { return []any{row.PostID, row.Partition, row.Stored, row.Pairs} })
	r.Strays.writeText(t, fmt.Sprintf("%d rows are in a shard that does not own their partition", r.Strays.Different),
		"table\trow\tpartition\tin shard\tbelongs to\tMySQL",
		func(row StrayRow) []any {
			return []any{row.Table, row.Row, row.Partition, row.Shard, row.Belongs, row.MySQL}
		})
	for _, p := range r.Problems {
		fmt.Fprintf(t, "problem: %s\n", p)
	}
	for _, u := range r.Unknown {
		fmt.Fprintf(t, "unknown: %s\n", u)
	}
	fmt.Fprintln(t, r.summary())
	if err := t.Flush(); err != nil {
		return fmt.Errorf("printing the report: %w", err)
	}
	return nil
}

func (r *Report) summary() string {
	compared := 0
	for _, p := range r.Partitions {
		if p.Compared {
			compared++
		}
	}
	what := fmt.Sprintf("%d posts in %d of %d partitions", r.Posts.Compared, compared, len(r.Partitions))
	if r.Deep {
		what += fmt.Sprintf(" and %d rows of like_hourly", r.Hours.Compared)
	}
	took := time.Duration(r.Seconds * float64(time.Second)).Round(10 * time.Millisecond)
	switch {
	case r.Equal && len(r.Unknown) == 0:
		return fmt.Sprintf("MySQL matches the stream: %s compared in %s", what, took)
	case r.Equal:
		return fmt.Sprintf("no differences, but not everything could be compared: %s compared in %s", what, took)
	}
	return fmt.Sprintf("%d differences: %s compared in %s", r.Differences(), what, took)
}

// next is the next step for an operator.
func (r *Report) next() string {
	switch {
	case r.State.Different > 0:
		return "next: stop the processors and run `kudos rebuild --updates` (like-updates must be empty), " +
			"which also corrects the counts in the state table"
	case !r.Equal:
		return "next: run `kudos rebuild` to rebuild MySQL from the state table while processors run; " +
			"`kudos rebuild --dry-run` shows what it would change"
	case len(r.Unknown) > 0 && !r.Deep:
		return "next: run `kudos audit --deep` to recount from the state table"
	}
	return ""
}
