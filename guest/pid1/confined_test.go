package pid1_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/agbox-dev/agbox/guest/link"
	"github.com/agbox-dev/agbox/guest/protocol"
)

func TestReadOnlyRoot(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.ReadOnly = true
	b.check(os.Mkdir(filepath.Join(b.Root, "workspace"), 0o755))
	b.start()
	b.expect(b.sh("pwd; id -u"), 0, "/workspace\n1000\n")
	b.boot()
}

func TestReadOnlyRootWithoutWorkdir(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.ReadOnly = true
	b.start()
	if o := b.run("true"); o.ErrorCode != protocol.CodeCwdInvalid {
		t.Fatalf("%+v", o)
	}
	b.expect(b.wait(b.spec([]string{"pwd"}, func(s *link.ExecSpec) { s.Cwd = "/" })), 0, "/\n")
}

// As under docker run --user 1000.
func TestUnprivileged(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.UID = 1000
	b.check(os.Mkdir(filepath.Join(b.Root, "workspace"), 0o777))
	b.Env = []string{"PATH=/bin", "HOME=/home/agbox"}
	b.start("--image-user=1000")
	b.boot()
	b.expect(b.sh("id -u; echo $HOME; echo x > /dev/stderr"), 0, "1000\n/home/agbox\n")
	o := b.wait(b.spec([]string{"true"}, func(s *link.ExecSpec) { s.User = "root" }))
	if o.ErrorCode != protocol.CodeUserUnknown || !strings.Contains(o.ErrorMessage, "without the right to switch") {
		t.Fatalf("%+v", o.Result)
	}
	b.expect(b.wait(b.spec([]string{"id", "-u"}, func(s *link.ExecSpec) { s.User = "agbox" })), 0, "1000\n")
	cancelled(b.begin("setsid sleep 300 & echo ready; sleep 300"), time.Minute, 15)
	// A command of the same user finds init's memory and descriptors closed to it.
	if o := b.sh("ls /proc/1/fd"); o.ExitCode == 0 {
		t.Fatalf("%+v", o)
	}
	b.term()
	b.ended()
}

func TestNoCapabilities(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.NoCaps = true
	b.start()
	b.boot()
	b.expect(b.sh("id -u; echo x > /dev/stderr"), 0, "0\n")
	cancelled(b.begin("setsid sleep 300 & echo ready; sleep 300"), time.Minute, 15)
	b.term()
	b.ended()
}

// An image that holds one static program and nothing else.
func TestNoShell(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	for _, path := range []string{"bin", "etc", "root", "home"} {
		b.check(os.RemoveAll(filepath.Join(b.Root, path)))
	}
	b.start()
	b.boot()
	o := b.run("/.agbox/init", "version")
	if o.ExitCode != 0 || !strings.HasPrefix(o.stdout, "agbox-init ") {
		t.Fatalf("%+v", o)
	}
	if o := b.run("sh"); o.ErrorCode != protocol.CodeCommandNotFound {
		t.Fatalf("%+v", o)
	}
}

func TestWorkdir(t *testing.T) {
	t.Parallel()
	b := newBox(t).start("--workdir=/srv/my work")
	b.expect(b.sh("pwd; touch x && echo mine"), 0, "/srv/my work\nmine\n")
}

// A directory that the image has, or that is mounted, keeps its owner when it is the working directory.
func TestWorkdirMounted(t *testing.T) {
	t.Parallel()
	for _, dir := range []string{"/tmp", "/", "/bin"} { // the stage mounts file systems of root's at the first two
		b := newBox(t).start("--workdir=" + dir)
		var st syscall.Stat_t
		b.check(syscall.Stat(strings.TrimSuffix(b.address(), "/.agbox/run/s")+dir, &st))
		if st.Uid != 0 {
			t.Error(dir, st.Uid)
		}
	}
}

// What the daemon has run for itself is init's own program, whatever lies where that came from.
func TestOwnProgram(t *testing.T) {
	t.Parallel()
	b := newBox(t).start()
	b.boot()
	b.write("other", "#!/bin/sh\necho an attacker's\n", 0o755)
	b.check(os.Rename(filepath.Join(b.Root, "other"), filepath.Join(b.Root, ".agbox/init")))
	s := b.spec([]string{"/.agbox/init", "version"})
	log := s.ID
	s.ID = protocol.InsidePrefix + "x"
	r, err := b.link.Exec(b.context(), s)
	b.check(err)
	if said := b.file(log, "stdout"); r.ExitCode != 0 || !strings.HasPrefix(said, "agbox-init ") {
		t.Fatalf("%q, %+v", said, r)
	}
}
