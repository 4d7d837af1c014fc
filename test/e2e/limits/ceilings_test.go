package limits_test

import (
	"bytes"
	"io"
	"math"
	"os"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/agbox-dev/agbox/dockerrt"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/server/spec"
	"github.com/agbox-dev/agbox/test/servertest"
)

// TestCeilings: what the operator allows is all that there is, and nobody notices who keeps to it.
func TestCeilings(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	d.Actors.MaxSandboxes = 2
	d.Server.Host.Ceilings = spec.Ceilings{Memory: spec.Ceiling[int64]{Most: 64 << 20}, Output: spec.Ceiling[uint64]{Most: 1000}}
	d.Restart()

	create := func(s *agboxv1.CreateSpec) error {
		s.Image, s.Lazy = d.Image, true
		_, err := d.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{CreateSpec: s})
		return err
	}
	servertest.Refused(t, create(&agboxv1.CreateSpec{MemoryLimit: 65 << 20}), codes.InvalidArgument, "LIMIT_TOO_HIGH", "create_spec.memory_limit", "67108864 bytes at most")
	id := d.Create(&agboxv1.CreateSpec{})
	if err := create(&agboxv1.CreateSpec{}); err != nil {
		t.Error(err)
	}
	servertest.Refused(t, create(&agboxv1.CreateSpec{}), codes.ResourceExhausted, "SANDBOXES_TOO_MANY", "", "there are 2", "delete some")

	primary, err := d.Engine.ContainerInspect(t.Context(), "agbox-primary-"+id)
	if err != nil || primary.HostConfig.Memory != 64<<20 {
		t.Errorf("the primary has %d bytes of memory, %v", primary.HostConfig.Memory, err)
	}
	_, err = d.CreateExec(t.Context(), &agboxv1.CreateExecRequest{SandboxId: id, Command: []string{"true"}, MaxOutputBytes: 1001})
	servertest.Refused(t, err, codes.InvalidArgument, "LIMIT_TOO_HIGH", "max_output_bytes", "1000 bytes at most")
	end, stdout, _ := d.Exec(id, "head", "-c", "5000", "/dev/zero")
	if len(stdout) != 1000 || end.Resources.GetOutputDroppedBytes() != 4000 {
		t.Errorf("%d bytes are in the log, %d were dropped", len(stdout), end.Resources.GetOutputDroppedBytes())
	}
}

// TestDiskHeadroom: what would fill a disk that is nearly full is refused or dropped, and what runs goes on.
func TestDiskHeadroom(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, func(c *dockerrt.Config) { c.DiskHeadroom = math.MaxInt64 })
	id := d.Create(&agboxv1.CreateSpec{})
	d.Server.DiskHeadroom = math.MaxInt64
	d.Restart()
	_, err := d.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{CreateSpec: &agboxv1.CreateSpec{Image: d.Image}})
	servertest.Refused(t, err, codes.ResourceExhausted, "DISK_FULL", "", "limits.disk_headroom", " has ")
	_, err = d.SnapshotSandbox(t.Context(), &agboxv1.SnapshotSandboxRequest{SandboxId: id})
	servertest.Refused(t, err, codes.ResourceExhausted, "DISK_FULL", "", "limits.disk_headroom")
	_, err = d.UploadFiles(t.Context(), &agboxv1.UploadFilesStart{SandboxId: id, Path: "/tmp"}, bytes.NewReader(make([]byte, 1024)))
	servertest.Refused(t, err, codes.ResourceExhausted, "DISK_FULL", "", "limits.disk_headroom")
	if report, err := d.Doctor(t.Context(), &agboxv1.DoctorRequest{}); err != nil || level(report, "disk") != agboxv1.FindingLevel_FINDING_LEVEL_PROBLEM {
		t.Errorf("the doctor finds %v, %v", report, err)
	}
	created, err := d.CreateExec(t.Context(), &agboxv1.CreateExecRequest{SandboxId: id, Command: []string{"head", "-c", "3000000", "/dev/zero"}})
	if err != nil {
		t.Fatal(err)
	}
	end := d.ExecEnd(id, created.ExecId)
	if log, err := os.Stat(created.StdoutLogPath); err != nil || log.Size() > 1<<20 || end.ExitCode != 0 || int64(end.Resources.GetOutputDroppedBytes())+log.Size() != 3_000_000 {
		t.Errorf("the command ended with %v, its output is %v, %v", end, log, err)
	}
}

// TestHoles: what is large by its size alone is refused before it costs anything; and what could not be carried whole.
func TestHoles(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, func(c *dockerrt.Config) { c.MaxSnapshot = 1 << 30 })
	d.Server.MaxTransfer = 1 << 20
	d.Restart()
	id := d.Create(&agboxv1.CreateSpec{})
	name := strings.Repeat("d", 200)
	if end, _, stderr := d.Exec(id, "sh", "-c", "set -e; dd of=/tmp/hole bs=1 count=0 seek=1099511627776; for i in $(seq 11); do p=$p/"+name+"; done; mkdir -p /tmp/deep$p /tmp/below$p; mv /tmp/below /tmp/deep$p"); end.ExitCode != 0 {
		t.Fatal(stderr)
	}
	download := func(path string) error {
		stream, err := d.DownloadFiles(t.Context(), &agboxv1.DownloadFilesRequest{SandboxId: id, Path: path})
		if err == nil {
			_, err = io.Copy(io.Discard, stream)
			stream.Close()
		}
		return err
	}
	servertest.Refused(t, download("/tmp/hole"), codes.ResourceExhausted, "TRANSFER_TOO_LARGE", "path", "limits.max_transfer", "holes counted")
	servertest.Refused(t, download("/tmp/deep"), codes.FailedPrecondition, "TREE_TOO_DEEP", "path", "cannot be carried whole")
	deep, err := d.WatchFiles(t.Context(), &agboxv1.WatchFilesRequest{SandboxId: id, Path: "/tmp/deep", Recursive: true})
	if err == nil {
		_, err = deep.Recv()
	}
	servertest.Refused(t, err, codes.FailedPrecondition, "FILE_REFUSED", "path", "too deep to be named")
	_, err = d.UploadFiles(t.Context(), &agboxv1.UploadFilesStart{SandboxId: id, Path: "/tmp"}, bytes.NewReader(servertest.Archive(t, servertest.File("large", strings.Repeat("x", 2<<20), 0o600))))
	servertest.Refused(t, err, codes.ResourceExhausted, "TRANSFER_TOO_LARGE", "path", "limits.max_transfer")
	_, err = d.SnapshotSandbox(t.Context(), &agboxv1.SnapshotSandboxRequest{SandboxId: id})
	servertest.Refused(t, err, codes.ResourceExhausted, "SNAPSHOT_TOO_LARGE", "", "limits.max_snapshot", "holes counted")
}
