package pid1_test

import (
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agbox-dev/agbox/guest/link"
	"github.com/agbox-dev/agbox/guest/protocol"
)

// lease has every open of a file in the box wait until the test is over: who opens it is held by the kernel for 45 s, or
// until the holder of the lease lets go.
func (b *box) lease(path string) {
	b.Helper()
	f, err := os.Open(filepath.Join(b.Root, path))
	b.check(err)
	b.Cleanup(func() { f.Close() })
	_, err = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK)
	b.check(err)
}

func at(timeout time.Duration) func(*link.ExecSpec) {
	return func(s *link.ExecSpec) { s.Timeout, s.Grace = timeout, timeout }
}

// A program that cannot be opened holds up nobody but the exec that asked for it, and that one can be ended.
func TestStartHeldByLease(t *testing.T) {
	b := newBox(t)
	b.write("bin/held", "#!/bin/sh\n", 0o755)
	b.start()
	b.lease("bin/held")
	stuck := make(chan outcome, 3)
	for range 2 {
		s := b.spec([]string{"held"}, at(300*time.Millisecond))
		go func() { stuck <- b.wait(s) }()
	}
	s := b.spec([]string{"held"})
	go func() { stuck <- b.wait(s) }()
	for range 100 { // enough for init to collect its garbage meanwhile
		b.expect(b.run("true"), 0, "")
	}
	b.check(b.link.Cancel(b.context(), s.ID, time.Minute))
	for range 3 {
		if o := <-stuck; !o.Cancelled || o.Signal != 15 || o.TimedOut == (o.ID == s.ID) {
			t.Fatalf("%+v", o.Result)
		}
	}
	if left := b.processes(); len(left) > 0 {
		t.Fatalf("%q", left)
	}
}

// While a start is held up its child shares init's memory. What its user does to it is done to it alone.
func TestStartHeldAndSignalled(t *testing.T) {
	b := newBox(t)
	b.write("bin/held", "#!/bin/sh\n", 0o755)
	b.start()
	b.lease("bin/held")
	stuck := make(chan outcome)
	s := b.spec([]string{"held"})
	go func() { stuck <- b.wait(s) }()
	b.expect(b.sh(`until [ "$found" ]; do for p in /proc/[0-9]*; do
		[ $p != /proc/1 ] && grep -q '^init$' $p/comm 2>/dev/null && ! cat $p/mem 2>/dev/null && kill -QUIT ${p#/proc/} && found=1
	done; done; true`), 0, "")
	if o := <-stuck; o.Signal != 3 {
		t.Fatalf("%+v", o.Result)
	}
	b.expect(b.run("true"), 0, "")
}

// Without a timeout of its own such an exec ends as well, and says why.
func TestStartGivenUp(t *testing.T) {
	b := newBox(t)
	b.write("bin/held", "#!/bin/sh\n", 0o755)
	b.start("--start-limit=200ms")
	b.lease("bin/held")
	o := b.run("held")
	if o.ErrorCode != protocol.CodeStartFailed || o.ExitCode != 126 {
		t.Fatalf("%+v", o.Result)
	}
	for len(b.processes()) > 0 { // it is killed
		b.expect(b.run("true"), 0, "")
	}
}

// The entrypoint and the main command are started in the same way.
func TestBootHeldByLease(t *testing.T) {
	b := newBox(t)
	b.write("entrypoint", "#!/bin/sh\n", 0o755)
	b.start("--start-limit=300ms", "--entrypoint-words=1", "--", "/entrypoint", "true")
	b.lease("entrypoint")
	booted := make(chan link.BootStatus)
	go func() { booted <- b.boot() }()
	b.expect(b.run("true"), 0, "")
	if got := <-booted; got.State != protocol.BootExited || got.ExitCode != 126 {
		t.Fatalf("%+v", got)
	}
}

// Accounts are read while somebody swaps the file for what never opens.
func TestAccountsSwapped(t *testing.T) {
	b := newBox(t).start()
	path := filepath.Join(b.Root, "etc/passwd")
	stop := make(chan struct{})
	var swapper sync.WaitGroup
	swapper.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			os.Remove(path + ".new")
			if i%2 == 0 {
				syscall.Mkfifo(path+".new", 0o644)
			} else {
				os.WriteFile(path+".new", []byte(passwd), 0o644)
			}
			os.Rename(path+".new", path)
		}
	})
	defer swapper.Wait()
	defer close(stop)
	for range 150 { // by number: names come and go
		if o := b.wait(b.spec([]string{"true"}, func(s *link.ExecSpec) { s.User = "0" })); o.ExitCode != 0 {
			t.Fatalf("%+v", o.Result)
		}
	}
}

// While nobody can tell who is who, nobody is started as somebody else; those that need no account go on.
func TestAccountsHeldByLease(t *testing.T) {
	b := newBox(t).start()
	b.lease("etc/passwd")
	for _, user := range []string{"", "agbox"} {
		o := b.wait(b.spec([]string{"true"}, func(s *link.ExecSpec) { s.User = user }))
		if o.ErrorCode != protocol.CodeUserUnknown {
			t.Fatalf("%+v", o.Result)
		}
	}
	b.expect(b.wait(b.spec([]string{"true"}, func(s *link.ExecSpec) { s.User, s.Cwd = "0", "/" })), 0, "")
}

// The sandbox stops at once all the same.
func TestStopWhileHeld(t *testing.T) {
	b := newBox(t)
	b.write("bin/held", "#!/bin/sh\n", 0o755)
	b.start()
	b.lease("bin/held")
	s := b.spec([]string{"held"})
	result := make(chan protocol.Result, 1)
	go func() {
		r, _ := b.link.Exec(b.context(), s)
		result <- r
	}()
	b.expect(b.run("true"), 0, "")
	b.check(b.link.Stop(b.context(), time.Minute))
	if r := <-result; r.Signal != 15 && r.ErrorCode != protocol.CodeStopping {
		t.Fatalf("%+v", r)
	}
	if code := b.ended(); code != 0 {
		t.Fatal(code)
	}
}
