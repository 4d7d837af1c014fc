package pid1_test

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/agbox-dev/agbox/guest/protocol"
	"github.com/agbox-dev/agbox/test/dockertest/skiplog"
)

// Where no inotify instance is left, a watch looks by itself, and says so once.
func TestWatchWithoutInotify(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	sub := filepath.Join(dir, "sub")
	from, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	cmd := exec.Command("sh", "-c", `echo 0 > /proc/sys/user/max_inotify_instances && exec "$@"`, "sh", initBinary, "file", "watch", dir, "-r")
	cmd.Stdout, cmd.Stderr = to, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}, GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
	if err := cmd.Start(); err != nil {
		skiplog.Skip(t, "needs a user namespace, whose limit of inotify instances is its own: "+err.Error())
	}
	defer cmd.Wait()
	to.Close()
	from.SetReadDeadline(time.Now().Add(2 * time.Minute))
	records := bufio.NewReader(from)
	expect := func(want ...string) {
		t.Helper()
		got, err := protocol.ReadFile(records)
		if err != nil || !slices.Equal(got, want) {
			t.Fatalf("%q, %v; want %q", got, err, want)
		}
	}
	expect(protocol.FileEvent, "watching", dir, "", "d")
	expect(protocol.FileEvent, "looking", dir, "", "d")
	step := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	step(os.Mkdir(sub, 0o755))
	expect(protocol.FileEvent, "created", sub, "", "d")
	file := filepath.Join(sub, "file")
	step(os.WriteFile(file, []byte("a"), 0o644))
	expect(protocol.FileEvent, "created", file, "", "")
	if err := os.WriteFile(file+".new", []byte("ab"), 0o644); err != nil {
		t.Fatal(err)
	}
	expect(protocol.FileEvent, "created", file+".new", "", "")
	step(os.Chmod(file, 0o600))
	expect(protocol.FileEvent, "attributes", file, "", "")
	step(os.RemoveAll(dir))
	got, err := protocol.ReadFile(records)
	for err == nil && got[0] == protocol.FileEvent && got[1] == "removed" {
		got, err = protocol.ReadFile(records)
	}
	if err != nil || got[0] != protocol.FileEnd {
		t.Fatalf("%q, %v", got, err)
	}
}
