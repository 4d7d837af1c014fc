package persist_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agbox-dev/agbox/persist"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// openSeen opens the database in dir with the witness there.
func openSeen(dir string, options ...persist.Option) (*persist.DB, *persist.Witness, error) {
	w, err := persist.ReadWitness(filepath.Join(dir, "instance"))
	if err != nil {
		return nil, nil, err
	}
	db, err := persist.Open(filepath.Join(dir, "ids.db"), append(options, persist.WithWitness(w))...)
	return db, w, err
}

func mustOpenSeen(t *testing.T, dir string, options ...persist.Option) (*persist.DB, *persist.Witness) {
	t.Helper()
	db, w, err := openSeen(dir, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db, w
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	content, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestLostDatabaseIsNoticed: a database that is not the one that was here is refused, and nothing is made in its place.
func TestLostDatabaseIsNoticed(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		lose func(t *testing.T, path, older string)
		want string
	}{
		"removed":     {func(t *testing.T, path, _ string) { os.Remove(path) }, "is not there"},
		"empty":       {func(t *testing.T, path, _ string) { os.Truncate(path, 0) }, "is empty"},
		"older":       {func(t *testing.T, path, older string) { copyFile(t, older, path) }, "older copy"},
		"new":         {func(t *testing.T, path, _ string) { os.Remove(path); open(t, path).Close() }, "is new"},
		"another one": {func(t *testing.T, path, _ string) { copyFile(t, foreign(t), path) }, "belongs to instance"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			path, older := filepath.Join(dir, "ids.db"), filepath.Join(dir, "older")
			db, w := mustOpenSeen(t, dir)
			must(t, db, create("box-1"))
			copyFile(t, path, older) // as it is while the daemon runs
			must(t, db, create("box-2"))
			db.Close()
			test.lose(t, path, older)
			before, _ := os.ReadFile(path)

			_, _, err := openSeen(dir)
			var mismatch *persist.Mismatch
			if !errors.As(err, &mismatch) || !errors.Is(err, persist.ErrMismatch) || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), path) {
				t.Fatalf("opening it gives %v, want %q", err, test.want)
			}
			if mismatch.Known["box-2"] || name == "older" && !mismatch.Known["box-1"] {
				t.Errorf("it is said to know %v", mismatch.Known)
			}
			if after, _ := os.ReadFile(path); string(after) != string(before) {
				t.Error("the refused start changed the file")
			}

			db, again := mustOpenSeen(t, dir, persist.AcceptMismatch())
			if again.Instance != w.Instance {
				t.Errorf("the instance became %s, it was %s", again.Instance, w.Instance)
			}
			db.Close()
			db, _ = mustOpenSeen(t, dir)
			db.Close()
		})
	}
}

// foreign makes the database of another instance.
func foreign(t *testing.T) string {
	dir := t.TempDir()
	db, _ := mustOpenSeen(t, dir)
	db.Close()
	return filepath.Join(dir, "ids.db")
}

// TestWitnessCoversEveryCreate: once a create is answered no copy from before it is taken for the database, whatever
// happened to the process, and an exec costs the witness nothing.
func TestWitnessCoversEveryCreate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, instance := filepath.Join(dir, "ids.db"), filepath.Join(dir, "instance")
	db, _ := mustOpenSeen(t, dir)
	for _, id := range []string{"box-1", "box-2", "box-3"} {
		crashed := t.TempDir() // holds the witness of after the create, and the database of before it
		copyFile(t, path, filepath.Join(crashed, "ids.db"))
		must(t, db, create(id))
		copyFile(t, instance, filepath.Join(crashed, "instance"))
		if _, _, err := openSeen(crashed); !errors.Is(err, persist.ErrMismatch) {
			t.Errorf("a copy from before %s gives %v", id, err)
		}
		copyFile(t, path, filepath.Join(crashed, "ids.db"))
		mustOpenSeen(t, crashed)
	}
	before, _ := os.ReadFile(instance)
	must(t, db, startExec("box-1", "exec-1", 1), tell("box-1", 2, agboxv1.EventType_EXEC_FINISHED, "exec-1"))
	if err := db.Append(create("box-1")); !errors.Is(err, persist.ErrSandboxIDTaken) {
		t.Fatal(err)
	}
	if after, _ := os.ReadFile(instance); string(after) != string(before) {
		t.Errorf("the witness was written for an exec: %s, then %s", before, after)
	}
}

// TestWitnessIsMadeAgain: a database whose witness is gone tells the instance, and one of before there were witnesses goes on.
func TestWitnessIsMadeAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	db, w := mustOpenSeen(t, dir)
	db.Close()
	if err := os.Remove(filepath.Join(dir, "instance")); err != nil {
		t.Fatal(err)
	}
	db, again := mustOpenSeen(t, dir)
	if again.Instance != w.Instance {
		t.Errorf("without its file the instance is %s, it was %s", again.Instance, w.Instance)
	}
	db.Close()

	older := t.TempDir()
	open(t, filepath.Join(older, "ids.db")).Close()
	if err := os.WriteFile(filepath.Join(older, "instance"), []byte(w.Instance+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, again := mustOpenSeen(t, older); again.Instance != w.Instance {
		t.Errorf("the instance of an earlier version became %s", again.Instance)
	}

	for _, damaged := range []string{"", "garbage\n", w.Instance + "\ngarbage\n"} {
		path := filepath.Join(t.TempDir(), "instance")
		if err := os.WriteFile(path, []byte(damaged), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := persist.ReadWitness(path); !errors.Is(err, persist.ErrWitness) || !strings.Contains(err.Error(), path) {
			t.Errorf("%q gives %v", damaged, err)
		}
	}
}

// TestRemovedDatabaseIsPutBack: what was recorded before and after somebody removed the file is all there at the next start.
func TestRemovedDatabaseIsPutBack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "ids.db")
	db, _ := mustOpenSeen(t, dir)
	must(t, db, create("box-1"))
	if err := errors.Join(os.Remove(path), os.Remove(filepath.Join(dir, "instance"))); err != nil {
		t.Fatal(err)
	}
	if err := db.Check(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	must(t, db, create("box-2"), startExec("box-1", "exec-1", 1))
	db.Close()
	db, _ = mustOpenSeen(t, dir)
	if list, err := db.Sandboxes(); len(list) != 2 || err != nil {
		t.Errorf("after that there are %v, %v", list, err)
	}
}

// TestPutBackHalfWay: what keeps a database from being put back whole keeps nobody from trying again. Not parallel: it has
// the syncs of all fail.
func TestPutBackHalfWay(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "ids.db")
	db, _ := mustOpenSeen(t, dir)
	must(t, db, create("box-1"))
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	undo := persist.WatchSyncs(func(string) error { return errors.New("the disk says no") })
	for range 2 {
		if err := db.Append(create("box-2")); !errors.Is(err, persist.ErrMoved) || !strings.Contains(err.Error(), "the disk says no") {
			t.Errorf("while the directory cannot be synced a create is answered with %v", err)
		}
	}
	undo()
	must(t, db, create("box-2"))
	if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) != 2 {
		t.Errorf("there are %v", left)
	}
	db.Close()
	db, _ = mustOpenSeen(t, dir)
	if list, err := db.Sandboxes(); len(list) != 2 || err != nil {
		t.Errorf("after that there are %v, %v", list, err)
	}
}

// TestSweep: what a killed process has left of a file that it was placing is gone after the next start, and nothing else.
func TestSweep(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{".ids.db-1", ".ids.db.rescued-2", ".instance-3", ".other-4"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	mustOpenSeen(t, dir)
	if left, _ := filepath.Glob(filepath.Join(dir, ".*")); len(left) != 1 || filepath.Base(left[0]) != ".other-4" {
		t.Errorf("left are %v", left)
	}
}

// TestReplacedDatabaseIsNotWrittenOver: changes are refused, and neither file is lost.
func TestReplacedDatabaseIsNotWrittenOver(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "ids.db")
	db, _ := mustOpenSeen(t, dir)
	must(t, db, create("box-1"))
	theirs := foreign(t)
	want, _ := os.ReadFile(theirs)
	if err := os.Rename(theirs, path); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := db.Append(create("box-2")); !errors.Is(err, persist.ErrMoved) || !strings.Contains(err.Error(), path+".rescued") {
			t.Fatalf("a create is answered with %v", err)
		}
	}
	if err := db.Check(); !errors.Is(err, persist.ErrMoved) {
		t.Errorf("the check says %v", err)
	}
	if list, err := db.Sandboxes(); len(list) != 1 || err != nil {
		t.Errorf("reading gives %v, %v", list, err)
	}
	db.Close()
	if got, _ := os.ReadFile(path); string(got) != string(want) {
		t.Error("the other file was changed")
	}
	if err := os.Rename(path+".rescued", path); err != nil {
		t.Fatal(err)
	}
	db, _ = mustOpenSeen(t, dir)
	if list, err := db.Sandboxes(); len(list) != 1 || err != nil {
		t.Errorf("what was rescued has %v, %v", list, err)
	}
}

// TestBackup: a copy that is made while others write opens, and is an older one.
func TestBackup(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	db, _ := mustOpenSeen(t, dir)
	must(t, db, create("box-1"))
	backup := filepath.Join(dir, "backup")
	file, err := os.Create(backup)
	if err != nil {
		t.Fatal(err)
	}
	size, err := db.Backup(file)
	if info, statErr := file.Stat(); err != nil || statErr != nil || info.Size() != size {
		t.Fatalf("the backup has %d bytes, %v, %v", size, err, statErr)
	}
	file.Close()
	db.Close()
	copyFile(t, backup, filepath.Join(dir, "ids.db"))
	if _, _, err := openSeen(dir); !errors.Is(err, persist.ErrMismatch) {
		t.Errorf("a backup in place of the database gives %v", err)
	}
	db, _ = mustOpenSeen(t, dir, persist.AcceptMismatch())
	if list, err := db.Sandboxes(); len(list) != 1 || err != nil {
		t.Errorf("the backup has %v, %v", list, err)
	}
}
