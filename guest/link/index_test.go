package link_test

import (
	"os"
	"slices"
	"testing"

	"github.com/agbox-dev/agbox/guest/protocol"
)

// An index goes to init, but not where a terminal makes one stream of both.
func TestExecIndex(t *testing.T) {
	always := []string{protocol.RoleStdout, protocol.RoleStderr, protocol.RoleRecord}
	l, _, p := open(t, protocol.Hello{})
	s := spec(t, "index")
	s.Index = s.Files[0]
	exec(l, limit(t), s)
	if m, files := p.hear(); files != 4 || !slices.Equal(m.(*protocol.Exec).Roles, append(always, protocol.RoleIndex)) {
		t.Fatalf("%+v with %d files", m, files)
	}
	s.ID, s.Terminal = "terminal", &protocol.Size{}
	exec(l, limit(t), s)
	if m, files := p.hear(); files != 3 || !slices.Equal(m.(*protocol.Exec).Roles, always) {
		t.Fatalf("%+v with %d files", m, files)
	}
	s.ID, s.Terminal, s.Stdin = "all", nil, [2]*os.File(s.Files[:2])
	exec(l, limit(t), s)
	want := append(always, protocol.RoleStdin, protocol.RoleStdinKeeper, protocol.RoleIndex)
	if m, files := p.hear(); files != 6 || !slices.Equal(m.(*protocol.Exec).Roles, want) {
		t.Fatalf("%+v with %d files", m, files)
	}
}
