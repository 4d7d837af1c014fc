package server_test

import (
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/agbox-dev/agbox/actors"
	"github.com/agbox-dev/agbox/actors/actorstest"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/server"
	"github.com/agbox-dev/agbox/test/servertest"
)

// TestOverlappingMounts: a source below what another sandbox may write to is refused, before anything is made.
func TestOverlappingMounts(t *testing.T) {
	t.Parallel()
	dirs := servertest.OpenDirs(t, "p", "p/data")
	f := startServer(t, actors.Config{}, server.Config{}, actorstest.New())
	create := func(id, source string, writable bool) error {
		_, err := f.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{SandboxId: id, CreateSpec: &agboxv1.CreateSpec{
			Image: "x", Mounts: []*agboxv1.MountSpec{{Source: source, Target: "/data", Writable: writable}}}})
		return err
	}
	for _, id := range []string{"writes-1", "writes-2"} {
		if err := create(id, dirs[0], true); err != nil {
			t.Fatal(err)
		}
	}
	servertest.Refused(t, create("reads", dirs[1], false), codes.FailedPrecondition, "MOUNT_SOURCE_OVERLAPS", "",
		`create_spec.mounts[0].source: "`+dirs[1]+`" lies in "`+dirs[0]+`", which sandbox writes-`, "copy the source in, or delete that sandbox first")
}
