package initlink_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/agbox-dev/agbox/dockerrt/initlink"
	"github.com/agbox-dev/agbox/dockerrt/initproto"
)

func itoa(n int) string { return strconv.Itoa(n) }

func TestExec(t *testing.T) {
	l, _, p := open(t, initproto.Hello{})
	started := make(chan int, 2)
	s := spec(t, "e")
	s.Env, s.Cwd, s.User, s.Timeout, s.Grace = []string{"A=b"}, "sub", "me", time.Minute, time.Second
	s.MaxOutput = 9
	s.OnStarted = func(pid int) { started <- pid }
	done := exec(l, limit(t), s)
	m, files := p.hear()
	got, ok := m.(*initproto.Exec)
	if !ok || files != 3 || got.ID != "e" || got.Argv[0] != "true" || got.Env[0] != "A=b" || got.Cwd != "sub" ||
		got.User != "me" || got.Timeout != time.Minute || got.Grace != time.Second || got.MaxOutput != 9 {
		t.Fatalf("%+v with %d files", m, files)
	}
	p.say(&initproto.Started{ID: "e", PID: 7})
	if pid := <-started; pid != 7 {
		t.Fatal(pid)
	}
	p.say(&initproto.Result{ID: "other", ExitCode: 1})
	p.say(&initproto.Result{ID: "e", ExitCode: 2})
	if a := <-done; a.error != nil || a.ExitCode != 2 {
		t.Fatalf("%+v", a)
	}
	l.Ack("e")
	if ack := hears[*initproto.Ack](p); ack.ID != "e" {
		t.Fatal(ack)
	}
}

// An init of before descriptors had roles would never answer.
func TestExecWithInputNeedsNewInit(t *testing.T) {
	l, _, _ := open(t, initproto.Hello{})
	s := spec(t, "e")
	s.Terminal = &initproto.Size{Rows: 1, Columns: 1}
	if a := <-exec(l, limit(t), s); !errors.Is(a.error, initlink.ErrTooOld) {
		t.Fatalf("%+v", a)
	}
}

// A call for an id that another one waits for takes its place when that one gives up.
func TestExecTwice(t *testing.T) {
	l, _, p := open(t, initproto.Hello{})
	giveUp, detach := context.WithCancel(context.Background())
	first := exec(l, giveUp, spec(t, "e"))
	hears[*initproto.Exec](p)
	second := exec(l, limit(t), spec(t, "e"))
	detach()
	if a := <-first; !errors.Is(a.error, context.Canceled) {
		t.Fatalf("%+v", a)
	}
	hears[*initproto.Exec](p)
	p.say(&initproto.Result{ID: "e", ExitCode: 4})
	if a := <-second; a.error != nil || a.ExitCode != 4 {
		t.Fatalf("%+v", a)
	}
}

// The end of the caller's context detaches; the next Exec attaches.
func TestExecDetach(t *testing.T) {
	l, _, p := open(t, initproto.Hello{})
	ctx, detach := context.WithCancel(context.Background())
	done := exec(l, ctx, spec(t, "e"))
	hears[*initproto.Exec](p)
	detach()
	if a := <-done; !errors.Is(a.error, context.Canceled) {
		t.Fatalf("%+v", a)
	}
	done = exec(l, limit(t), spec(t, "e"))
	hears[*initproto.Exec](p) // and no Cancel before it
	p.say(&initproto.Result{ID: "e", ExitCode: 3})
	if a := <-done; a.ExitCode != 3 {
		t.Fatalf("%+v", a)
	}
}

// After a reconnect Exec is repeated only where init has not heard it, Cancel always.
func TestExecAcrossReconnect(t *testing.T) {
	l, path, p := open(t, initproto.Hello{})
	started := make(chan int, 1)
	s := spec(t, "known")
	s.OnStarted = func(pid int) { started <- pid }
	known := exec(l, limit(t), s)
	hears[*initproto.Exec](p)
	lost := exec(l, limit(t), spec(t, "lost"))
	hears[*initproto.Exec](p)
	check(t, l.Cancel(limit(t), "known", time.Second))
	hears[*initproto.Cancel](p)
	p.conn.Close()

	p = greet(t, path, initproto.Hello{Execs: []initproto.KnownExec{{ID: "known", PID: 9}}})
	var execs, cancels int
	for range 2 {
		switch m, _ := p.hear(); m := m.(type) {
		case *initproto.Exec:
			execs++
			if m.ID != "lost" {
				t.Fatalf("%+v", m)
			}
		case *initproto.Cancel:
			cancels++
			if m.ID != "known" || m.Grace != time.Second {
				t.Fatalf("%+v", m)
			}
		}
	}
	if execs != 1 || cancels != 1 {
		t.Fatal(execs, cancels)
	}
	if pid := <-started; pid != 9 {
		t.Fatal(pid)
	}
	p.say(&initproto.Result{ID: "known", ExitCode: 143})
	p.say(&initproto.Result{ID: "lost"})
	if a := <-known; a.ExitCode != 143 || a.error != nil {
		t.Fatalf("%+v", a)
	}
	if a := <-lost; a.error != nil {
		t.Fatalf("%+v", a)
	}
}

// A cancel that comes before the Exec, or after its caller has detached, is not forgotten.
func TestCancelWithoutCall(t *testing.T) {
	l, path, p := open(t, initproto.Hello{})
	check(t, l.Cancel(limit(t), "e", time.Second))
	hears[*initproto.Cancel](p)
	ctx, detach := context.WithCancel(context.Background())
	done := exec(l, ctx, spec(t, "e"))
	hears[*initproto.Exec](p)
	hears[*initproto.Cancel](p)
	detach()
	<-done
	p.conn.Close()
	p = greet(t, path, initproto.Hello{Execs: []initproto.KnownExec{{ID: "e", PID: 9}}})
	hears[*initproto.Cancel](p)
	l.Ack("e")
	hears[*initproto.Ack](p)
	p.conn.Close()
	p = greet(t, path, initproto.Hello{Execs: []initproto.KnownExec{{ID: "e", PID: 9}}})
	check(t, l.Stop(limit(t), 0))
	hears[*initproto.Stop](p) // and no Cancel before it
}

// An acknowledgement while init is away is said when it comes back.
func TestAckWhileAway(t *testing.T) {
	path := t.TempDir() + "/s"
	l := listen(t, path, trust)
	l.Ack("ended")
	l.Ack("forgotten")
	p := greet(t, path, initproto.Hello{Execs: []initproto.KnownExec{{ID: "ended"}}})
	if ack := hears[*initproto.Ack](p); ack.ID != "ended" {
		t.Fatal(ack)
	}
	check(t, l.Stop(limit(t), time.Second))
	if stop := hears[*initproto.Stop](p); stop.Grace != time.Second {
		t.Fatal(stop)
	}
}

func TestBoot(t *testing.T) {
	l, path, p := open(t, initproto.Hello{})
	f := spec(t, "").Files[0]
	type booted struct {
		initlink.BootStatus
		error
	}
	done := make(chan booted)
	boot := func() {
		s, err := l.Boot(limit(t), f, f, nil)
		done <- booted{s, err}
	}
	go boot()
	if m, files := p.hear(); files != 2 || m.Type() != initproto.TypeBoot {
		t.Fatal(m, files)
	}
	p.conn.Close()
	p = greet(t, path, initproto.Hello{}) // has not heard it
	hears[*initproto.Boot](p)
	p.conn.Close()
	p = greet(t, path, initproto.Hello{Booted: true}) // has
	want := initlink.BootStatus{State: initproto.BootExited, ExitCode: 3}
	p.say(&initproto.Booted{Status: want})
	if b := <-done; b.error != nil || b.BootStatus != want {
		t.Fatalf("%+v", b)
	}
	p.conn.Close()
	greet(t, path, initproto.Hello{Booted: true, Status: want})
	go boot()
	if b := <-done; b.error != nil || b.BootStatus != want {
		t.Fatalf("%+v", b)
	}
}

// The main command's record goes with Boot; an Exec of its id brings no files, and attaches again
// where init does not list it.
func TestCommand(t *testing.T) {
	l, path, p := open(t, initproto.Hello{})
	f := spec(t, "").Files[0]
	booted := make(chan error)
	go func() {
		_, err := l.Boot(limit(t), f, f, f)
		booted <- err
	}()
	if m, files := p.hear(); files != 3 || m.Type() != initproto.TypeBoot {
		t.Fatal(m, files)
	}
	p.say(&initproto.Booted{Status: initlink.BootStatus{State: initproto.BootHandedOver}})
	check(t, <-booted)
	done := exec(l, limit(t), initlink.ExecSpec{ID: initproto.CommandID})
	if m, files := p.hear(); files != 0 || m.(*initproto.Exec).ID != initproto.CommandID {
		t.Fatal(m, files)
	}
	p.conn.Close()
	p = greet(t, path, initproto.Hello{Booted: true})
	hears[*initproto.Exec](p)
	p.say(&initproto.Result{ID: initproto.CommandID, ExitCode: 5})
	if a := <-done; a.error != nil || a.ExitCode != 5 {
		t.Fatalf("%+v", a)
	}
}
