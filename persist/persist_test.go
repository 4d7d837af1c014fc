package persist_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/agbox-dev/agbox/persist"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var at = time.Unix(1_700_000_000, 42)

func open(t testing.TB, path string) *persist.DB {
	t.Helper()
	db, err := persist.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func newDB(t *testing.T) (*persist.DB, string) {
	path := filepath.Join(t.TempDir(), "ids.db")
	return open(t, path), path
}

func event(id string, sequence uint64, kind agboxv1.EventType, exec string) *agboxv1.SandboxEvent {
	e := &agboxv1.SandboxEvent{SandboxId: id, Sequence: sequence, EventType: kind, OccurredAt: timestamppb.New(at)}
	if exec != "" {
		e.Details = &agboxv1.SandboxEvent_Exec{Exec: &agboxv1.ExecEventDetails{ExecId: exec, ExitCode: 3}}
	}
	return e
}

func create(id string) persist.Entry {
	return persist.Entry{SandboxID: id, At: at, Create: &agboxv1.CreateSpec{Image: "image-of-" + id},
		Events: []*agboxv1.SandboxEvent{event(id, 1, agboxv1.EventType_SANDBOX_ACCEPTED, "")}}
}

func startExec(id, exec string, after uint64) persist.Entry {
	return persist.Entry{SandboxID: id, At: at, After: after,
		StartExec: &agboxv1.CreateExecRequest{SandboxId: id, ExecId: exec, Command: []string{"true"}},
		Events:    []*agboxv1.SandboxEvent{event(id, after+1, agboxv1.EventType_EXEC_STARTED, exec)}}
}

func tell(id string, after uint64, kind agboxv1.EventType, exec string) persist.Entry {
	return persist.Entry{SandboxID: id, At: at, After: after, Events: []*agboxv1.SandboxEvent{event(id, after+1, kind, exec)}}
}

func must(t *testing.T, db *persist.DB, entries ...persist.Entry) {
	t.Helper()
	for _, e := range entries {
		if err := db.Append(e); err != nil {
			t.Fatal(err)
		}
	}
}

func sequences(t *testing.T, db *persist.DB, id string, after uint64) []uint64 {
	t.Helper()
	events, err := db.Events(id, after, 100)
	if err != nil {
		t.Fatal(err)
	}
	var list []uint64
	for _, e := range events {
		list = append(list, e.Sequence)
	}
	return list
}

func TestSurvivesReopen(t *testing.T) {
	db, path := newDB(t)
	must(t, db, create("box-1"), startExec("box-1", "exec-1", 1), tell("box-1", 2, agboxv1.EventType_EXEC_FINISHED, "exec-1"),
		startExec("box-1", "exec-2", 3),
		persist.Entry{SandboxID: "box-1", After: 4, CancelExec: "exec-2", At: at})
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	db = open(t, path)
	sandboxes, err := db.Sandboxes()
	if err != nil || len(sandboxes) != 1 || sandboxes[0].Spec.Image != "image-of-box-1" || !sandboxes[0].DeletedAt.IsZero() {
		t.Fatalf("sandboxes are %+v, %v", sandboxes, err)
	}
	if got := sequences(t, db, "box-1", 1); !slices.Equal(got, []uint64{2, 3, 4}) {
		t.Errorf("events after 1 are %v", got)
	}
	if oldest, newest, err := db.Bounds("box-1"); oldest != 1 || newest != 4 || err != nil {
		t.Errorf("bounds are %d, %d, %v", oldest, newest, err)
	}
	ended, err := db.Exec("box-1", "exec-1")
	if err != nil || ended.End.GetExec().GetExitCode() != 3 || ended.Newest != 4 || ended.CancelRequested {
		t.Errorf("exec-1 is %+v, %v", ended, err)
	}
	if owner, err := db.ExecOwner("exec-1"); owner != "box-1" || err != nil {
		t.Errorf("exec-1 belongs to %q, %v", owner, err)
	}
	if owner, err := db.ExecOwner("exec-2"); owner != "box-1" || err != nil {
		t.Errorf("a running exec is in %q: %v", owner, err)
	}
	running, err := db.Exec("box-1", "exec-2")
	if err != nil || running.End != nil || !running.CancelRequested || !slices.Equal(running.Request.Command, []string{"true"}) {
		t.Errorf("exec-2 is %+v, %v", running, err)
	}
	must(t, db, tell("box-1", 4, agboxv1.EventType_EXEC_CANCELLED, "exec-2"))
	if ended, _ := db.Exec("box-1", "exec-2"); ended.CancelRequested || ended.End == nil {
		t.Errorf("after its end exec-2 is %+v", ended)
	}
}

func TestRefusalsLeaveNoTrace(t *testing.T) {
	db, _ := newDB(t)
	must(t, db, create("box-1"), startExec("box-1", "exec-1", 1), create("box-2"))
	for name, refused := range map[string]struct {
		entry persist.Entry
		want  error
	}{
		"sandbox id used":      {create("box-1"), persist.ErrSandboxIDTaken},
		"exec id used":         {startExec("box-1", "exec-1", 2), persist.ErrExecIDTaken},
		"exec id used by box1": {startExec("box-2", "exec-1", 1), persist.ErrExecIDTaken},
		"behind":               {tell("box-1", 1, agboxv1.EventType_SANDBOX_READY, ""), persist.ErrConflict},
		"ahead":                {startExec("box-1", "exec-2", 9), persist.ErrConflict},
		"unknown sandbox":      {tell("box-9", 0, agboxv1.EventType_SANDBOX_READY, ""), persist.ErrNoSandbox},
	} {
		if err := db.Append(refused.entry); !errors.Is(err, refused.want) {
			t.Errorf("%s: got %v, want %v", name, err, refused.want)
		}
	}
	if got := sequences(t, db, "box-1", 0); !slices.Equal(got, []uint64{1, 2}) {
		t.Errorf("box-1 has events %v", got)
	}
	if _, err := db.Exec("box-1", "exec-2"); !errors.Is(err, persist.ErrNoExec) {
		t.Errorf("a refused exec is there: %v", err)
	}
	if _, err := db.Events("box-9", 0, 1); !errors.Is(err, persist.ErrNoSandbox) {
		t.Errorf("a refused sandbox is there: %v", err)
	}
}

func TestAppendAll(t *testing.T) {
	db, _ := newDB(t)
	must(t, db, create("box-1"), create("box-2"), startExec("box-2", "used", 1))
	errs := db.AppendAll([]persist.Entry{startExec("box-1", "exec-1", 1), startExec("box-1", "used", 2), startExec("box-1", "exec-2", 3), startExec("box-1", "exec-3", 2)})
	for i, want := range []error{nil, persist.ErrExecIDTaken, persist.ErrConflict, nil} {
		if !errors.Is(errs[i], want) {
			t.Errorf("entry %d: got %v, want %v", i, errs[i], want)
		}
	}
	if got := sequences(t, db, "box-1", 0); !slices.Equal(got, []uint64{1, 2, 3}) {
		t.Errorf("events are %v", got)
	}
	if _, err := db.Exec("box-1", "exec-2"); !errors.Is(err, persist.ErrNoExec) {
		t.Errorf("a conflicting exec is there: %v", err)
	}
}

// TestBrokenEntryFailsAlone: an entry that cannot be stored must not take its neighbours in the group along.
func TestBrokenEntryFailsAlone(t *testing.T) {
	db, _ := newDB(t)
	var group sync.WaitGroup
	errs := make([]error, 60)
	for i := range errs {
		id := fmt.Sprintf("box-%02d", i)
		if i%3 == 0 {
			id = strings.Repeat("x", 40_000) + id // longer than a bbolt key may be
		}
		group.Go(func() { errs[i] = db.Append(create(id)) })
	}
	group.Wait()
	for i, err := range errs {
		if broken := i%3 == 0; broken != (err != nil) {
			t.Errorf("entry %d: %v", i, err)
		}
	}
	if list, err := db.Sandboxes(); len(list) != 40 || err != nil {
		t.Errorf("%d sandboxes are recorded, %v", len(list), err)
	}
}

// TestWritersOfOneLogAreOrdered: of all who append after the same sequence exactly one succeeds.
func TestWritersOfOneLogAreOrdered(t *testing.T) {
	db, _ := newDB(t)
	must(t, db, create("box-1"))
	for round := uint64(1); round <= 20; round++ {
		var group sync.WaitGroup
		var mu sync.Mutex
		won := 0
		for range 16 {
			group.Go(func() {
				err := db.Append(tell("box-1", round, agboxv1.EventType_SANDBOX_PREPARING, ""))
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					won++
				} else if !errors.Is(err, persist.ErrConflict) {
					t.Error(err)
				}
			})
		}
		group.Wait()
		if won != 1 {
			t.Fatalf("%d writers won", won)
		}
	}
}

func TestChanged(t *testing.T) {
	db, _ := newDB(t)
	must(t, db, create("box-1"), create("box-2"))
	first, second, other := db.Changed("box-1"), db.Changed("box-1"), db.Changed("box-2")
	must(t, db, tell("box-1", 1, agboxv1.EventType_SANDBOX_READY, ""))
	for _, ch := range []<-chan struct{}{first, second} {
		select {
		case <-ch:
		default:
			t.Error("a reader of the changed log was not woken")
		}
	}
	select {
	case <-other:
		t.Error("a reader of another log was woken")
	default:
	}
	if err := db.Append(tell("box-2", 7, agboxv1.EventType_SANDBOX_READY, "")); err == nil {
		t.Fatal("a conflict was recorded")
	}
	select {
	case <-other:
		t.Error("a refused entry woke a reader")
	default:
	}
	db.Close()
	<-other
	<-db.Changed("box-1")
}

func TestPurge(t *testing.T) {
	db, _ := newDB(t)
	must(t, db, create("box-1"), startExec("box-1", "exec-1", 1), tell("box-1", 2, agboxv1.EventType_EXEC_FINISHED, "exec-1"))
	if err := db.Purge("box-1"); !errors.Is(err, persist.ErrConflict) {
		t.Errorf("purge of a living sandbox: %v", err)
	}
	must(t, db, tell("box-1", 3, agboxv1.EventType_SANDBOX_DELETED, ""))
	if list, err := db.DeletedBefore(at.Add(1)); !slices.Equal(list, []string{"box-1"}) || err != nil {
		t.Errorf("deleted before: %v, %v", list, err)
	}
	if list, _ := db.DeletedBefore(at); len(list) != 0 {
		t.Errorf("deleted before its deletion: %v", list)
	}
	changed := db.Changed("box-1")
	if err := db.Purge("box-1"); err != nil {
		t.Fatal(err)
	}
	<-changed
	if _, err := db.Events("box-1", 0, 1); !errors.Is(err, persist.ErrNoSandbox) {
		t.Errorf("events after the purge: %v", err)
	}
	if _, err := db.Exec("box-1", "exec-1"); !errors.Is(err, persist.ErrNoExec) {
		t.Errorf("exec after the purge: %v", err)
	}
	if _, err := db.ExecOwner("exec-1"); !errors.Is(err, persist.ErrNoExec) {
		t.Errorf("end of an exec after the purge: %v", err)
	}
	if list, _ := db.DeletedBefore(at.Add(1)); len(list) != 0 {
		t.Errorf("still to be purged: %v", list)
	}
	if err := db.Append(create("box-1")); !errors.Is(err, persist.ErrSandboxIDTaken) {
		t.Errorf("the id of a purged sandbox can be used again: %v", err)
	}
	must(t, db, create("box-2"))
	if err := db.Append(startExec("box-2", "exec-1", 1)); !errors.Is(err, persist.ErrExecIDTaken) {
		t.Errorf("the id of a purged exec can be used again: %v", err)
	}
	if err := db.Purge("box-1"); err != nil {
		t.Errorf("a second purge: %v", err)
	}
}

func TestStoredEventIsWhole(t *testing.T) {
	db, _ := newDB(t)
	must(t, db, create("box-1"))
	want := event("box-1", 2, agboxv1.EventType_EXEC_FINISHED, "exec-1")
	want.GetExec().ErrorMessage = "ünïcode\x00nul"
	must(t, db, persist.Entry{SandboxID: "box-1", After: 1, Events: []*agboxv1.SandboxEvent{want}})
	events, err := db.Events("box-1", 1, 1)
	if err != nil || len(events) != 1 || !proto.Equal(events[0], want) {
		t.Errorf("read %v, %v; wrote %v", events, err, want)
	}
}

func TestOpen(t *testing.T) {
	db, path := newDB(t)
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("database has mode %v, %v", info.Mode(), err)
	}
	if _, err := persist.Open(path); !errors.Is(err, persist.ErrLocked) || !strings.Contains(err.Error(), path) {
		t.Errorf("a second opener gets %v", err)
	}
	db.Close()
	if err := db.Append(create("box-1")); !errors.Is(err, persist.ErrClosed) {
		t.Errorf("append after close: %v", err)
	}
	if _, err := db.Sandboxes(); !errors.Is(err, persist.ErrClosed) {
		t.Errorf("read after close: %v", err)
	}
	damaged := filepath.Join(t.TempDir(), "ids.db")
	if err := os.WriteFile(damaged, []byte(strings.Repeat("not a database", 1000)), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := persist.Open(damaged); !errors.Is(err, persist.ErrCorrupt) || !strings.Contains(err.Error(), damaged) {
		t.Errorf("a damaged file gives %v", err)
	}
}
