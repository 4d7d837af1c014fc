package sdktest

import (
	"bytes"
	"slices"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
)

// MountChanges are what a sandbox changed in one copy-on-write mount.
type MountChanges struct {
	Mount   *agboxv1.ChangedMount
	Changes []*agboxv1.Change
	// Tar is the stream of what was added and changed.
	Tar []byte
}

// SetChanges has every sandbox have changed this.
func (d *Daemon) SetChanges(mounts ...MountChanges) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.changes = mounts
}

func (d *Daemon) mountsChanged() []MountChanges {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.changes
}

// SandboxChanges sends each change in a message of its own.
func (d *Daemon) SandboxChanges(req *agboxv1.SandboxChangesRequest, stream grpc.ServerStreamingServer[agboxv1.SandboxChangesResponse]) error {
	for _, m := range d.mountsChanged() {
		if len(req.Targets) > 0 && !slices.Contains(req.Targets, m.Mount.Target) {
			continue
		}
		if err := stream.Send(&agboxv1.SandboxChangesResponse{Mount: m.Mount}); err != nil {
			return err
		}
		for _, change := range m.Changes {
			if err := stream.Send(&agboxv1.SandboxChangesResponse{Changes: []*agboxv1.Change{change}}); err != nil {
				return err
			}
		}
	}
	return nil
}

// DownloadChanges sends the tar stream in small pieces.
func (d *Daemon) DownloadChanges(req *agboxv1.DownloadChangesRequest, stream grpc.ServerStreamingServer[agboxv1.DownloadFilesChunk]) error {
	for _, m := range d.mountsChanged() {
		if m.Mount.Target != req.Target {
			continue
		}
		for in := bytes.NewBuffer(m.Tar); in.Len() > 0; {
			if err := stream.Send(&agboxv1.DownloadFilesChunk{Data: in.Next(100)}); err != nil {
				return err
			}
		}
		return nil
	}
	return Refusal(codes.InvalidArgument, "MOUNT_NOT_COPY_ON_WRITE", "target: "+req.Target+" is not the target of a copy-on-write mount", "field", "target")
}
