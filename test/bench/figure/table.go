package figure

import (
	"fmt"
	"math"
	"strings"
	"unicode/utf8"
)

// barWidth is how wide a bar is for a ratio of 1, and what is greater than barMost gets no wider one.
const (
	barWidth = 12
	barMost  = 1.5
)

// bar draws a ratio, in eighths of a character.
func bar(ratio float64) string {
	if ratio <= 0 {
		return ""
	}
	eighths := max(int(math.Round(min(ratio, barMost)*barWidth*8)), 1)
	text := strings.Repeat("█", eighths/8)
	if rest := eighths % 8; rest > 0 {
		text += string(rune('█' + 8 - rest)) // the blocks of eighths follow the full one, each narrower
	}
	if ratio > barMost {
		text += "…"
	}
	return text
}

func (s Spread) text(unit string) string {
	if s.Count > 1 {
		return fmt.Sprintf("%s %s (%s to %s)", Number(s.Median), unit, Number(s.Min), Number(s.Max))
	}
	return Number(s.Median) + " " + unit
}

func ratioText(ratio float64) string {
	switch {
	case ratio == 0:
		return ""
	case ratio < 0.1:
		return fmt.Sprintf("×%.3f", ratio)
	default:
		return fmt.Sprintf("×%.2f", ratio)
	}
}

// verdict says how a row stands to its promise.
func (r *Row) verdict() string {
	kept, said := r.Kept()
	switch {
	case !said:
		return ""
	case kept:
		return "kept"
	default:
		return "NOT KEPT"
	}
}

// Table is the report for a terminal.
func (r *Report) Table() string {
	lines := [][]string{{"what (median)", "agboxd", "beside", "ratio", "", "promise", ""}}
	for _, row := range r.Rows {
		if row.Absent != "" {
			lines = append(lines, []string{row.Name, "–", row.Absent})
			continue
		}
		beside := ""
		if row.Side != nil {
			beside = row.Side.text(row.Unit)
		}
		lines = append(lines, []string{row.Name, row.Ours.text(row.Unit), beside, ratioText(row.Ratio()), bar(row.Ratio()),
			row.Promise.text(row.Unit), row.verdict()})
		if row.Note != "" {
			lines = append(lines, []string{"    " + row.Note})
		}
	}
	return r.Machine.String() + "\n\n" + align(lines)
}

// align sets columns apart; a cell that is the last of its line takes no part in the width of its column.
func align(lines [][]string) string {
	var widths []int
	for _, line := range lines {
		for i, cell := range line[:len(line)-1] {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var text strings.Builder
	for _, line := range lines {
		var row strings.Builder
		for i, cell := range line {
			row.WriteString(cell)
			if i+1 < len(line) {
				row.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2))
			}
		}
		text.WriteString(strings.TrimRight(row.String(), " ") + "\n")
	}
	return text.String()
}
