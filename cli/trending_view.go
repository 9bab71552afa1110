package cli

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/term"

	"kudos/ranker"
	"kudos/schema"
)

// trendingView shows rankings, each below the last one or in its place.
type trendingView struct {
	w       io.Writer
	format  output
	inPlace bool // redraw in place, on a terminal of this size
	size    func() (width, height int)

	lines int                    // lines drawn on the terminal
	last  *ranker.WrittenRanking // nil: nothing shown yet
	drawn time.Time              // when last was drawn
}

func newTrendingView(w io.Writer, format output, inPlace bool) *trendingView {
	v := &trendingView{w: w, format: format, inPlace: inPlace && format != "json"}
	if f, ok := w.(*os.File); ok {
		v.size = func() (width, height int) {
			width, height, err := term.GetSize(int(f.Fd()))
			if err != nil {
				return 80, 24
			}
			return width, height
		}
	}
	return v
}

func (v *trendingView) show(r *ranker.WrittenRanking, now time.Time) error {
	var text []byte
	switch {
	case v.format == "json":
		text = append(bytes.Clone(r.Value), '\n')
	case v.inPlace:
		text = v.redrawn(r, now)
	default:
		if v.last != nil {
			text = append(text, '\n')
		}
		text = append(text, trendingTable(r, now)...)
	}
	v.last, v.drawn = r, now
	if _, err := v.w.Write(text); err != nil {
		return fmt.Errorf("printing the ranking: %w", err)
	}
	return nil
}

// refresh redraws the last ranking on a terminal once a second, to update its age.
func (v *trendingView) refresh(now time.Time) error {
	if !v.inPlace || v.last == nil || now.Sub(v.drawn) < time.Second {
		return nil
	}
	return v.show(v.last, now)
}

// ECMA-48 sequences: cursor one line up, and erase everything below.
const (
	lineUp     = "\x1b[A"
	eraseBelow = "\r\x1b[J"
)

// redrawn replaces the ranking on the terminal. Lines must not wrap or scroll: how far to move up would be unknown.
func (v *trendingView) redrawn(r *ranker.WrittenRanking, now time.Time) []byte {
	width, height := v.size()
	lines := strings.Split(strings.TrimSuffix(string(trendingTable(r, now)), "\n"), "\n")
	if most := max(1, height-1); len(lines) > most { // the cursor occupies the last line
		lines = append(lines[:most-1], fmt.Sprintf("… %d more", len(lines)-most+1))
	}
	var text bytes.Buffer
	text.WriteString(strings.Repeat(lineUp, v.lines) + eraseBelow)
	for _, line := range lines {
		runes := []rune(line)
		text.WriteString(string(runes[:min(len(runes), width)]) + "\n")
	}
	v.lines = len(lines)
	return text.Bytes()
}

func trendingTable(r *ranker.WrittenRanking, now time.Time) []byte {
	var text bytes.Buffer
	fmt.Fprintf(&text, "%s\n\n", trendingHeader(r, now))
	if len(r.Posts) == 0 {
		fmt.Fprintf(&text, "No post has enough likes in this window (minimum %d).\n", r.MinLikes)
		return text.Bytes()
	}
	scored := r.HalfLife != ""
	t := tabwriter.NewWriter(&text, 0, 0, 3, ' ', tabwriter.AlignRight)
	row := func(score string, cells ...any) {
		format := "%v\t%v\t%v\t%v\t"
		if scored {
			format, cells = format+"%v\t", append(cells, score)
		}
		fmt.Fprintf(t, format+"\n", cells...) // to memory: cannot fail
	}
	row("SCORE", "RANK", "", "POST", "LIKES")
	for _, p := range r.Posts {
		row(p.Score.String(), p.Rank, change(p), p.PostID, p.Likes)
	}
	_ = t.Flush()
	return text.Bytes()
}

func change(p schema.RankedPost) string {
	switch moved := p.PreviousRank - p.Rank; {
	case p.PreviousRank == 0:
		return "new"
	case moved > 0:
		return fmt.Sprintf("↑%d", moved)
	case moved < 0:
		return fmt.Sprintf("↓%d", -moved)
	}
	return "="
}

func trendingHeader(r *ranker.WrittenRanking, now time.Time) string {
	parts := []string{schema.RankingKey(r.Region, r.Window)}
	switch {
	case r.To != schema.NoMinute:
		parts = append(parts, fmt.Sprintf("%s to %s UTC", clock(r.From, schema.NoMinute), clock(r.To, r.From)))
	case r.From != schema.NoMinute: // earlier updates had been compacted
		parts = append(parts, fmt.Sprintf("since %s UTC", clock(r.From, schema.NoMinute)))
	default:
		parts = append(parts, "all time")
	}
	if r.Watermark != schema.NoMinute {
		parts = append(parts, "watermark "+clock(r.Watermark, r.To))
	}
	return strings.Join(append(parts, "written "+age(now.Sub(r.At))), "   ")
}

// clock formats a minute, without the day if that is the day of other.
func clock(m, other schema.Minute) string {
	const day, minute = "2006-01-02", "15:04"
	if other != schema.NoMinute && m.Time().Format(day) == other.Time().Format(day) {
		return m.Time().Format(minute)
	}
	return m.Time().Format(day + " " + minute)
}

func age(d time.Duration) string {
	switch {
	case d < time.Second: // or the clocks differ
		return "just now"
	case d < time.Minute:
		return fmt.Sprintf("%ds ago", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm ago", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh ago", d/time.Hour)
	}
	return fmt.Sprintf("%d days ago", d/(24*time.Hour))
}
