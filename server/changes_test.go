package server_test

import (
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/agbox-dev/agbox/actors"
	"github.com/agbox-dev/agbox/actors/actorstest"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/servertest"
)

// TestChangesRefused: a daemon that may not read what sandboxes wrote, or reads what is being written, says so.
func TestChangesRefused(t *testing.T) {
	t.Parallel()
	f := startFleet(t, actors.Config{}, actorstest.New())
	_, err := f.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{SandboxId: "with-layer", CreateSpec: &agboxv1.CreateSpec{Image: "x",
		Mounts: []*agboxv1.MountSpec{{Source: t.TempDir(), Target: "/workspace", Mode: "cow"}}}})
	if err == nil {
		_, err = f.WaitSandbox(t.Context(), &agboxv1.WaitSandboxRequest{SandboxId: "with-layer"})
	}
	if err != nil {
		t.Fatal(err)
	}
	stream, err := f.SandboxChanges(t.Context(), &agboxv1.SandboxChangesRequest{SandboxId: "with-layer"})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	_, err = stream.Recv()
	servertest.Refused(t, err, codes.FailedPrecondition, "CHANGES_NEED_PRIVILEGE", "", "run agboxd as root, or copy what is needed out with agbox cp")
	archive, err := f.DownloadChanges(t.Context(), &agboxv1.DownloadChangesRequest{SandboxId: "with-layer", Target: "/workspace"})
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	_, err = archive.Read(make([]byte, 1))
	servertest.Refused(t, err, codes.Aborted, "CHANGES_UNSTABLE", "", "pause or stop sandbox with-layer and start again")
}
