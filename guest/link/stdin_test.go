package link_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"syscall"
	"testing"

	"github.com/agbox-dev/agbox/guest/link"
	"github.com/agbox-dev/agbox/guest/protocol"
)

// The roles of descriptors are named only where there are more than the three that every init knows.
func TestExecRoles(t *testing.T) {
	l, _, p := open(t, protocol.Hello{})
	exec(l, limit(t), spec(t, "plain"))
	if m := hears[*protocol.Exec](p); !slices.Equal(m.Roles, []string{protocol.RoleStdout, protocol.RoleStderr, protocol.RoleRecord}) || m.Terminal != nil {
		t.Fatalf("%+v", m)
	}
	s := spec(t, "e")
	s.Stdin, s.Terminal = [2]*os.File(s.Files[:2]), &protocol.Size{Rows: 3, Columns: 4}
	exec(l, limit(t), s)
	m, files := p.hear()
	got := m.(*protocol.Exec)
	want := []string{protocol.RoleStdout, protocol.RoleStderr, protocol.RoleRecord, protocol.RoleStdin, protocol.RoleStdinKeeper}
	if files != 5 || !slices.Equal(got.Roles, want) || *got.Terminal != *s.Terminal {
		t.Fatalf("%+v with %d files", got, files)
	}
}

// The end of an input is said after the Exec that it is meant for, and again on each connection, until the result comes.
func TestCloseStdin(t *testing.T) {
	l, path, p := open(t, protocol.Hello{})
	check(t, l.CloseStdin("early")) // init knows no such exec, and lets it go by
	hears[*protocol.CloseStdin](p)
	giveUp, detach := context.WithCancel(t.Context())
	first := exec(l, giveUp, spec(t, "early"))
	hears[*protocol.Exec](p)
	hears[*protocol.CloseStdin](p)
	detach()
	<-first
	early := exec(l, limit(t), spec(t, "early"))
	hears[*protocol.Exec](p)
	if m := hears[*protocol.CloseStdin](p); m.ID != "early" {
		t.Fatalf("%+v", m)
	}
	p.conn.Close()

	p = greet(t, path, protocol.Hello{Execs: []protocol.KnownExec{{ID: "early", PID: 9}, {ID: "other", PID: 10}}})
	if m := hears[*protocol.CloseStdin](p); m.ID != "early" {
		t.Fatalf("%+v", m)
	}
	check(t, l.CloseStdin("other")) // that nobody waits for
	hears[*protocol.CloseStdin](p)
	p.say(&protocol.Result{ID: "early"})
	if a := <-early; a.error != nil {
		t.Fatal(a.error)
	}
	p.conn.Close()

	p = greet(t, path, protocol.Hello{Execs: []protocol.KnownExec{{ID: "early"}, {ID: "other", PID: 10}}})
	if m := hears[*protocol.CloseStdin](p); m.ID != "other" {
		t.Fatalf("%+v", m)
	}
	l.Ack("other")
	hears[*protocol.Ack](p)
	p.conn.Close()
	p = greet(t, path, protocol.Hello{Execs: []protocol.KnownExec{{ID: "early"}, {ID: "other", PID: 10}}})
	check(t, l.Stop(limit(t), 0))
	hears[*protocol.Stop](p) // and nothing before it
	check(t, l.Close())
	if err := l.CloseStdin("other"); !errors.Is(err, link.ErrClosed) {
		t.Fatal(err)
	}
}

func TestResize(t *testing.T) {
	l, path, p := open(t, protocol.Hello{})
	size := protocol.Size{Rows: 5, Columns: 6}
	for _, tt := range []struct {
		answer protocol.Signalled
		want   error
	}{
		{protocol.Signalled{}, nil},
		{protocol.Signalled{Outcome: protocol.SignalExecUnknown}, link.ErrExecUnknown},
		{protocol.Signalled{Outcome: protocol.SignalExecEnded}, link.ErrExecEnded},
		{protocol.Signalled{Outcome: protocol.SignalRefused, Errno: int(syscall.ENOTTY)}, link.ErrNoTerminal},
		{protocol.Signalled{Outcome: protocol.SignalRefused, Errno: int(syscall.EIO)}, syscall.EIO},
	} {
		done := make(chan error, 1)
		go func() { done <- l.Resize(limit(t), "e", size) }()
		m := hears[*protocol.Resize](p)
		if m.ID != "e" || m.Size != size {
			t.Fatalf("%+v", m)
		}
		if tt.want == nil { // the first is asked again after a reconnect
			p.conn.Close()
			p = greet(t, path, protocol.Hello{})
			m = hears[*protocol.Resize](p)
		}
		tt.answer.Token = m.Token
		p.say(&tt.answer)
		if err := <-done; !errors.Is(err, tt.want) {
			t.Errorf("%v, want %v", err, tt.want)
		}
	}
}
