package initlink_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"syscall"
	"testing"

	"github.com/agbox-dev/agbox/dockerrt/initlink"
	"github.com/agbox-dev/agbox/dockerrt/initproto"
)

// The roles of descriptors are named only where there are more than the three that every init knows.
func TestExecRoles(t *testing.T) {
	l, _, p := open(t, initproto.Hello{Indexes: true})
	exec(l, limit(t), spec(t, "plain"))
	if m := hears[*initproto.Exec](p); m.Roles != nil || m.Terminal != nil {
		t.Fatalf("%+v", m)
	}
	s := spec(t, "e")
	s.Stdin, s.Terminal = [2]*os.File(s.Files[:2]), &initproto.Size{Rows: 3, Columns: 4}
	exec(l, limit(t), s)
	m, files := p.hear()
	got := m.(*initproto.Exec)
	want := []string{initproto.RoleStdout, initproto.RoleStderr, initproto.RoleRecord, initproto.RoleStdin, initproto.RoleStdinKeeper}
	if files != 5 || !slices.Equal(got.Roles, want) || *got.Terminal != *s.Terminal {
		t.Fatalf("%+v with %d files", got, files)
	}
}

// The end of an input is said after the Exec that it is meant for, and again on each connection, until the result comes.
func TestCloseStdin(t *testing.T) {
	l, path, p := open(t, initproto.Hello{})
	check(t, l.CloseStdin("early")) // init knows no such exec, and lets it go by
	hears[*initproto.CloseStdin](p)
	giveUp, detach := context.WithCancel(t.Context())
	first := exec(l, giveUp, spec(t, "early"))
	hears[*initproto.Exec](p)
	hears[*initproto.CloseStdin](p)
	detach()
	<-first
	early := exec(l, limit(t), spec(t, "early"))
	hears[*initproto.Exec](p)
	if m := hears[*initproto.CloseStdin](p); m.ID != "early" {
		t.Fatalf("%+v", m)
	}
	p.conn.Close()

	p = greet(t, path, initproto.Hello{Execs: []initproto.KnownExec{{ID: "early", PID: 9}, {ID: "other", PID: 10}}})
	if m := hears[*initproto.CloseStdin](p); m.ID != "early" {
		t.Fatalf("%+v", m)
	}
	check(t, l.CloseStdin("other")) // that nobody waits for
	hears[*initproto.CloseStdin](p)
	p.say(&initproto.Result{ID: "early"})
	if a := <-early; a.error != nil {
		t.Fatal(a.error)
	}
	p.conn.Close()

	p = greet(t, path, initproto.Hello{Execs: []initproto.KnownExec{{ID: "early"}, {ID: "other", PID: 10}}})
	if m := hears[*initproto.CloseStdin](p); m.ID != "other" {
		t.Fatalf("%+v", m)
	}
	l.Ack("other")
	hears[*initproto.Ack](p)
	p.conn.Close()
	p = greet(t, path, initproto.Hello{Execs: []initproto.KnownExec{{ID: "early"}, {ID: "other", PID: 10}}})
	check(t, l.Stop(limit(t), 0))
	hears[*initproto.Stop](p) // and nothing before it
	check(t, l.Close())
	if err := l.CloseStdin("other"); !errors.Is(err, initlink.ErrClosed) {
		t.Fatal(err)
	}
}

func TestResize(t *testing.T) {
	l, path, p := open(t, initproto.Hello{})
	size := initproto.Size{Rows: 5, Columns: 6}
	for _, tt := range []struct {
		answer initproto.Signalled
		want   error
	}{
		{initproto.Signalled{}, nil},
		{initproto.Signalled{Outcome: initproto.SignalExecUnknown}, initlink.ErrExecUnknown},
		{initproto.Signalled{Outcome: initproto.SignalExecEnded}, initlink.ErrExecEnded},
		{initproto.Signalled{Outcome: initproto.SignalRefused, Errno: int(syscall.ENOTTY)}, initlink.ErrNoTerminal},
		{initproto.Signalled{Outcome: initproto.SignalRefused, Errno: int(syscall.EIO)}, syscall.EIO},
	} {
		done := make(chan error, 1)
		go func() { done <- l.Resize(limit(t), "e", size) }()
		m := hears[*initproto.Resize](p)
		if m.ID != "e" || m.Size != size {
			t.Fatalf("%+v", m)
		}
		if tt.want == nil { // the first is asked again after a reconnect
			p.conn.Close()
			p = greet(t, path, initproto.Hello{})
			m = hears[*initproto.Resize](p)
		}
		tt.answer.Token = m.Token
		p.say(&tt.answer)
		if err := <-done; !errors.Is(err, tt.want) {
			t.Errorf("%v, want %v", err, tt.want)
		}
	}
}
