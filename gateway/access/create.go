package access

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strings"

	"github.com/distribution/reference"
	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/ranges"
	"github.com/agbox-dev/agbox/server/spec"
)

// refusedField marks a field that no token may set.
const refusedField Grant = "-"

// specGrants has a row for each field of CreateSpec and what a token needs to set it, "" for nothing. One that has no row is
// refused. Networks and images are looked at further.
var specGrants = map[protoreflect.Name]Grant{
	"mounts": GrantMounts, "copies": GrantMounts, "builtin_tools": GrantMounts,
	"ports": GrantPorts, "gpus": GrantGPUs, "cap_add": GrantCapabilities, "runtime": GrantRuntime,
	"image": "", "required_services": "", "optional_services": "", "labels": "", "envs": "", "idle_ttl": "", "command": "", "user": "",
	"working_dir": "", "cpu_limit": "", "memory_limit": "", "pids_limit": "", "disk_limit": "", "shm_size": "", "tmpfs": "",
	"read_only_root": "", "pull_policy": "", "network": "", "hostname": "", "extra_hosts": "", "allow_new_privileges": "",
	"max_duration": "", "on_expiry": "", "on_idle": "", "on_command_end": "", "lazy": "", "lease": "", "restart_policy": "", "wake": "", "pool": "",
}

// serviceGrants is the same for ServiceSpec.
var serviceGrants = map[protoreflect.Name]Grant{
	"cap_add": GrantCapabilities,
	"name":    "", "image": "", "envs": "", "healthcheck": "", "post_start_on_primary": "", "cpu_limit": "", "memory_limit": "",
	"pids_limit": "", "disk_limit": "", "shm_size": "", "tmpfs": "", "command": "", "user": "", "pull_policy": "",
}

// creates bounds a new sandbox: what it may have, its labels, and what it adds to the quota.
func creates(c *call, message proto.Message) error {
	req := message.(*agboxv1.CreateSandboxRequest)
	if err := c.makes(); err != nil {
		return err
	}
	document, err := spec.ParseYAML(req.GetConfigYaml())
	if err != nil {
		return invalid(err)
	}
	req.CreateSpec, req.ConfigYaml = spec.Merge(document, req.GetCreateSpec()), nil
	base := &agboxv1.CreateSpec{}
	if req.SnapshotId != "" {
		snapshot, err := c.ownSnapshot(c.ctx, req.SnapshotId)
		if err != nil {
			return err
		}
		base = spec.FromSnapshot(snapshot.GetSpec(), "")
	}
	if req.SandboxId == "" {
		req.SandboxId = uuid.NewString()
	}
	c.about = append(c.about, "sandbox_id", req.SandboxId)
	return c.bound(req.SandboxId, req.CreateSpec, base, nil)
}

// forks bounds a copy of one of the identity's sandboxes. It may have what that has.
func forks(c *call, message proto.Message) error {
	req := message.(*agboxv1.ForkSandboxRequest)
	if err := cmp.Or(c.makes(), aboutSandbox(c, message)); err != nil {
		return err
	}
	if req.CreateSpec == nil {
		req.CreateSpec = &agboxv1.CreateSpec{}
	}
	if req.ForkId == "" {
		req.ForkId = uuid.NewString()
	}
	c.about = append(c.about, "fork_id", req.ForkId)
	response, err := agboxv1.NewSandboxServiceClient(c.daemon).GetSandbox(c.outgoing(), &agboxv1.GetSandboxRequest{SandboxId: req.SandboxId})
	if err != nil {
		return err
	}
	return c.bound(req.ForkId, req.CreateSpec, &agboxv1.CreateSpec{}, response.GetSandbox())
}

// bound checks what a sandbox is to be, which is over laid upon base, and puts the identity's labels and limits in over. like is the
// sandbox whose limits are taken where over has none.
func (c *call) bound(id string, over, base *agboxv1.CreateSpec, like *agboxv1.SandboxHandle) error {
	labels, err := c.scoped("create_spec.labels", over.GetLabels())
	if err != nil {
		return err
	}
	over.Labels = labels
	if err := c.permits("create_spec", spec.Merge(base, over)); err != nil {
		return err
	}
	return c.reserve(id, over, base, like)
}

func (c *call) permits(field string, s *agboxv1.CreateSpec) error {
	if err := c.permitsFields(field, s.ProtoReflect(), specGrants); err != nil {
		return err
	}
	images := map[string]string{field + ".image": s.GetImage()}
	for list, services := range map[string][]*agboxv1.ServiceSpec{"required_services": s.GetRequiredServices(), "optional_services": s.GetOptionalServices()} {
		for i, service := range services {
			of := fmt.Sprintf("%s.%s[%d]", field, list, i)
			if err := c.permitsFields(of, service.ProtoReflect(), serviceGrants); err != nil {
				return err
			}
			images[of+".image"] = service.GetImage()
		}
	}
	for of, image := range images {
		if err := c.permitsImage(of, image); err != nil {
			return err
		}
	}
	return c.permitsNetwork(field+".network", s.GetNetwork())
}

func (c *call) permitsFields(of string, m protoreflect.Message, grants map[protoreflect.Name]Grant) error {
	var err error
	m.Range(func(field protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		grant, known := grants[field.Name()]
		if path := of + "." + string(field.Name()); !known || grant == refusedField {
			err = Refusal(codes.PermissionDenied, ReasonForbidden, path+" cannot be asked for through the gateway: leave it out", "field", path)
		} else if grant != "" && !c.id.May(grant) {
			err = forbidden(path, grant)
		}
		return err == nil
	})
	return err
}

// imageID is how the engine also finds an image, whatever its name: by the beginning of its id.
var imageID = regexp.MustCompile(`^(sha256:)?[0-9a-f]+$`)

// permitsImage refuses what would be another token's snapshot by its name or id.
func (c *call) permitsImage(field, image string) error {
	if c.id.May(GrantOperator) || image == "" {
		return nil
	}
	if imageID.MatchString(image) {
		return Refusal(codes.PermissionDenied, ReasonForbidden, field+": an image is named by its name and tag here, not by its id: write name:tag", "field", field)
	}
	named, err := reference.ParseNormalizedNamed(image)
	if err == nil && strings.HasPrefix(reference.FamiliarName(named), "agbox-") && !strings.Contains(reference.FamiliarName(named), "/") {
		return Refusal(codes.PermissionDenied, ReasonForbidden, field+": names that begin with agbox- and have no / are the daemon's own: name a snapshot by its id", "field", field)
	}
	return nil // one that is no name the daemon refuses
}

// permitsNetwork refuses what is not public.
func (c *call) permitsNetwork(field string, network *agboxv1.NetworkSpec) error {
	if c.id.May(GrantNetwork) {
		return nil
	}
	if network.GetPrivate() {
		return forbidden(field+".private", GrantNetwork)
	}
	for i, to := range network.GetAllow() {
		prefix, err := netip.ParsePrefix(to.GetCidr())
		if addr, addrErr := netip.ParseAddr(to.GetCidr()); addrErr == nil {
			prefix, err = netip.PrefixFrom(addr, addr.BitLen()), nil
		}
		if err == nil && ranges.Special(prefix) {
			return forbidden(fmt.Sprintf("%s.allow[%d].cidr", field, i), GrantNetwork)
		}
	}
	return nil
}

// invalid is what the daemon would answer to a document that it cannot read.
func invalid(err error) error {
	refused, ok := errors.AsType[*spec.Error](err)
	if !ok {
		return Refusal(codes.InvalidArgument, "", err.Error())
	}
	metadata := []string{"field", refused.Field}
	for key, value := range refused.Metadata {
		metadata = append(metadata, key, value)
	}
	return Refusal(codes.InvalidArgument, refused.Reason, refused.Field+": "+refused.Message, metadata...)
}

// snapshots bounds a new snapshot of one of the identity's sandboxes.
func snapshots(c *call, message proto.Message) error {
	req := message.(*agboxv1.SnapshotSandboxRequest)
	if err := cmp.Or(c.makes(), aboutSandbox(c, message)); err != nil {
		return err
	}
	labels, err := c.scoped("labels", req.GetLabels())
	if err != nil {
		return err
	}
	req.Labels = c.id.signed(labels)
	if req.SnapshotId == "" {
		req.SnapshotId = uuid.NewString()
	}
	c.about = append(c.about, "snapshot_id", req.SnapshotId)
	return c.reserveSnapshot(req.SnapshotId)
}
