package persist_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/agbox-dev/agbox/persist"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// refusedFile fails the test unless path cannot be opened, for the reason wanted, and the error names it and what to do.
func refusedFile(t *testing.T, path string, want error, wayOut string) {
	t.Helper()
	db, err := persist.Open(path)
	if err == nil {
		db.Close()
	}
	if want != nil && !errors.Is(err, want) || err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), wayOut) {
		t.Errorf("%s gives %v", filepath.Base(path), err)
	}
}

// TestDamagedFile: whatever page of the file is lost, it is either not needed or the file is refused as damaged; the
// process never ends in a panic.
func TestDamagedFile(t *testing.T) {
	db, path := newDB(t)
	for i := range 40 {
		id := fmt.Sprintf("box-%02d", i)
		entry := create(id)
		entry.Create.Image = strings.Repeat("long", 500*(i%4))
		must(t, db, entry, tell(id, 1, agboxv1.EventType_SANDBOX_READY, ""))
	}
	db.Close()
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const page = 4096
	dir := t.TempDir()
	refused := 0
	for at := 2 * page; at < len(whole); at += page {
		for name, damage := range map[string][]byte{"zeroed": make([]byte, page), "overwritten": bytes.Repeat([]byte("damage! "), page/8)} {
			path := filepath.Join(dir, fmt.Sprintf("%s-%d", name, at/page))
			content := bytes.Clone(whole)
			copy(content[at:], damage)
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
			db, err := persist.Open(path)
			if err == nil {
				_, err = db.Sandboxes()
				db.Close()
			}
			if err == nil {
				continue
			}
			refused++
			if !errors.Is(err, persist.ErrCorrupt) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "restore a copy") {
				t.Errorf("%s gives %v", filepath.Base(path), err)
			}
		}
	}
	if refused < 40 {
		t.Errorf("only %d files of %d pages were refused", refused, len(whole)/page)
	}
	for size := 1; size < used(t, path); size += page - 1 {
		path := filepath.Join(dir, fmt.Sprintf("cut-at-%d", size))
		if err := os.WriteFile(path, whole[:size], 0o600); err != nil {
			t.Fatal(err)
		}
		refusedFile(t, path, persist.ErrCorrupt, "restore a copy")
	}
}

// used is how many bytes of a database are in use.
func used(t *testing.T, path string) (size int) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.View(func(tx *bbolt.Tx) error { size = int(tx.Size()); return nil }); err != nil {
		t.Fatal(err)
	}
	return size
}

func TestUnopenableFile(t *testing.T) {
	dir := t.TempDir()
	refusedFile(t, dir, nil, "XDG_DATA_HOME")
	refusedFile(t, filepath.Join(dir, "none", "ids.db"), nil, "XDG_DATA_HOME")
}
