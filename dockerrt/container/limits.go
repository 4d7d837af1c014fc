package container

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/docker/docker/api/types/container"

	"github.com/agbox-dev/agbox/dockerrt/engine"
	"github.com/agbox-dev/agbox/dockerrt/mount"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// droppedCapabilities are those of Docker's default set that let a sandbox forge packets or make device nodes.
var droppedCapabilities = []string{"NET_RAW", "MKNOD"}

// PidsLimit is what a container gets that names none: enough for a parallel build, and a fork bomb ends there.
const PidsLimit = 4096

// limited is what a spec says of a container, be it the primary's or a service's.
type limited interface {
	GetCpuLimit() float64
	GetMemoryLimit() int64
	GetPidsLimit() int64
	GetDiskLimit() int64
	GetShmSize() int64
	GetTmpfs() []*agboxv1.TmpfsSpec
	GetCapAdd() []string
}

// Confine is what every container of ours has in common, with the spec's own limits.
func Confine(l limited) *container.HostConfig {
	pids := int64(PidsLimit)
	if l.GetPidsLimit() > 0 {
		pids = l.GetPidsLimit()
	}
	host := &container.HostConfig{
		SecurityOpt: []string{"no-new-privileges"},
		CapDrop: slices.DeleteFunc(slices.Clone(droppedCapabilities), func(name string) bool {
			return slices.Contains(l.GetCapAdd(), name)
		}),
		CapAdd:  l.GetCapAdd(),
		ShmSize: l.GetShmSize(),
		Resources: container.Resources{
			PidsLimit: &pids,
			Ulimits:   []*container.Ulimit{{Name: "core"}},
			NanoCPUs:  int64(l.GetCpuLimit() * 1e9),
			Memory:    l.GetMemoryLimit(), MemorySwap: l.GetMemoryLimit(),
		},
	}
	if l.GetDiskLimit() > 0 {
		host.StorageOpt = map[string]string{"size": strconv.FormatInt(l.GetDiskLimit(), 10)}
	}
	for _, t := range l.GetTmpfs() {
		if host.Tmpfs == nil {
			host.Tmpfs = map[string]string{}
		}
		options := "rw,exec,nosuid,nodev,mode=1777"
		if t.Size > 0 {
			options += fmt.Sprintf(",size=%d", t.Size)
		}
		host.Tmpfs[t.Target] = options
	}
	return host
}

// devices are the GPUs that the spec asks for; it was validated.
func devices(gpus string) []container.DeviceRequest {
	if gpus == "" {
		return nil
	}
	request := container.DeviceRequest{Capabilities: [][]string{{"gpu"}}}
	count, err := strconv.Atoi(gpus)
	switch {
	case gpus == "all":
		request.Count = -1
	case err == nil:
		request.Count = count
	default:
		request.DeviceIDs = strings.Split(gpus, ",")
	}
	return []container.DeviceRequest{request}
}

// Explained says what a person can do about a container that the engine cannot make as asked for.
func Explained(err error) error {
	switch text := err.Error(); {
	case strings.Contains(text, "storage-opt"):
		return engine.Coded("DISK_LIMIT_UNSUPPORTED", "%w: this engine's storage cannot limit a container's disk: leave disk_limit out, "+
			"or keep Docker's data on xfs mounted with pquota", err)
	case strings.Contains(text, "mount local volume"), strings.Contains(text, "type: overlay, data: lowerdir="):
		return engine.Coded(mount.CodeNotLayered, "%w: the kernel of the engine's host lays no layer over the source of a copy-on-write mount, as over one that is "+
			"gone, or an overlay of overlays: mount it read-only or writable, or copy it in; dmesg there tells more", err)
	case strings.Contains(text, "recursively read-only"), strings.Contains(text, "recursive read-only"):
		return engine.Coded("MOUNT_READ_ONLY_UNSUPPORTED", "%w: this engine's runtime cannot make what is mounted in a source read-only: "+
			"make the mount writable, copy the source in, or run sandboxes with runc 1.1 or newer", err)
	case strings.Contains(text, "could not select device driver"):
		return engine.Coded("GPU_UNAVAILABLE", "%w: leave gpus out, or install the NVIDIA container toolkit on the engine's host", err)
	case strings.Contains(text, "port is already allocated"), strings.Contains(text, "address already in use"):
		return engine.Coded("PORT_IN_USE", "%w: choose another host_port, or 0 to have one chosen", err)
	}
	return err
}
