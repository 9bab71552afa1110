package cli

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"golang.org/x/term"

	"kudos/ranker"
	"kudos/schema"
)

// trendingView shows rankings: each below the last, or all in one place.
type trendingView struct {
	w      io.Writer
	format output
	// inPlace: each ranking takes the place of the last. size is then the terminal's.
	inPlace bool
	size    func() (width, height int)

	any   bool
	lines int // of what stands on the terminal
	// last is what is shown, and drawn is when it was.
	last  *ranker.WrittenRanking
	drawn time.Time
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

// show shows a ranking as of now.
func (v *trendingView) show(r *ranker.WrittenRanking, now time.Time) error {
	var text []byte
	switch {
	case v.format == "json":
		text = append(bytes.Clone(r.Value), '\n')
	case v.inPlace:
		text = v.redrawn(r, now)
	default:
		if v.any {
			text = append(text, '\n')
		}
		text = append(text, trendingTable(r, now)...)
	}
	v.any, v.last, v.drawn = true, r, now
	if _, err := v.w.Write(text); err != nil {
		return fmt.Errorf("print the ranking: %w", err)
	}
	return nil
}

// refreshInterval is how often a terminal is told anew how old its ranking is.
const refreshInterval = time.Second

// refresh draws the same ranking again where that tells something new.
func (v *trendingView) refresh(now time.Time) error {
	if !v.inPlace || v.last == nil || now.Sub(v.drawn) < refreshInterval {
		return nil
	}
	return v.show(v.last, now)
}

// Of ECMA-48: one line up, and erase all that follows.
const (
	lineUp     = "\x1b[A"
	eraseBelow = "\r\x1b[J"
)

// redrawn is what replaces the ranking on the terminal. No line is wrapped and nothing
// scrolls out of the window, or the way back up would not be known.
func (v *trendingView) redrawn(r *ranker.WrittenRanking, now time.Time) []byte {
	width, height := v.size()
	lines := strings.Split(strings.TrimSuffix(string(trendingTable(r, now)), "\n"), "\n")
	if room := max(1, height-1); len(lines) > room { // the cursor stands on the last one
		hidden := len(lines) - room + 1
		lines = append(lines[:room-1], fmt.Sprintf("… %d more", hidden))
	}
	var text bytes.Buffer
	text.WriteString(strings.Repeat(lineUp, v.lines) + eraseBelow)
	for _, line := range lines {
		text.WriteString(cut(line, width) + "\n")
	}
	v.lines = len(lines)
	return text.Bytes()
}

// cut takes what is too wide off a line.
func cut(line string, width int) string {
	if utf8.RuneCountInString(line) <= width {
		return line
	}
	return string([]rune(line)[:max(0, width)])
}

// trendingTable is a ranking for a person.
func trendingTable(r *ranker.WrittenRanking, now time.Time) []byte {
	var text bytes.Buffer
	fmt.Fprintf(&text, "%s\n\n", trendingHeader(r, now))
	if len(r.Posts) == 0 {
		fmt.Fprintf(&text, "No post has likes enough in this window (%d).\n", r.MinLikes)
		return text.Bytes()
	}
	scored := r.HalfLife != ""
	t := tabwriter.NewWriter(&text, 0, 0, 3, ' ', tabwriter.AlignRight)
	row := func(score string, cells ...any) {
		format := "%v\t%v\t%v\t%v\t"
		if scored {
			format, cells = format+"%v\t", append(cells, score)
		}
		fmt.Fprintf(t, format+"\n", cells...) // into memory: nothing fails
	}
	row("SCORE", "RANK", "", "POST", "LIKES")
	for _, p := range r.Posts {
		row(p.Score.String(), p.Rank, change(p), p.PostID, p.Likes)
	}
	_ = t.Flush()
	return text.Bytes()
}

// change is how a post has moved since the ranking before.
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

// trendingHeader says what is shown, and how old it is.
func trendingHeader(r *ranker.WrittenRanking, now time.Time) string {
	parts := []string{schema.RankingKey(r.Region, r.Window)}
	switch {
	case r.To != schema.NoMinute:
		parts = append(parts, fmt.Sprintf("%s to %s UTC", clock(r.From, schema.NoMinute), clock(r.To, r.From)))
	case r.From != schema.NoMinute: // what was before had been compacted
		parts = append(parts, fmt.Sprintf("since %s UTC", clock(r.From, schema.NoMinute)))
	default:
		parts = append(parts, "all time")
	}
	if r.Watermark != schema.NoMinute {
		parts = append(parts, "watermark "+clock(r.Watermark, r.To))
	}
	return strings.Join(append(parts, "written "+age(now.Sub(r.At))), "   ")
}

// clock is a minute for a person, without the day where it is that of the minute beside it.
func clock(m, beside schema.Minute) string {
	const day, minute = "2006-01-02", "15:04"
	if beside != schema.NoMinute && m.Time().Format(day) == beside.Time().Format(day) {
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
