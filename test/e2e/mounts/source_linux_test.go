package mounts_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/docker/docker/api/types/versions"
	"google.golang.org/grpc/codes"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/servertest"
)

// TestReadOnlyBelow: what is mounted in a read-only source is read-only as well, or the engine cannot do that and the mount is
// refused, also when it was mounted there since.
func TestReadOnlyBelow(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	source := servertest.OpenDirs(t, "source")[0]
	memory := filepath.Join(source, "memory")
	if err := os.Mkdir(memory, 0o777); err != nil {
		t.Fatal(err)
	}
	spec := func(writable bool) *agboxv1.CreateSpec {
		return &agboxv1.CreateSpec{Image: d.Image, Mounts: []*agboxv1.MountSpec{{Source: source, Target: "/data", Writable: writable}}}
	}
	before := servertest.Lazily(t, d, spec(false))
	servertest.MountTmpfs(t, memory)
	if err := os.Chmod(memory, 0o777); err != nil {
		t.Fatal(err)
	}
	if end, _, stderr := d.Exec(d.Create(spec(true)), "touch", "/data/memory/x"); end.ExitCode != 0 {
		t.Errorf("a writable mount is not writable below: %s", stderr)
	}
	if info, err := d.Engine.Info(t.Context()); err != nil {
		t.Fatal(err)
	} else if versions.GreaterThanOrEqualTo(d.Engine.ClientVersion(), "1.44") {
		if end, _, _ := d.Exec(d.Create(spec(false)), "touch", "/data/memory/y"); end.ExitCode == 0 {
			t.Errorf("on Docker %s a read-only mount is writable below", info.ServerVersion)
		}
		servertest.Tried(t, "SOURCE_SUBMOUNTS_WRITABLE") // an engine that can do it refuses nothing
		return
	}
	_, err := d.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{CreateSpec: spec(false)})
	servertest.Refused(t, err, codes.InvalidArgument, "SOURCE_SUBMOUNTS_WRITABLE", "create_spec.mounts[0].source",
		`"`+memory+`" is mounted in it, and this engine would leave that writable; name a directory without it`)
	_, err = d.CreateExec(t.Context(), &agboxv1.CreateExecRequest{SandboxId: before, Command: []string{"true"}})
	servertest.Refused(t, err, codes.FailedPrecondition, "SANDBOX_NOT_READY", "", "cannot be mounted read-only any more: ", `"`+memory+`"`)
}
