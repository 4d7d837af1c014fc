package servertest

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/agbox-dev/agbox/test/dockertest/skiplog"
)

// SkipDisk ends a test whose disk cannot be had here.
func SkipDisk(t *testing.T, why error) {
	t.Helper()
	skiplog.Skip(t, fmt.Sprintf("no disk of its own for the test: %v", why))
}

// MountTmpfs mounts 8 MiB over dir until the end of the test.
func MountTmpfs(t *testing.T, dir string) {
	t.Helper()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=8m"); err != nil {
		SkipDisk(t, err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}
