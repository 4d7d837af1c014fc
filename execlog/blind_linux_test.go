package execlog_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/agbox-dev/agbox/execlog"
	"github.com/agbox-dev/agbox/test/dockertest/skiplog"
)

const (
	blindEnv     = "EXECLOG_TEST_INOTIFY"
	maxInstances = "/proc/sys/user/max_inotify_instances"
	maxWatches   = "/proc/sys/user/max_inotify_watches"
)

// TestWithoutNotices: where the system has no inotify instance left, or no watch, readers still hear of their files, which is
// said once; a file and a directory that come late, and what is no directory, are told as ever.
func TestWithoutNotices(t *testing.T) {
	if setting := os.Getenv(blindEnv); setting != "" {
		limit, value, _ := strings.Cut(setting, "=")
		if err := os.WriteFile(limit, []byte(value), 0); err != nil {
			t.Fatal(err)
		}
		blind(t)
		return
	}
	t.Parallel()
	for _, setting := range []string{maxInstances + "=0", maxWatches + "=0", maxWatches + "=1"} {
		// The limits of a user namespace are its own.
		child := exec.Command("/proc/self/exe", "-test.run=^TestWithoutNotices$", "-test.timeout=1m")
		child.Env = append(os.Environ(), blindEnv+"="+setting)
		ids := []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		gids := []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
		child.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: ids, GidMappings: gids}
		output, err := child.CombinedOutput()
		if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSPC) {
			skiplog.Skip(t, fmt.Sprint("this host gives no user namespace: ", err))
		}
		if err != nil {
			t.Errorf("with %s: %v\n%s", setting, err, output)
		}
	}
}

func blind(t *testing.T) {
	said := 0
	notices := execlog.Notices{Blind: func(err error) {
		said++
		if !strings.Contains(err.Error(), "raise fs.inotify.max_user_instances") {
			t.Errorf("it says %v", err)
		}
	}}
	dir := t.TempDir()
	var all []*execlog.Watch
	for _, name := range []string{"one", "two"} {
		path := filepath.Join(dir, name, "log")
		if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		w, log := watch(t, &notices, path), execlog.New(path)
		defer log.Close()
		await(t, w, log, "")
		text := ""
		for range 3 {
			write(t, path, "line\n")
			text += "line\n"
			await(t, w, log, text)
		}
		all = append(all, w)
	}
	if said != 1 {
		t.Errorf("it is said %d times", said)
	}
	for _, w := range all {
		w.Close()
	}
	if _, err := notices.Watch(filepath.Join(dir, "none", "log")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a directory: %v", err)
	}
}
