package link_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/agbox-dev/agbox/guest/link"
	"github.com/agbox-dev/agbox/guest/protocol"
)

func itoa(n int) string { return strconv.Itoa(n) }

func TestExec(t *testing.T) {
	l, _, p := open(t, protocol.Hello{})
	started := make(chan int, 2)
	s := spec(t, "e")
	s.Env, s.Cwd, s.User, s.Timeout, s.Grace = []string{"A=b"}, "sub", "me", time.Minute, time.Second
	s.MaxOutput = 9
	s.OnStarted = func(pid int) { started <- pid }
	done := exec(l, limit(t), s)
	m, files := p.hear()
	got, ok := m.(*protocol.Exec)
	if !ok || files != 3 || got.ID != "e" || got.Argv[0] != "true" || got.Env[0] != "A=b" || got.Cwd != "sub" ||
		got.User != "me" || got.Timeout != time.Minute || got.Grace != time.Second || got.MaxOutput != 9 {
		t.Fatalf("%+v with %d files", m, files)
	}
	p.say(&protocol.Started{ID: "e", PID: 7})
	if pid := <-started; pid != 7 {
		t.Fatal(pid)
	}
	p.say(&protocol.Result{ID: "other", ExitCode: 1})
	p.say(&protocol.Result{ID: "e", ExitCode: 2})
	if a := <-done; a.error != nil || a.ExitCode != 2 {
		t.Fatalf("%+v", a)
	}
	l.Ack("e")
	if ack := hears[*protocol.Ack](p); ack.ID != "e" {
		t.Fatal(ack)
	}
}

// A call for an id that another one waits for takes its place when that one gives up.
func TestExecTwice(t *testing.T) {
	l, _, p := open(t, protocol.Hello{})
	giveUp, detach := context.WithCancel(context.Background())
	first := exec(l, giveUp, spec(t, "e"))
	hears[*protocol.Exec](p)
	second := exec(l, limit(t), spec(t, "e"))
	detach()
	if a := <-first; !errors.Is(a.error, context.Canceled) {
		t.Fatalf("%+v", a)
	}
	hears[*protocol.Exec](p)
	p.say(&protocol.Result{ID: "e", ExitCode: 4})
	if a := <-second; a.error != nil || a.ExitCode != 4 {
		t.Fatalf("%+v", a)
	}
}

// The end of the caller's context detaches; the next Exec attaches.
func TestExecDetach(t *testing.T) {
	l, _, p := open(t, protocol.Hello{})
	ctx, detach := context.WithCancel(context.Background())
	done := exec(l, ctx, spec(t, "e"))
	hears[*protocol.Exec](p)
	detach()
	if a := <-done; !errors.Is(a.error, context.Canceled) {
		t.Fatalf("%+v", a)
	}
	done = exec(l, limit(t), spec(t, "e"))
	hears[*protocol.Exec](p) // and no Cancel before it
	p.say(&protocol.Result{ID: "e", ExitCode: 3})
	if a := <-done; a.ExitCode != 3 {
		t.Fatalf("%+v", a)
	}
}

// After a reconnect Exec is repeated only where init has not heard it, Cancel always.
func TestExecAcrossReconnect(t *testing.T) {
	l, path, p := open(t, protocol.Hello{})
	started := make(chan int, 1)
	s := spec(t, "known")
	s.OnStarted = func(pid int) { started <- pid }
	known := exec(l, limit(t), s)
	hears[*protocol.Exec](p)
	lost := exec(l, limit(t), spec(t, "lost"))
	hears[*protocol.Exec](p)
	check(t, l.Cancel(limit(t), "known", time.Second))
	hears[*protocol.Cancel](p)
	p.conn.Close()

	p = greet(t, path, protocol.Hello{Execs: []protocol.KnownExec{{ID: "known", PID: 9}}})
	var execs, cancels int
	for range 2 {
		switch m, _ := p.hear(); m := m.(type) {
		case *protocol.Exec:
			execs++
			if m.ID != "lost" {
				t.Fatalf("%+v", m)
			}
		case *protocol.Cancel:
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
	p.say(&protocol.Result{ID: "known", ExitCode: 143})
	p.say(&protocol.Result{ID: "lost"})
	if a := <-known; a.ExitCode != 143 || a.error != nil {
		t.Fatalf("%+v", a)
	}
	if a := <-lost; a.error != nil {
		t.Fatalf("%+v", a)
	}
}

// A cancel that comes before the Exec, or after its caller has detached, is not forgotten.
func TestCancelWithoutCall(t *testing.T) {
	l, path, p := open(t, protocol.Hello{})
	check(t, l.Cancel(limit(t), "e", time.Second))
	hears[*protocol.Cancel](p)
	ctx, detach := context.WithCancel(context.Background())
	done := exec(l, ctx, spec(t, "e"))
	hears[*protocol.Exec](p)
	hears[*protocol.Cancel](p)
	detach()
	<-done
	p.conn.Close()
	p = greet(t, path, protocol.Hello{Execs: []protocol.KnownExec{{ID: "e", PID: 9}}})
	hears[*protocol.Cancel](p)
	l.Ack("e")
	hears[*protocol.Ack](p)
	p.conn.Close()
	p = greet(t, path, protocol.Hello{Execs: []protocol.KnownExec{{ID: "e", PID: 9}}})
	check(t, l.Stop(limit(t), 0))
	hears[*protocol.Stop](p) // and no Cancel before it
}

// An acknowledgement while init is away is said when it comes back.
func TestAckWhileAway(t *testing.T) {
	path := t.TempDir() + "/s"
	l := listen(t, path, trust)
	l.Ack("ended")
	l.Ack("forgotten")
	p := greet(t, path, protocol.Hello{Execs: []protocol.KnownExec{{ID: "ended"}}})
	if ack := hears[*protocol.Ack](p); ack.ID != "ended" {
		t.Fatal(ack)
	}
	check(t, l.Stop(limit(t), time.Second))
	if stop := hears[*protocol.Stop](p); stop.Grace != time.Second {
		t.Fatal(stop)
	}
}

func TestBoot(t *testing.T) {
	l, path, p := open(t, protocol.Hello{})
	f := spec(t, "").Files[0]
	type booted struct {
		link.BootStatus
		error
	}
	done := make(chan booted)
	boot := func() {
		s, err := l.Boot(limit(t), nil, f, f, nil)
		done <- booted{s, err}
	}
	go boot()
	if m, files := p.hear(); files != 2 || m.Type() != protocol.TypeBoot {
		t.Fatal(m, files)
	}
	p.conn.Close()
	p = greet(t, path, protocol.Hello{}) // has not heard it
	hears[*protocol.Boot](p)
	p.conn.Close()
	p = greet(t, path, protocol.Hello{Booted: true}) // has
	want := link.BootStatus{State: protocol.BootExited, ExitCode: 3}
	p.say(&protocol.Booted{Status: want})
	if b := <-done; b.error != nil || b.BootStatus != want {
		t.Fatalf("%+v", b)
	}
	p.conn.Close()
	greet(t, path, protocol.Hello{Booted: true, Status: want})
	go boot()
	if b := <-done; b.error != nil || b.BootStatus != want {
		t.Fatalf("%+v", b)
	}
}

// The main command's record goes with Boot; an Exec of its id brings no files, and attaches again
// where init does not list it.
func TestCommand(t *testing.T) {
	l, path, p := open(t, protocol.Hello{})
	f := spec(t, "").Files[0]
	booted := make(chan error)
	go func() {
		_, err := l.Boot(limit(t), nil, f, f, f)
		booted <- err
	}()
	if m, files := p.hear(); files != 3 || m.Type() != protocol.TypeBoot {
		t.Fatal(m, files)
	}
	p.say(&protocol.Booted{Status: link.BootStatus{State: protocol.BootHandedOver}})
	check(t, <-booted)
	done := exec(l, limit(t), link.ExecSpec{ID: protocol.CommandID})
	if m, files := p.hear(); files != 0 || m.(*protocol.Exec).ID != protocol.CommandID {
		t.Fatal(m, files)
	}
	p.conn.Close()
	p = greet(t, path, protocol.Hello{Booted: true})
	hears[*protocol.Exec](p)
	p.say(&protocol.Result{ID: protocol.CommandID, ExitCode: 5})
	if a := <-done; a.error != nil || a.ExitCode != 5 {
		t.Fatalf("%+v", a)
	}
}
