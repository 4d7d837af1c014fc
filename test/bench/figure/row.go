package figure

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Row is one thing that was measured.
type Row struct {
	// Key names the row for good: what is kept is found by it.
	Key  string `json:"key"`
	Name string `json:"name"`
	// Unit is of Ours and Beside, such as "ms".
	Unit string  `json:"unit"`
	Ours Spread  `json:"ours"`
	Than string  `json:"than,omitempty"` // what Beside is of
	Side *Spread `json:"beside,omitempty"`
	// Promise is what the row is to keep to.
	Promise Promise `json:"promise,omitzero"`
	Note    string  `json:"note,omitempty"`
	// Absent is why nothing was measured, "" where it was.
	Absent string `json:"absent,omitempty"`
}

// Promise is a bound. The zero one is none.
type Promise struct {
	Ratio   float64 `json:"ratio,omitzero"`    // at most
	AtMost  float64 `json:"at_most,omitzero"`  // in the row's unit
	AtLeast float64 `json:"at_least,omitzero"` // in the row's unit
}

// Ratio is ours in what it is compared with, 0 where that is nothing.
func (r *Row) Ratio() float64 {
	if r.Absent != "" || r.Side == nil || r.Side.Median == 0 {
		return 0
	}
	return r.Ours.Median / r.Side.Median
}

// Kept tells whether the promise is kept; said: there is one.
func (r *Row) Kept() (kept, said bool) {
	p := r.Promise
	if r.Absent != "" || p == (Promise{}) {
		return false, false
	}
	kept = (p.Ratio == 0 || r.Ratio() > 0 && r.Ratio() <= p.Ratio) &&
		(p.AtMost == 0 || r.Ours.Median <= p.AtMost) &&
		(p.AtLeast == 0 || r.Ours.Median >= p.AtLeast)
	return kept, true
}

func (p Promise) text(unit string) string {
	var parts []string
	if p.AtMost != 0 {
		parts = append(parts, "≤ "+Number(p.AtMost)+" "+unit)
	}
	if p.AtLeast != 0 {
		parts = append(parts, "≥ "+Number(p.AtLeast)+" "+unit)
	}
	if p.Ratio != 0 {
		parts = append(parts, fmt.Sprintf("≤ ×%.2f", p.Ratio))
	}
	return strings.Join(parts, ", ")
}

// Report is one run.
type Report struct {
	Taken   time.Time `json:"taken"`
	Version string    `json:"version"`
	Machine Machine   `json:"machine"`
	Rows    []Row     `json:"rows"`
}

// Machine is where it ran.
type Machine struct {
	CPU    string  `json:"cpu"`
	Cores  int     `json:"cores"`
	Memory int     `json:"memory_mb"`
	Kernel string  `json:"kernel"`
	Engine string  `json:"engine"`
	Disk   string  `json:"disk"` // the file system that the data lies on
	Load   float64 `json:"load"` // of one minute, before the run
}

func (m Machine) String() string {
	return fmt.Sprintf("%d cores of %s, %s GB of memory, Linux %s, %s, data on %s, load %.1f before the run",
		m.Cores, m.CPU, Number(float64(m.Memory)/1024), m.Kernel, m.Engine, m.Disk, m.Load)
}

// JSON is the report for programs.
func (r *Report) JSON() ([]byte, error) {
	data, err := json.MarshalIndent(r, "", "  ")
	return append(data, '\n'), err
}

// Number writes a figure with as many digits as say something.
func Number(v float64) string {
	switch {
	case v >= 10_000:
		text := fmt.Sprintf("%.0f", v)
		for i := len(text) - 3; i > 0; i -= 3 {
			text = text[:i] + "," + text[i:]
		}
		return text
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}
