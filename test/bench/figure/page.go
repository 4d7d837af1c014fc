package figure

import (
	"errors"
	"fmt"
	"strings"
)

// A page is written by people but for what stands between these lines.
const (
	pageBegin = "<!-- figures: make bench writes what follows -->"
	pageEnd   = "<!-- end of figures -->"
)

// ErrNoPlace is a page without the two lines that figures go between.
var ErrNoPlace = errors.New("figure: the page has no place for figures: it needs the lines " + pageBegin + " and " + pageEnd)

// Page puts the report, with its picture, into a page in place of the one that is there.
func (r *Report) Page(page, picture string) (string, error) {
	before, rest, begun := strings.Cut(page, pageBegin)
	_, after, ended := strings.Cut(rest, pageEnd)
	if !begun || !ended {
		return "", ErrNoPlace
	}
	return before + pageBegin + "\n" + r.markdown(picture) + pageEnd + after, nil
}

func (r *Report) markdown(picture string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s, agboxd %s: %s.\n", r.Taken.UTC().Format("2006-01-02 15:04 UTC"), r.Version, r.Machine)
	if picture != "" {
		fmt.Fprintf(&b, "\n![Each step in the time that it takes by the Engine API alone](%s)\n", picture)
	}
	b.WriteString("\n| what (median; least to most) | agboxd | beside | ratio | promise |\n|---|---|---|---|---|\n")
	for _, row := range r.Rows {
		if row.Absent != "" {
			fmt.Fprintf(&b, "| %s | – | %s | | |\n", row.Name, row.Absent)
			continue
		}
		beside := ""
		if row.Side != nil {
			beside = row.Side.text(row.Unit) + ", " + row.Than
		}
		promise := row.Promise.text(row.Unit)
		if kept, said := row.Kept(); said && !kept {
			promise += " **not kept**"
		}
		name := row.Name
		if row.Note != "" {
			name += "; " + row.Note
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", name, row.Ours.text(row.Unit), beside, ratioText(row.Ratio()), promise)
	}
	b.WriteString("\n")
	return b.String()
}
