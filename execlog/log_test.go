package execlog_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/agbox-dev/agbox/execlog"
)

// TestNotRegular: whatever a command could put in the log's place is refused, and a pipe without waiting for a writer.
func TestNotRegular(t *testing.T) {
	dir := t.TempDir()
	target, link, pipe := filepath.Join(dir, "target"), filepath.Join(dir, "link"), filepath.Join(dir, "pipe")
	write(t, target, "secret")
	if err := errors.Join(os.Symlink(target, link), syscall.Mkfifo(pipe, 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{link, pipe, dir} {
		log := execlog.New(path)
		if size, err := log.Size(); !errors.Is(err, execlog.ErrNotRegular) || log.Opened() {
			t.Errorf("%s has %d bytes, %v", path, size, err)
		}
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	log := execlog.New(path)
	defer log.Close()
	if size, err := log.Size(); size != 0 || err != nil || log.Opened() {
		t.Errorf("of no file there are %d bytes, %v", size, err)
	}
	write(t, path, "0123456789")
	if size, err := log.Size(); size != 10 || err != nil || !log.Opened() {
		t.Errorf("there are %d bytes, %v", size, err)
	}
	data := make([]byte, 6)
	for offset, want := range map[int64]string{0: "012345", 7: "789", 10: "", 11: ""} {
		if n, err := log.Read(data, offset); err != nil || string(data[:n]) != want {
			t.Errorf("at %d is %q, %v", offset, data[:n], err)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if n, err := log.Read(data, 0); err != nil || n != 6 {
		t.Errorf("of a removed file there are %d bytes, %v", n, err)
	}
}
