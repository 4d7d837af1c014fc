package server_test

import (
	"errors"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/agbox-dev/agbox/actors"
	"github.com/agbox-dev/agbox/actors/actorstest"
	"github.com/agbox-dev/agbox/hostpath"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/server"
	"github.com/agbox-dev/agbox/server/spec"
	"github.com/agbox-dev/agbox/test/servertest"
)

// TestNoCopyOnWrite: where no layer can be, that is said before anything is made.
func TestNoCopyOnWrite(t *testing.T) {
	t.Parallel()
	fake := actorstest.New()
	fake.NoCopyOnWrite = errors.New("the engine is elsewhere")
	home := t.TempDir()
	servertest.WriteTree(t, home, map[string]string{".npm/": ""})
	f := startServer(t, actors.Config{}, server.Config{Host: spec.Host{Places: hostpath.Places{Home: home}}}, fake)
	_, err := f.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{CreateSpec: &agboxv1.CreateSpec{Image: "x",
		Mounts: []*agboxv1.MountSpec{{Source: home, Target: "/workspace", Mode: "cow"}}}})
	servertest.Refused(t, err, codes.FailedPrecondition, "COPY_ON_WRITE_UNAVAILABLE", "create_spec.mounts",
		"/workspace cannot be mounted copy-on-write: the engine is elsewhere; mount it read-only or writable, or copy it in")
	_, err = f.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{CreateSpec: &agboxv1.CreateSpec{Image: "x", BuiltinTools: []string{"npm"}}})
	servertest.Refused(t, err, codes.FailedPrecondition, "COPY_ON_WRITE_UNAVAILABLE", "create_spec.builtin_tools", "name the tool as npm:rw, which writes to the host's files")
	if calls := fake.Calls(); len(calls) != 0 {
		t.Errorf("the runtime was asked for %v", calls)
	}
}
