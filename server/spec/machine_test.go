package spec_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agbox-dev/agbox/hostpath"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/server/spec"
)

// machine is a host on a directory of the test's own.
type machine struct {
	t    testing.TB
	root string
	env  map[string]string
}

func newMachine(t testing.TB) *machine {
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{t: t, root: root, env: map[string]string{}}
	m.dir("home")
	m.dir("proj")
	m.file("proj/main.go")
	return m
}

func (m *machine) path(rel string) string { return filepath.Join(m.root, rel) }

func (m *machine) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) dir(rel string) string {
	m.t.Helper()
	m.must(os.MkdirAll(m.path(rel), 0o755))
	return m.path(rel)
}

func (m *machine) file(rel string) string {
	m.t.Helper()
	m.dir(filepath.Dir(rel))
	m.must(os.WriteFile(m.path(rel), []byte(rel), 0o644))
	return m.path(rel)
}

func (m *machine) link(rel, to string) string {
	m.t.Helper()
	m.dir(filepath.Dir(rel))
	m.must(os.Symlink(to, m.path(rel)))
	return m.path(rel)
}

func (m *machine) fifo(rel string) string {
	m.t.Helper()
	m.dir(filepath.Dir(rel))
	m.must(unix.Mkfifo(m.path(rel), 0o600))
	return m.path(rel)
}

// socket listens at rel. A socket's path is short by nature, so it is bound by a relative name.
func (m *machine) socket(rel string) string {
	m.t.Helper()
	short, err := os.MkdirTemp("", "s")
	m.must(err)
	m.t.Cleanup(func() { os.RemoveAll(short) })
	listener, err := net.Listen("unix", filepath.Join(short, "s"))
	m.must(err)
	m.t.Cleanup(func() { listener.Close() })
	m.dir(filepath.Dir(rel))
	m.must(os.Link(filepath.Join(short, "s"), m.path(rel)))
	return m.path(rel)
}

func (m *machine) host() spec.Host {
	return spec.Host{
		Places: hostpath.Places{
			Home:   m.path("home"),
			Getenv: func(key string) string { return m.env[key] },
			Own:    []string{m.path("home/.local/share/agents-sandbox"), m.path("run/agbox")},
		},
		DefaultIdleTTL: 30 * time.Minute,
	}
}

func (m *machine) resolve(s *agboxv1.CreateSpec) (*spec.Resolved, error) {
	return spec.Resolve(&agboxv1.CreateSandboxRequest{CreateSpec: s}, m.host())
}

// wantRefusal checks an error's reason, field and a part of its message.
func wantRefusal(t *testing.T, err error, reason, field, part string) {
	t.Helper()
	var refused *spec.Error
	if !errors.As(err, &refused) {
		t.Fatalf("error %v, want reason %s on %s", err, reason, field)
	}
	if refused.Reason != reason || refused.Field != field || !strings.Contains(refused.Message, part) {
		t.Errorf("got reason %s, field %s, message %q\nwant %s, %s, %q", refused.Reason, refused.Field, refused.Message, reason, field, part)
	}
}

func mount(source, target string) *agboxv1.MountSpec {
	return &agboxv1.MountSpec{Source: source, Target: target}
}

func service(name string, test ...string) *agboxv1.ServiceSpec {
	s := &agboxv1.ServiceSpec{Name: name, Image: "db:1"}
	if test != nil {
		s.Healthcheck = &agboxv1.HealthcheckConfig{Test: test}
	}
	return s
}
