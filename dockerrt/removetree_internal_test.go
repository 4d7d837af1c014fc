package dockerrt

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestRemoveTree: a tree of more directories in one another than there may be files open is removed, and nothing that it leads to.
func TestRemoveTree(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(t.TempDir(), "layers")
	if err := os.MkdirAll(filepath.Join(root, "deep-1"), 0o700); err != nil {
		t.Fatal(err)
	}
	at, err := unix.Open(root, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	for range 3000 {
		if err == nil {
			err = unix.Mkdirat(at, "d", 0o700)
		}
		if err == nil {
			err = unix.Symlinkat(filepath.Dir(outside), at, "link")
		}
		if err != nil {
			t.Fatal(err)
		}
		next, openErr := unix.Openat(at, "d", unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		unix.Close(at)
		at, err = next, openErr
	}
	unix.Close(at)
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 1024, Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	err = layout{filepath.Dir(root)}.removeLayers("")
	if restored := unix.Setrlimit(unix.RLIMIT_NOFILE, &before); restored != nil {
		t.Fatal(restored)
	}
	if err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(root); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the tree is still there: %v", err)
	}
	if _, err := os.Lstat(outside); err != nil {
		t.Error(err)
	}
}
