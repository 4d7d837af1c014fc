package persist_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/agbox-dev/agbox/persist"
	journalv1 "github.com/agbox-dev/agbox/proto/agbox/journal/v1"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

func TestTrim(t *testing.T) {
	db, path := newDB(t)
	must(t, db, create("box-1"), startExec("box-1", "long", 1), startExec("box-1", "short", 2), tell("box-1", 3, agboxv1.EventType_EXEC_FINISHED, "short"))
	if c, err := db.Checkpoint("box-1"); c != nil || err != nil {
		t.Errorf("checkpoint before the first is %v, %v", c, err)
	}
	trimming := startExec("box-1", "next", 4)
	trimming.Checkpoint = &journalv1.State{Sequence: 5, Reason: "r", Running: map[string]*timestamppb.Timestamp{"long": timestamppb.New(at)}}
	trimming.TrimTo = 4
	must(t, db, trimming)
	db.Close()
	db = open(t, path)
	if oldest, newest, err := db.Bounds("box-1"); oldest != 5 || newest != 5 || err != nil {
		t.Errorf("kept are %d to %d, %v", oldest, newest, err)
	}
	if c, err := db.Checkpoint("box-1"); err != nil || c.Sequence != 5 || c.Reason != "r" || len(c.Running) != 1 {
		t.Errorf("checkpoint is %v, %v", c, err)
	}
	if _, err := db.Exec("box-1", "short"); !errors.Is(err, persist.ErrNoExec) {
		t.Errorf("an exec whose end was trimmed: %v", err)
	}
	if _, err := db.ExecOwner("short"); !errors.Is(err, persist.ErrNoExec) {
		t.Errorf("its end: %v", err)
	}
	if _, err := db.Exec("box-1", "long"); err != nil {
		t.Errorf("an exec that runs on: %v", err)
	}
	if err := db.Append(startExec("box-1", "short", 5)); !errors.Is(err, persist.ErrExecIDTaken) {
		t.Errorf("the id of a trimmed exec: %v", err)
	}
}

func TestTrimStaysBehindTheCheckpoint(t *testing.T) {
	db, _ := newDB(t)
	must(t, db, create("box-1"))
	e := tell("box-1", 1, agboxv1.EventType_SANDBOX_READY, "")
	e.Checkpoint, e.TrimTo = &journalv1.State{Sequence: 1}, 2
	must(t, db, e)
	if got := sequences(t, db, "box-1", 0); !slices.Equal(got, []uint64{2}) {
		t.Errorf("kept are %v", got)
	}
}

func TestRequestMarks(t *testing.T) {
	db, path := newDB(t)
	marked, plain := create("box-1"), create("box-2")
	marked.RequestID = "mark-1"
	exec := startExec("box-1", "exec-1", 1)
	exec.RequestID = "mark-2"
	must(t, db, marked, plain, exec, startExec("box-1", "exec-2", 2))
	db.Close()
	db = open(t, path)
	sandboxes, err := db.Sandboxes()
	if err != nil || sandboxes[0].RequestID != "mark-1" || sandboxes[1].RequestID != "" {
		t.Errorf("sandboxes are %+v, %v", sandboxes, err)
	}
	for id, want := range map[string]string{"exec-1": "mark-2", "exec-2": ""} {
		if exec, err := db.Exec("box-1", id); err != nil || exec.RequestID != want {
			t.Errorf("the mark of %s is %q, %v", id, exec.RequestID, err)
		}
	}
}

func TestOldestDeletion(t *testing.T) {
	db, _ := newDB(t)
	if _, found, err := db.OldestDeletion(); found || err != nil {
		t.Errorf("without one: %v, %v", found, err)
	}
	must(t, db, create("box-1"), create("box-2"))
	for i, id := range []string{"box-1", "box-2"} {
		e := tell(id, 1, agboxv1.EventType_SANDBOX_DELETED, "")
		e.Events[0].OccurredAt = timestamppb.New(at.Add(-time.Duration(i) * time.Hour))
		must(t, db, e)
	}
	if oldest, found, err := db.OldestDeletion(); !found || !oldest.Equal(at.Add(-time.Hour)) || err != nil {
		t.Errorf("oldest is %v, %v, %v", oldest, found, err)
	}
}

// TestCompaction: a database that is mostly free shrinks when it is opened, and loses nothing, by a loss of power neither:
// the directory, which tells which file has the name, is synced after the exchange. Not parallel: it watches the syncs of all.
func TestCompaction(t *testing.T) {
	db, path := newDB(t)
	for i := range 40 {
		id := fmt.Sprintf("box-%02d", i)
		big := create(id)
		big.Create.Image = strings.Repeat("x", 1<<20)
		must(t, db, big, tell(id, 1, agboxv1.EventType_SANDBOX_DELETED, ""))
	}
	must(t, db, create("kept"))
	for i := range 40 {
		if err := db.Purge(fmt.Sprintf("box-%02d", i)); err != nil {
			t.Fatal(err)
		}
	}
	db.Close()
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	var synced []string
	defer persist.WatchSyncs(func(dir string) error { synced = append(synced, dir); return nil })()
	db = open(t, path)
	if !slices.Equal(synced, []string{filepath.Dir(path)}) {
		t.Errorf("synced were %v", synced)
	}
	after, err := os.Stat(path)
	if err != nil || after.Size() > before.Size()/4 || after.Mode().Perm() != 0o600 {
		t.Errorf("the file had %d bytes and has %d, mode %v, %v", before.Size(), after.Size(), after.Mode(), err)
	}
	if got := sequences(t, db, "kept", 0); !slices.Equal(got, []uint64{1}) {
		t.Errorf("the log that is kept is %v", got)
	}
	if err := db.Append(create("box-00")); !errors.Is(err, persist.ErrSandboxIDTaken) {
		t.Errorf("the compacted database forgot an id: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), ".*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}
