package figure

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// The picture's measures, in its own units.
const (
	pictureWidth = 860
	nameWidth    = 330
	axisLeft     = nameWidth + 10
	axisRight    = pictureWidth - 90
	rowHeight    = 24
	pictureTop   = 64
	// The axis is logarithmic: what takes a hundredth is to be seen beside what takes as long.
	axisLeast, axisMost = 0.005, 3.0
)

func axis(ratio float64) float64 {
	at := (math.Log(min(max(ratio, axisLeast), axisMost)) - math.Log(axisLeast)) / (math.Log(axisMost) - math.Log(axisLeast))
	return axisLeft + at*(axisRight-axisLeft)
}

const pictureStyle = `<style>
text{font:13px system-ui,sans-serif;fill:#24292f}.quiet{fill:#6e7781;font-size:12px}.title{font-size:15px;font-weight:600}
.grid{stroke:#d0d7de}.one{stroke:#6e7781;stroke-dasharray:4 3}.bar{fill:#4c78a8}.over{fill:#c2703d}
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.quiet{fill:#9198a1}.grid{stroke:#3d444d}.one{stroke:#9198a1}.bar{fill:#7aa6d6}.over{fill:#dd935f}}
</style>
`

// Picture draws the rows that have a ratio, as an SVG that is readable on light and dark ground.
func (r *Report) Picture() string {
	var rows []Row
	for _, row := range r.Rows {
		if row.Ratio() > 0 {
			rows = append(rows, row)
		}
	}
	bottom := pictureTop + len(rows)*rowHeight
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-label="agboxd beside plain Docker">`+"\n",
		pictureWidth, bottom+40)
	b.WriteString(pictureStyle)
	b.WriteString(`<text class="title" x="10" y="22">agboxd in what the same takes without it</text>` + "\n")
	b.WriteString(`<text class="quiet" x="10" y="41">medians of one run; left of 1: agboxd takes less; logarithmic</text>` + "\n")
	for _, tick := range []float64{0.01, 0.03, 0.1, 0.3, 1, 3} {
		class := "grid"
		if tick == 1 {
			class = "one"
		}
		fmt.Fprintf(&b, `<line class="%s" x1="%.1f" x2="%.1f" y1="%d" y2="%d"/>`+"\n", class, axis(tick), axis(tick), pictureTop-8, bottom)
		fmt.Fprintf(&b, `<text class="quiet" text-anchor="middle" x="%.1f" y="%d">×%g</text>`+"\n", axis(tick), bottom+16, tick)
	}
	for i, row := range rows {
		top := pictureTop + i*rowHeight
		class := "bar"
		if row.Ratio() > 1 {
			class = "over"
		}
		fmt.Fprintf(&b, `<text text-anchor="end" x="%d" y="%d">%s</text>`+"\n", nameWidth, top+13, html.EscapeString(row.Name))
		fmt.Fprintf(&b, `<rect class="%s" x="%d" y="%d" width="%.1f" height="14" rx="2"/>`+"\n", class, axisLeft, top+2, max(axis(row.Ratio())-axisLeft, 1))
		fmt.Fprintf(&b, `<text class="quiet" x="%.1f" y="%d">%s</text>`+"\n", axis(row.Ratio())+6, top+13, ratioText(row.Ratio()))
	}
	b.WriteString("</svg>\n")
	return b.String()
}
