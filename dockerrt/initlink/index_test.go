package initlink_test

import (
	"os"
	"slices"
	"testing"

	"github.com/agbox-dev/agbox/dockerrt/initproto"
)

// An index goes to an init that has asked for one, and neither to one of before, which would not answer, nor where a
// terminal makes one stream of both.
func TestExecIndex(t *testing.T) {
	always := []string{initproto.RoleStdout, initproto.RoleStderr, initproto.RoleRecord}
	l, path, p := open(t, initproto.Hello{})
	s := spec(t, "old")
	s.Index = s.Files[0]
	exec(l, limit(t), s)
	if m, files := p.hear(); files != 3 || m.(*initproto.Exec).Roles != nil {
		t.Fatalf("%+v with %d files", m, files)
	}
	p.conn.Close()

	p = greet(t, path, initproto.Hello{Indexes: true}) // a newer one, that has not heard of it
	if m, files := p.hear(); files != 4 || !slices.Equal(m.(*initproto.Exec).Roles, append(always, initproto.RoleIndex)) {
		t.Fatalf("%+v with %d files", m, files)
	}
	s.ID, s.Terminal = "terminal", &initproto.Size{}
	exec(l, limit(t), s)
	if m, files := p.hear(); files != 3 || m.(*initproto.Exec).Roles != nil {
		t.Fatalf("%+v with %d files", m, files)
	}
	s.ID, s.Terminal, s.Stdin = "all", nil, [2]*os.File(s.Files[:2])
	exec(l, limit(t), s)
	want := append(always, initproto.RoleStdin, initproto.RoleStdinKeeper, initproto.RoleIndex)
	if m, files := p.hear(); files != 6 || !slices.Equal(m.(*initproto.Exec).Roles, want) {
		t.Fatalf("%+v with %d files", m, files)
	}
}
