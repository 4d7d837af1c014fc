package oplog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// TestOperationLogBound: however many write at once, lines stay whole, those of one writer in order and without gaps but for
// what was dropped, which is said, and both files together hold 1 MiB at most.
func TestOperationLogBound(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	older, newer := filepath.Join(dir, olderName), filepath.Join(dir, newerName)
	const writers, lines = 8, 2500
	turns := New(dir, nil)
	var group sync.WaitGroup
	for w := range writers {
		group.Go(func() {
			for i := range lines {
				unlock, _ := turns.writers.Lock(t.Context(), "box")
				err := appendLine(older, newer, fmt.Sprintf("%d %d %s\n", w, i, strings.Repeat("x", 150)))
				unlock()
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	if n := turns.writers.Len(); n != 0 {
		t.Errorf("%d locks are left", n)
	}
	text, err := os.ReadFile(newer)
	if err != nil {
		t.Fatal(err)
	}
	at := strings.LastIndexByte(strings.TrimSuffix(string(text), "\n"), '\n') + 1
	if !strings.HasPrefix(string(text[at+1:]), fmt.Sprintf(" %d ", lines-1)) {
		t.Errorf("the last line is %q", text[at:])
	}
	last, dropped := map[string]int{}, 0
	for _, path := range []string{older, newer} {
		text, err := os.ReadFile(path)
		if err != nil || len(text) > half || len(text) < half/2 && path == older {
			t.Fatalf("%s has %d bytes, %v", path, len(text), err)
		}
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, "log: the oldest ") && strings.HasSuffix(line, " bytes were dropped\n") {
				dropped++
				continue
			}
			var writer, filler string
			var i int
			if n, err := fmt.Sscanf(line, "%s %d %s\n", &writer, &i, &filler); n != 3 || err != nil || len(filler) != 150 {
				t.Fatalf("a line is %q", line)
			}
			if before, known := last[writer]; known && i != before+1 {
				t.Errorf("after %d of writer %s comes %d", before, writer, i)
			}
			last[writer] = i
		}
	}
	if dropped == 0 {
		t.Error("nothing says that lines were dropped")
	}
}

// TestOperationLogLine: one line whatever is told, and nothing secret in what others said.
func TestOperationLogLine(t *testing.T) {
	t.Parallel()
	d := New(t.TempDir(), slog.New(slog.DiscardHandler))
	spec := &agboxv1.CreateSpec{
		Envs: map[string]string{"TOKEN": "token-of-mine", "SHORT": "12", "LONGER": "token-of-mine-too"},
		OptionalServices: []*agboxv1.ServiceSpec{{
			Name: "db", Envs: map[string]string{"PASSWORD": "hunter\"2\n"}, PostStartOnPrimary: []string{"psql -c \"grant\""}}},
	}
	ctx := d.BeginSpec(t.Context(), "box", "create", spec)
	Step(ctx, "made", "early")(new(error)) // and makes no directory
	if entries, err := os.ReadDir(d.root); err != nil || len(entries) != 0 {
		t.Fatalf("there are %v, %v", entries, err)
	}
	d.Open("box")
	failed := errors.New("hook \"psql -c \\\"grant\\\"\" said\n\x1b[31mtoken-of-mine-too, 12, token-of-mine\x00 hunter\"2\n\n")
	Step(ctx, "made", "network %s", "n")(&failed)
	given := context.Canceled
	Step(ctx, "made", "container")(&given)
	Step(ctx, "up", "all")(new(error))
	Printf(ctx, "%s", strings.Repeat("é", maxLine))
	Printf(t.Context(), "nobody's")
	_, path := d.Paths("box")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.SplitAfter(string(text), "\n") {
		want := []string{
			`network n not made after \d+ ms: hook \*\*\* said\\n\\x1b\[31m\*\*\*, 12, \*\*\*\\x00 \*\*\*`,
			`container not made: given up after \d+ ms`, `all up in \d+ ms`, `é{1000}é+…`, ``,
		}[i]
		if want != "" {
			want = `\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z create: ` + want + "\n"
		}
		if !regexp.MustCompile("^" + want + "$").MatchString(line) {
			t.Errorf("line %d is %.200q, want %s", i, line, want)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("its mode is %v, %v", info.Mode(), err)
	}
}
