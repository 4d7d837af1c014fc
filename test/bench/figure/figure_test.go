package figure_test

import (
	"encoding/xml"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/agbox-dev/agbox/test/bench/figure"
)

func TestSpread(t *testing.T) {
	t.Parallel()
	ms := time.Millisecond
	if got, want := Milliseconds([]time.Duration{9 * ms, 1 * ms, 5 * ms, 2 * ms}), (Spread{Median: 2, Min: 1, Max: 9, Count: 4}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := Numbers(nil); got != (Spread{}) {
		t.Errorf("of none: %+v", got)
	}
	hundred := make([]int, 100)
	for i := range hundred {
		hundred[i] = i + 1
	}
	for p, want := range map[float64]int{0: 1, 1: 1, 50: 50, 95: 95, 99: 99, 100: 100} {
		if got := Percentile(hundred, p); got != want {
			t.Errorf("%v percent: %d, want %d", p, got, want)
		}
	}
	if got := Percentile([]int{7}, 99); got != 7 {
		t.Errorf("of one: %d", got)
	}
}

func row(key string, ours, side float64, promise Promise) Row {
	r := Row{Key: key, Name: "the " + key, Unit: "ms", Ours: Spread{ours, ours, ours, 1}, Promise: promise}
	if side > 0 {
		r.Than, r.Side = "Docker", &Spread{side, side, side, 1}
	}
	return r
}

func TestPromise(t *testing.T) {
	t.Parallel()
	absent := row("absent", 1, 2, Promise{Ratio: 1})
	absent.Absent = "there is none"
	for _, c := range []struct {
		row        Row
		ratio      float64
		kept, said bool
	}{
		{row("none", 3, 2, Promise{}), 1.5, false, false},
		{row("ratio", 3, 2, Promise{Ratio: 1.5}), 1.5, true, true},
		{row("ratio", 3, 2, Promise{Ratio: 1.4}), 1.5, false, true},
		{row("no ratio", 3, 0, Promise{Ratio: 1.4}), 0, false, true},
		{row("at most", 3, 0, Promise{AtMost: 3}), 0, true, true},
		{row("at most", 3.1, 0, Promise{AtMost: 3}), 0, false, true},
		{row("at least", 2.9, 0, Promise{AtLeast: 3}), 0, false, true},
		{row("one of both", 2, 1, Promise{AtMost: 3, Ratio: 1}), 2, false, true},
		{absent, 0, false, false},
	} {
		kept, said := c.row.Kept()
		if got := c.row.Ratio(); got != c.ratio || kept != c.kept || said != c.said {
			t.Errorf("%s: ratio %v, kept %v, said %v; want %v, %v, %v", c.row.Key, got, kept, said, c.ratio, c.kept, c.said)
		}
	}
}

func sample() *Report {
	absent := Row{Key: "warm", Name: "create, warm", Absent: "this daemon has no warm sandboxes"}
	return &Report{
		Taken: time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC), Version: "v1",
		Machine: Machine{CPU: "a <fine> one", Cores: 2, Memory: 4096, Kernel: "6.1", Engine: "Docker 20.10", Disk: "ext4", Load: 0.25},
		Rows:    []Row{row("create", 510, 500, Promise{Ratio: 0.85}), row("exec", 3.5, 70, Promise{Ratio: 0.06}), row("rss", 12_345, 0, Promise{}), absent},
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	table := sample().Table()
	want := `2 cores of a <fine> one, 4.00 GB of memory, Linux 6.1, Docker 20.10, data on ext4, load 0.2 before the run

what (median)  agboxd     beside   ratio                  promise
the create     510 ms     500 ms   ×1.02   ████████████▎  ≤ ×0.85  NOT KEPT
the exec       3.50 ms    70.0 ms  ×0.050  ▋              ≤ ×0.06  kept
the rss        12,345 ms
create, warm   –          this daemon has no warm sandboxes
`
	trimmed := func(s string) (lines []string) {
		for line := range strings.Lines(s) {
			lines = append(lines, strings.TrimSpace(line))
		}
		return lines
	}
	if got := trimmed(table); !slices.Equal(got, trimmed(want)) {
		t.Errorf("%s\nwant\n%s", table, want)
	}
}

// A page keeps what people wrote, and what stood between the lines is gone.
func TestPage(t *testing.T) {
	t.Parallel()
	page := "# Title\n\n<!-- figures: make bench writes what follows -->\nold\n<!-- end of figures -->\n\nprose\n"
	first, err := sample().Page(page, "p.svg")
	if err != nil {
		t.Fatal(err)
	}
	again, err := sample().Page(first, "p.svg")
	if err != nil || again != first {
		t.Errorf("the second time it is another page: %v\n%s", err, again)
	}
	for _, want := range []string{"# Title\n", "\n\nprose\n", "](p.svg)", "| the create | 510 ms | 500 ms, Docker | ×1.02 | ≤ ×0.85 **not kept** |", "| create, warm | – |"} {
		if !strings.Contains(first, want) {
			t.Errorf("%q is missing in\n%s", want, first)
		}
	}
	if strings.Contains(first, "old") {
		t.Error("the old figures are there still")
	}
	if _, err := sample().Page("# Title\n", ""); !errors.Is(err, ErrNoPlace) {
		t.Error("a page without a place:", err)
	}
}

// The picture is well-formed, has each row with a ratio, and its bars lie beside their names, longer ones for more.
func TestPicture(t *testing.T) {
	t.Parallel()
	var widths []float64
	var names []string
	for d := xml.NewDecoder(strings.NewReader(sample().Picture())); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			if token.Name.Local == "rect" {
				var rect struct {
					X     float64 `xml:"x,attr"`
					Width float64 `xml:"width,attr"`
				}
				if err := d.DecodeElement(&rect, &token); err != nil {
					t.Fatal(err)
				}
				if rect.X < 330 || rect.X+rect.Width > 860 {
					t.Errorf("a bar lies outside: %+v", rect)
				}
				widths = append(widths, rect.Width)
			}
		case xml.CharData:
			if text := string(token); strings.HasPrefix(text, "the ") {
				names = append(names, text)
			}
		}
	}
	if len(widths) != 2 || widths[0] < 300 || widths[1] > 200 || widths[1] < 100 || !slices.Equal(names, []string{"the create", "the exec"}) {
		t.Errorf("bars %v of %q", widths, names)
	}
}

func TestKept(t *testing.T) {
	t.Parallel()
	kept := Kept{"gone": 2}
	kept.Keep(sample())
	again, err := ParseKept(kept.Encode())
	if err != nil || len(again) != 3 || again["create"] != 510.0/500 {
		t.Fatalf("%v, %v", again, err)
	}
	if _, err := ParseKept([]byte("{")); err == nil {
		t.Error("half a file is read")
	}
	all := func(string) bool { return true }
	if worse := again.Check(sample(), all); len(worse) != 1 || !strings.HasPrefix(worse[0], "gone: not measured") {
		t.Errorf("the same: %q", worse)
	}
	if worse := again.Check(sample(), func(key string) bool { return key != "gone" }); len(worse) != 0 {
		t.Errorf("what nobody wanted is missed: %q", worse)
	}
	slower := sample()
	slower.Rows[1].Ours.Median *= 1.24
	slower.Rows[0].Ours.Median *= 1.26
	if worse := again.Check(slower, func(key string) bool { return key != "gone" }); len(worse) != 1 || !strings.HasPrefix(worse[0], "create: ×1.29") {
		t.Errorf("worse by a quarter: %q", worse)
	}
}
