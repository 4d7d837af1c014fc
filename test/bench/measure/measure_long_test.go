//go:build long

package measure_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/agbox-dev/agbox/test/bench/figure"
	"github.com/agbox-dev/agbox/test/bench/measure"
	"github.com/agbox-dev/agbox/test/dockertest"
)

// Each row can be measured, has a key that its group is found by, and a figure.
func TestLongRows(t *testing.T) {
	engine := dockertest.Engine(t)
	dockertest.TinyImage(t, engine, dockertest.Busybox)
	daemon, err := dockertest.Program("agboxd", "./cmd/agboxd")
	if err != nil {
		t.Fatal(err)
	}
	b, err := measure.New(t.Context(), daemon, measure.Small())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}()
	report, err := b.Run(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	keys := map[string]bool{}
	missing := measure.Groups()
	for _, row := range report.Rows {
		if keys[row.Key] {
			t.Errorf("two rows have the key %s", row.Key)
		}
		keys[row.Key] = true
		group, _, _ := strings.Cut(row.Key, "-")
		missing = slices.DeleteFunc(missing, func(name string) bool { return name == group })
		if (row.Absent == "") != (row.Ours != figure.Spread{}) || row.Ours.Min < 0 || row.Ours.Max < row.Ours.Min {
			t.Errorf("%s: %+v", row.Key, row)
		}
	}
	if len(missing) > 0 {
		t.Errorf("no rows are named as these groups: %q", missing)
	}
	if m := report.Machine; m.Cores == 0 || m.Memory == 0 || m.Kernel == "" || !strings.HasPrefix(m.Engine, "Docker ") {
		t.Errorf("the machine is not described: %+v", m)
	}
	t.Log("\n" + report.Table())

	first, err := b.First(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(first.Series) < 2 {
		t.Errorf("%+v", first)
	}
	for _, series := range first.Series {
		if len(series.Times) != 2 || !slices.IsSorted(series.Times) || series.Times[0] <= 0 {
			t.Errorf("%+v", series)
		}
	}
	t.Log("\n" + first.Table())
}
