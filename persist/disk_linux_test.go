package persist_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/agbox-dev/agbox/persist"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/dockertest/skiplog"
)

// smallDisk mounts a file system of its own.
func smallDisk(t *testing.T, options string) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		skiplog.Skip(t, fmt.Sprintf("cannot mount a file system of its own for the test: %v", err))
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// TestDiskFull: what cannot be recorded is refused, what was accepted stays, and service resumes with the space.
func TestDiskFull(t *testing.T) {
	dir := smallDisk(t, "size=4m")
	db := open(t, filepath.Join(dir, "ids.db"))
	must(t, db, create("box-1"))
	filler := filepath.Join(dir, "filler")
	file, err := os.Create(filler)
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = file.Write(bytes.Repeat([]byte("x"), 4096))
	}
	file.Close()
	accepted, refused := uint64(1), 0
	for refused < 3 {
		e := tell("box-1", accepted, agboxv1.EventType_SANDBOX_PREPARING, "")
		e.Events[0].SandboxId = string(bytes.Repeat([]byte("y"), 20_000))
		switch err := db.Append(e); {
		case err == nil:
			accepted++
		case errors.Is(err, persist.ErrNoSpace):
			refused++
		default:
			t.Fatalf("a full disk gives %v", err)
		}
	}
	if got := sequences(t, db, "box-1", 0); uint64(len(got)) != accepted {
		t.Errorf("%d events were accepted, %d are there", accepted, len(got))
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	must(t, db, tell("box-1", accepted, agboxv1.EventType_SANDBOX_READY, ""))
	db.Close()
	db = open(t, filepath.Join(dir, "ids.db"))
	if _, newest, err := db.Bounds("box-1"); newest != accepted+1 || err != nil {
		t.Errorf("after a reopen the newest event is %d, %v", newest, err)
	}
}

// TestNoSpaceToBegin: a first start on a full disk leaves nothing behind that would keep the next from succeeding.
func TestNoSpaceToBegin(t *testing.T) {
	dir := smallDisk(t, "size=8k")
	path := filepath.Join(dir, "ids.db")
	if err := os.WriteFile(filepath.Join(dir, "filler"), make([]byte, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		refusedFile(t, path, persist.ErrNoSpace, "free space")
	}
	if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT, "size=4m"); err != nil {
		t.Fatal(err)
	}
	must(t, open(t, path), create("box-1"))
}

func TestReadOnlyDisk(t *testing.T) {
	dir := smallDisk(t, "size=4m")
	if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "ids.db")
	_, err := persist.Open(path)
	if err == nil || !bytes.Contains([]byte(err.Error()), []byte(path)) || !bytes.Contains([]byte(err.Error()), []byte("XDG_DATA_HOME")) {
		t.Errorf("a read-only disk gives %v", err)
	}
}

// TestFullDiskIsFoundOnce: a full disk costs a burst of writers one transaction, not one each, and the next burst none.
func TestFullDiskIsFoundOnce(t *testing.T) {
	dir := smallDisk(t, "size=24m")
	db := open(t, filepath.Join(dir, "ids.db"))
	const writers = 100
	for i := range writers {
		must(t, db, create(fmt.Sprintf("box-%02d", i)))
	}
	filler, err := os.Create(filepath.Join(dir, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = filler.Write(make([]byte, 4096))
	}
	filler.Close()
	burst := func() (refused int) {
		var group sync.WaitGroup
		var mu sync.Mutex
		for i := range writers {
			group.Go(func() {
				e := tell(fmt.Sprintf("box-%02d", i), 1, agboxv1.EventType_SANDBOX_PREPARING, "")
				e.Events[0].SandboxId = strings.Repeat("y", 200_000) // more than the pages that are free
				if err := db.Append(e); errors.Is(err, persist.ErrNoSpace) {
					mu.Lock()
					refused++
					mu.Unlock()
				} else if err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		return refused
	}
	before := db.Transactions()
	first := burst()
	if spent := db.Transactions() - before; first < writers/2 || spent > writers/2 {
		t.Errorf("a burst of which %d were refused cost %d transactions", first, spent)
	}
	before = db.Transactions()
	if refused := burst(); refused < first || db.Transactions() != before {
		t.Errorf("a second burst of which %d were refused cost %d transactions", refused, db.Transactions()-before)
	}
	if err := os.Remove(filler.Name()); err != nil {
		t.Fatal(err)
	}
	must(t, db, tell("box-00", 1, agboxv1.EventType_SANDBOX_READY, ""))
}

// TestSpoolsShareTheRoom: copies that are asked for at once do not each take the room that is there once.
func TestSpoolsShareTheRoom(t *testing.T) {
	dir := smallDisk(t, "size=136m")
	db := open(t, filepath.Join(dir, "ids.db"))
	for i := range 20 {
		e := create(fmt.Sprintf("box-%02d", i))
		e.Create.Image = strings.Repeat("x", 1<<20)
		must(t, db, e)
	}
	spools := make(chan *os.File, 4)
	var group sync.WaitGroup
	for range cap(spools) {
		group.Go(func() {
			spool, err := db.Spool()
			if err != nil && !errors.Is(err, persist.ErrNoSpace) {
				t.Error(err)
			}
			spools <- spool
		})
	}
	group.Wait()
	made := 0
	for range cap(spools) {
		if spool := <-spools; spool != nil {
			made++
			spool.Close()
		}
	}
	if made != 1 {
		t.Errorf("%d copies were made where there is room for one", made)
	}
}
