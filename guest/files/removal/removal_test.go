package removal_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agbox-dev/agbox/guest/files/removal"
)

// TestTree: more directories in one another than there may be files open are removed, and nothing that they lead to.
func TestTree(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(t.TempDir(), "layers")
	if err := os.MkdirAll(filepath.Join(root, "deep-1", "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "deep-2"), nil, 0o600); err != nil {
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
	err = removal.Tree(root)
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
	if err := removal.Tree(root); err != nil {
		t.Errorf("what is gone: %v", err)
	}
}
