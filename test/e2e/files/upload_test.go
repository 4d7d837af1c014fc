package files_test

import (
	"bytes"
	"context"
	"os"
	"path"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/servertest"
)

// TestUploadRaced: who puts a pipe in the place of a file while that is unpacked, or holds the file, holds up nobody.
func TestUploadRaced(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	id := d.Create(&agboxv1.CreateSpec{Mounts: []*agboxv1.MountSpec{{Source: dir, Target: "/in", Writable: true}}})
	other := d.Create(&agboxv1.CreateSpec{})
	if err := os.WriteFile(path.Join(dir, "held"), []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	held, err := os.Open(path.Join(dir, "held"))
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if _, err := unix.FcntlInt(held.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	swapping := make(chan struct{})
	go func() {
		defer close(swapping)
		for {
			select {
			case <-ended:
				return
			default:
				syscall.Mkfifo(path.Join(dir, "pipe"), 0o666)
				os.Rename(path.Join(dir, "pipe"), path.Join(dir, "raced"))
			}
		}
	}()
	defer func() { close(ended); <-swapping }()
	entries := []servertest.Entry{servertest.File("held", "theirs", 0o600)}
	for range 5000 {
		entries = append(entries, servertest.File("raced", "x", 0o600))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if _, err := d.UploadFiles(ctx, &agboxv1.UploadFilesStart{SandboxId: id, Path: "/in"}, bytes.NewReader(servertest.Archive(t, entries...))); err != nil {
		t.Error(err)
	}
	servertest.Upload(t, d, other, "/tmp", servertest.Archive(t, servertest.File("f", "x", 0o600)))
	if text := d.Read(path.Join(dir, "held")); text != "theirs" {
		t.Errorf("the file that was held has %q", text)
	}
	servertest.Works(t, d, id)
}
