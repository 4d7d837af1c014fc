//go:build long

package chaos_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/client"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk/raw"
	"github.com/agbox-dev/agbox/test/chaos"
	"github.com/agbox-dev/agbox/test/chaos/checker"
	"github.com/agbox-dev/agbox/test/chaos/proxy"
	"github.com/agbox-dev/agbox/test/dockertest"
	"github.com/agbox-dev/agbox/test/dockertest/skiplog"
)

// site is a daemon on an engine of its own, which a test ends and starts.
type site struct {
	*testing.T
	ctx     context.Context
	engine  *chaos.Engine
	docker  *client.Client
	proxy   *proxy.Proxy // between the daemon and the engine; nil: nothing is
	daemon  *chaos.Daemon
	client  *raw.Client
	record  *checker.Record
	checker *checker.Checker
	image   string
	gate    string
	made    int
}

func newSite(t *testing.T, liveRestore, proxied bool) *site {
	t.Helper()
	if os.Getuid() != 0 {
		skiplog.Skip(t, "only root can run an engine of its own")
	}
	binary, err := crashpoints()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "agbox")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	s := &site{T: t, ctx: ctx, record: checker.NewRecord(), gate: filepath.Join(dir, "gate")}
	t.Cleanup(func() {
		cancel()
		if err := s.close(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("see %s", dir)
		} else if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Mkdir(s.gate, 0o755); err != nil {
		t.Fatal(err)
	}
	if s.engine, err = chaos.NewEngine(ctx, filepath.Join(dir, "e"), liveRestore); err != nil {
		t.Fatal(err)
	}
	if s.docker, err = s.engine.Client(); err != nil {
		t.Fatal(err)
	}
	s.image = dockertest.TinyImage(t, s.docker, dockertest.Busybox)
	host := s.engine.Host()
	if proxied {
		if s.proxy, err = proxy.New(strings.TrimPrefix(host, "unix://"), filepath.Join(dir, "p"), 1); err != nil {
			t.Fatal(err)
		}
		host = s.proxy.Host()
	}
	if s.daemon, err = chaos.NewDaemon(binary, dir, host); err != nil {
		t.Fatal(err)
	}
	if s.client, err = raw.Dial(raw.WithSocket(s.daemon.Socket())); err != nil {
		t.Fatal(err)
	}
	s.checker = checker.New(s.record, s.client, s.docker, s.daemon.Data())
	s.must(s.daemon.Start(ctx))
	return s
}

func (s *site) close() error {
	var errs []error
	if s.daemon != nil {
		s.daemon.End()
	}
	if s.client != nil {
		errs = append(errs, s.client.Close())
	}
	if s.proxy != nil {
		errs = append(errs, s.proxy.Close())
	}
	if s.docker != nil {
		errs = append(errs, s.docker.Close())
	}
	if s.engine != nil {
		errs = append(errs, s.engine.End())
	}
	return errors.Join(errs...)
}

func (s *site) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// end has everything compared, ends the daemon as a signal does, and tells what is wrong. All sandboxes must have
// been deleted.
func (s *site) end() {
	s.Helper()
	s.must(s.checker.Rest(s.ctx))
	s.must(s.daemon.Stop(s.ctx))
	s.must(s.checker.Log(s.daemon.Database()))
	for _, violation := range s.checker.Report().Violations() {
		s.Error(violation)
	}
}

// unavailable checks that a sandbox is refused because the engine is away.
func (s *site) unavailable(id string) {
	s.Helper()
	_, err := s.client.CreateSandbox(s.ctx, &agboxv1.CreateSandboxRequest{SandboxId: id, CreateSpec: &agboxv1.CreateSpec{Image: s.image}})
	if typed, ok := errors.AsType[*raw.Error](err); !ok || typed.Reason != "DOCKER_UNAVAILABLE" {
		s.Errorf("without an engine a create is answered with %v", err)
	}
}

// state is what both GetSandbox and ListSandboxes say.
func (s *site) state(b *box) agboxv1.SandboxState {
	s.Helper()
	found, err := s.client.GetSandbox(s.ctx, &agboxv1.GetSandboxRequest{SandboxId: b.id})
	s.must(err)
	list, err := s.client.ListSandboxes(s.ctx, &agboxv1.ListSandboxesRequest{})
	s.must(err)
	at := slices.IndexFunc(list.Sandboxes, func(h *agboxv1.SandboxHandle) bool { return h.SandboxId == b.id })
	if at < 0 || list.Sandboxes[at].State != found.Sandbox.State {
		s.Errorf("GetSandbox says that %s is %s, ListSandboxes %v", b.id, found.Sandbox.State, list.Sandboxes)
	}
	return found.Sandbox.State
}
