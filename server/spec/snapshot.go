package spec

import (
	"slices"

	"google.golang.org/protobuf/proto"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

const (
	// A snapshot id of the wrong length or with characters that are not allowed.
	ReasonInvalidSnapshotID = "INVALID_SNAPSHOT_ID"
	// An image beside a snapshot, which is one.
	ReasonSnapshotImageConflict = "SNAPSHOT_IMAGE_CONFLICT"
)

// FromSnapshot is what a sandbox of the spec accepted hands on to those that are made from its snapshot, whose image this
// is. What it copied in is in the image. Its lease, its laziness and its places on the host are its own. The mounts of its
// builtin tools are looked up anew.
func FromSnapshot(accepted *agboxv1.CreateSpec, image string) *agboxv1.CreateSpec {
	base := proto.CloneOf(accepted)
	base.Image = image
	base.Copies, base.Lease, base.Lazy = nil, nil, false
	for _, port := range base.Ports {
		port.HostPort = 0
	}
	base.Mounts = slices.DeleteFunc(base.Mounts, func(m *agboxv1.MountSpec) bool {
		return slices.ContainsFunc(tools, func(t tool) bool {
			return slices.ContainsFunc(base.BuiltinTools, t.named) &&
				slices.ContainsFunc(t.mounts, func(of toolMount) bool { return of.target == m.Target })
		})
	})
	return base
}

// ResolveOn is Resolve with the request laid over base, which FromSnapshot returned. The image is the snapshot's, and is
// never pulled.
func ResolveOn(base *agboxv1.CreateSpec, req *agboxv1.CreateSandboxRequest, host Host) (*Resolved, error) {
	return resolve(req, host, func(over *agboxv1.CreateSpec) (*agboxv1.CreateSpec, error) {
		if over.Image != "" && over.Image != base.Image {
			return nil, refuse(ReasonSnapshotImageConflict, "create_spec.image",
				"%s is another image than the snapshot's; leave it out, or the snapshot", quote(over.Image))
		}
		spec := Merge(base, over)
		spec.PullPolicy = "never"
		return spec, nil
	})
}
