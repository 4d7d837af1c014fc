//go:build long

package mounts_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/dockertest/skiplog"
	"github.com/agbox-dev/agbox/test/servertest"
)

// TestLongCopyOnWriteRepository: a sandbox on a repository of 20,000 files commits, removes, renames, changes permissions and
// links. The list is exactly that, and applied it makes the host's tree the sandbox's. The log tells how long a create takes
// with the mount and without it.
func TestLongCopyOnWriteRepository(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		skiplog.Skip(t, "needs git: install Debian's package git")
	}
	d := servertest.Start(t)
	c := library(t, d)
	repo := filepath.Join(t.TempDir(), "repo")
	for i := range 20_000 {
		name := filepath.Join(repo, fmt.Sprintf("d%03d", i/100), fmt.Sprintf("f%05d.txt", i))
		if i%100 == 0 {
			if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(name, fmt.Appendf(nil, "file %d\n", i), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	git := func(args ...string) {
		t.Helper()
		command := exec.Command("git", append([]string{"-c", "user.name=a", "-c", "user.email=a@b", "-c", "gc.auto=0", "-C", repo}, args...)...)
		command.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
		if out, err := command.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v: %s", args, err, out)
		}
	}
	git("init", "-q")
	git("add", ".")
	git("commit", "-q", "-m", "first")

	var with, without []time.Duration
	create := func(mounts ...*agboxv1.MountSpec) (string, time.Duration) {
		began := time.Now()
		id := d.Create(&agboxv1.CreateSpec{Mounts: mounts})
		return id, time.Since(began)
	}
	cow := &agboxv1.MountSpec{Source: repo, Target: "/workspace", Mode: "cow"}
	for range 7 {
		id, took := create()
		without = append(without, took)
		d.Delete(id)
		id, took = create(cow)
		with = append(with, took)
		d.Delete(id)
	}
	slices.Sort(with)
	slices.Sort(without)
	t.Logf("READY after a median of %v with the mount, %v without it", with[3], without[3])

	// The image is busybox; git and what it needs are the host's.
	id, _ := create(cow, &agboxv1.MountSpec{Source: "/usr", Target: "/usr"}, &agboxv1.MountSpec{Source: "/usr/lib", Target: "/lib"},
		&agboxv1.MountSpec{Source: "/usr/lib64", Target: "/lib64"})
	look := "cd /workspace && find . -exec stat -c '%F %a %n' {} + | sed '1s/.*//' | sort; find . -type l -exec readlink {} +; find . -type f -exec md5sum {} + | sort -k2"
	asRoot(t, d, id, `export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null HOME=/tmp; cd /workspace
		git() { /usr/bin/git -c safe.directory=* -c user.name=a -c user.email=a@b -c gc.auto=0 "$@"; }
		echo more >>d000/f00001.txt; git commit -q -am second
		rm d001/f00100.txt; mv d002/f00200.txt d002/renamed.txt; chmod 755 d003/f00300.txt; ln -s f00400.txt d004/link; mv d199 moved`)
	began := time.Now()
	text, all := changesOf(t, c, id)
	t.Logf("%d changes listed in %v", len(all), time.Since(began))
	var outside []string
	moved := 0
	for line := range strings.Lines(text) {
		switch {
		case strings.Contains(line, `".git/`), strings.Contains(line, `".git"`):
		case strings.Contains(line, `"moved/f`):
			moved++
		default:
			outside = append(outside, line)
		}
	}
	const want = `/workspace changed file "d000/f00001.txt" 644
/workspace removed file "d001/f00100.txt"
/workspace removed file "d002/f00200.txt"
/workspace added file "d002/renamed.txt" 644
/workspace changed file "d003/f00300.txt" 755
/workspace added symlink "d004/link"
/workspace removed directory "d199"
/workspace added directory "moved" 755
`
	if got := strings.Join(outside, ""); got != want || moved != 100 {
		t.Errorf("outside of .git the changes are\n%s\nwant\n%s\nand in moved there are %d", got, want, moved)
	}
	inside := asRoot(t, d, id, look)
	began = time.Now()
	if left, err := c.ApplyChanges(t.Context(), id, all); err != nil || len(left) != 0 {
		t.Errorf("left %v, %v", left, err)
	}
	t.Logf("applied in %v", time.Since(began))
	out, err := exec.Command("sh", "-c", strings.ReplaceAll(look, "/workspace", repo)).Output()
	if err != nil {
		t.Fatal(err)
	}
	if string(out) != inside {
		t.Errorf("the host's tree has %d lines and is not the sandbox's, which has %d", strings.Count(string(out), "\n"), strings.Count(inside, "\n"))
	}
	git("fsck", "--no-progress")
	if got, _ := changesOf(t, c, id); got != "" {
		t.Errorf("after all was applied there is still\n%s", got)
	}
}
