package persist_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/agbox-dev/agbox/persist"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

func TestNewestExecs(t *testing.T) {
	db, _ := newDB(t)
	must(t, db, create("box-a"), create("box-b"), create("box-c"))
	// exec-000 is the oldest; ids do not tell the order: even ones are in box-a. Every third has ended.
	after := map[string]uint64{"box-a": 1, "box-b": 1}
	names := make([]string, 20)
	for i := range names {
		box := []string{"box-a", "box-b"}[i%2]
		names[i] = fmt.Sprintf("exec-%03d", (i*7)%20)
		start := startExec(box, names[i], after[box])
		start.At = at.Add(time.Duration(i) * time.Second)
		must(t, db, start)
		after[box]++
		if i%3 == 0 {
			end := tell(box, after[box], agboxv1.EventType_EXEC_FINISHED, names[i])
			end.Events[0].GetExec().ExecState = agboxv1.ExecState_EXEC_STATE_FINISHED
			must(t, db, end)
			after[box]++
		}
	}
	const running, finished = agboxv1.ExecState_EXEC_STATE_RUNNING, agboxv1.ExecState_EXEC_STATE_FINISHED
	for _, c := range []struct {
		box    string
		states []agboxv1.ExecState
		limit  int
		want   func(i int) bool
	}{
		{"", nil, 100, func(int) bool { return true }},
		{"", nil, 20, func(int) bool { return true }},
		{"", nil, 3, func(i int) bool { return i >= 17 }},
		{"", nil, 1, func(i int) bool { return i == 19 }},
		{"box-a", nil, 100, func(i int) bool { return i%2 == 0 }},
		{"box-a", nil, 2, func(i int) bool { return i == 18 || i == 16 }},
		{"box-b", []agboxv1.ExecState{finished}, 100, func(i int) bool { return i%2 == 1 && i%3 == 0 }},
		{"", []agboxv1.ExecState{running}, 4, func(i int) bool { return i%3 != 0 && i > 13 }},
		{"", []agboxv1.ExecState{running, finished}, 100, func(int) bool { return true }},
		{"", []agboxv1.ExecState{agboxv1.ExecState_EXEC_STATE_FAILED}, 100, func(int) bool { return false }},
		{"box-c", nil, 100, func(int) bool { return false }},
		{"none", nil, 100, func(int) bool { return false }},
	} {
		var want []string
		for i, name := range slices.Backward(names) {
			if c.want(i) {
				want = append(want, name)
			}
		}
		found, err := db.NewestExecs(t.Context(), c.box, c.states, c.limit)
		var got []string
		for _, name := range found {
			got = append(got, name.ExecID)
			if i := slices.Index(names, name.ExecID); name.SandboxID != []string{"box-a", "box-b"}[i%2] || !name.At.Equal(at.Add(time.Duration(i)*time.Second)) {
				t.Errorf("%+v is exec %d", name, i)
			}
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%q %v, at most %d: %v, %v; want %v", c.box, c.states, c.limit, got, err, want)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, box := range []string{"box-a", "box-c"} {
		if found, err := db.NewestExecs(ended, box, nil, 1); !errors.Is(err, context.Canceled) {
			t.Errorf("of %s for nobody: %v, %v", box, found, err)
		}
	}
}

// BenchmarkNewestExecs lists 1,000 of 100,000 execs.
func BenchmarkNewestExecs(b *testing.B) {
	db := open(b, b.TempDir()+"/ids.db")
	if err := db.Append(create("box")); err != nil {
		b.Fatal(err)
	}
	for sequence := uint64(1); sequence < 200_000; {
		var entries []persist.Entry
		for range 1000 {
			id := fmt.Sprintf("%08x-exec", uint32(sequence*2654435761))
			start := startExec("box", id, sequence)
			start.At = at.Add(time.Duration(sequence))
			entries = append(entries, start, tell("box", sequence+1, agboxv1.EventType_EXEC_FINISHED, id))
			sequence += 2
		}
		if err := errors.Join(db.AppendAll(entries)...); err != nil {
			b.Fatal(err)
		}
	}
	for _, states := range [][]agboxv1.ExecState{nil, {agboxv1.ExecState_EXEC_STATE_RUNNING}, {agboxv1.ExecState_EXEC_STATE_UNSPECIFIED}} {
		b.Run(fmt.Sprint(states), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := db.NewestExecs(b.Context(), "", states, 1000); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
