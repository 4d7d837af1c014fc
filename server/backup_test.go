package server_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/agbox-dev/agbox/actors"
	"github.com/agbox-dev/agbox/actors/actorstest"
	"github.com/agbox-dev/agbox/persist"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/servertest"
)

// TestBackup: what a client gets is a database with all that was recorded.
func TestBackup(t *testing.T) {
	t.Parallel()
	f := startFleet(t, actors.Config{}, actorstest.New())
	f.create("box-1", nil)
	var backup bytes.Buffer
	if err := f.Backup(t.Context(), &backup); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "backup")
	if err := os.WriteFile(path, backup.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	db, err := persist.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if list, err := db.Sandboxes(); err != nil || len(list) != 1 || list[0].ID != "box-1" {
		t.Errorf("it holds %v, %v", list, err)
	}
	if left, _ := filepath.Glob(filepath.Join(f.dir, ".*")); len(left) != 0 {
		t.Errorf("the daemon left %v", left)
	}
}

// TestReplacedDatabase: while another file is in the database's place changes are refused, and no longer.
func TestReplacedDatabase(t *testing.T) {
	t.Parallel()
	f := startFleet(t, actors.Config{}, actorstest.New())
	path := filepath.Join(f.dir, "ids.db")
	err := errors.Join(os.Rename(path, path+".ours"), os.WriteFile(path, []byte("theirs"), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{CreateSpec: &agboxv1.CreateSpec{Image: "image"}})
	servertest.Refused(t, err, codes.FailedPrecondition, "DATABASE_MOVED", "", path, "stop agboxd, put the right one at")
	if err := os.Rename(path+".ours", path); err != nil {
		t.Fatal(err)
	}
	f.create("box-1", nil)
}

// TestOrphansAreTold: Info lists what is there though the database does not know it.
func TestOrphansAreTold(t *testing.T) {
	t.Parallel()
	fake := actorstest.New()
	fake.Orphans = map[string]bool{"lost": true}
	f := startFleet(t, actors.Config{}, fake)
	for {
		info, err := f.Info(t.Context(), &agboxv1.InfoRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if len(info.Orphans) == 0 { // the daemon is still looking
			continue
		}
		if orphan := info.Orphans[0]; orphan.SandboxId != "lost" || orphan.RemovedAt.AsTime().Sub(orphan.FoundAt.AsTime()).Hours() != 24 {
			t.Errorf("told is %v", orphan)
		}
		return
	}
}
