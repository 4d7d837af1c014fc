package dockerrt

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/versions"
	"golang.org/x/sys/unix"

	"github.com/agbox-dev/agbox/dockerrt/engine"
	"github.com/agbox-dev/agbox/guest/protocol"
	"github.com/agbox-dev/agbox/guest/relay"
	"github.com/agbox-dev/agbox/oplog"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// ExecTransport is how commands get into a sandbox.
type ExecTransport string

const (
	// TransportAuto is TransportSocket for an engine that shares this host's files, as far as that can be told, else TransportEngine.
	TransportAuto ExecTransport = "auto"
	// TransportSocket has the sandbox's agbox-init connect to a socket of this host.
	TransportSocket ExecTransport = "socket"
	// TransportEngine has the engine carry all that is said to agbox-init, and output and input too.
	TransportEngine ExecTransport = "engine"
)

// Valid reports whether it is one of these.
func (t ExecTransport) Valid() bool {
	return t == TransportAuto || t == TransportSocket || t == TransportEngine
}

// Where things are inside a sandbox whose execs go by way of the engine, beside its log directory. Both are volumes that go with
// the container, so that a root that is read-only can stay so, and no snapshot has them.
const (
	relayState = guestHome + "/state"
	initSocket = runTarget + "/s"
)

// chooseTransport decides for the sandboxes that are made from now on.
func (d *Docker) chooseTransport(ctx context.Context) error {
	info, err := d.api.Info(ctx)
	if err != nil {
		return fmt.Errorf("dockerrt: cannot ask the engine about itself: %w", err)
	}
	desktop := strings.Contains(info.OperatingSystem, "Docker Desktop")
	switch {
	case desktop:
		d.elsewhere = "the engine is " + info.OperatingSystem + ", whose kernel does not have this host's files"
	case slices.ContainsFunc(info.SecurityOptions, func(option string) bool { return strings.Contains(option, "name=rootless") }):
		d.elsewhere = "the engine is rootless, and what an overlay notes down about changes takes root"
	}
	host := d.api.DaemonHost()
	d.readOnlyBelow = versions.GreaterThanOrEqualTo(d.api.ClientVersion(), "1.44") && atLeast(info.KernelVersion, 5, 12)
	if !desktop && strings.HasPrefix(host, "unix://") {
		d.root = info.DockerRootDir
	}
	transport, why := d.config.ExecTransport, "runtime.exec_transport says so"
	if transport == "" || transport == TransportAuto {
		switch transport, why = TransportSocket, host+" is a socket of this host"; {
		case !strings.HasPrefix(host, "unix://"):
			transport, why = TransportEngine, host+" is no socket of this host"
		case desktop:
			transport, why = TransportEngine, "the engine is "+info.OperatingSystem
		case !sharesKernel(info.DefaultRuntime):
			transport, why = TransportEngine, "the engine's default runtime is "+info.DefaultRuntime
		}
	}
	d.relays = transport == TransportEngine
	d.log.Info("how commands get into new sandboxes", "exec_transport", string(transport), "because", why)
	return nil
}

// sharesKernel reports whether containers of the runtime, "" being the engine's default, run on the host's own kernel, so that a
// descriptor can be passed to them. gVisor and Kata have kernels of their own; of a runtime that nobody knows we expect no more.
func sharesKernel(runtime string) bool {
	return slices.Contains([]string{"", "runc", "io.containerd.runc.v2", "crun", "youki", "nvidia", "sysbox-runc"}, runtime)
}

// atLeast compares a kernel's version, such as 6.1.0-13-amd64.
func atLeast(version string, major, minor int) bool {
	var got [2]int
	if _, err := fmt.Sscanf(version, "%d.%d", &got[0], &got[1]); err != nil {
		return false
	}
	return got[0] > major || got[0] == major && got[1] >= minor
}

// relayed tells whether the sandbox was made for TransportEngine.
func (l layout) relayed(sandboxID string) bool {
	_, err := os.Lstat(l.relayMark(sandboxID))
	return err == nil
}

func (l layout) relayMark(sandboxID string) string { return path.Join(l.run(sandboxID), "engine") }

// markTransport notes the transport of a sandbox that is about to be made.
func (d *Docker) markTransport(sandboxID string, spec *agboxv1.CreateSpec) error {
	mark := d.layout.relayMark(sandboxID)
	if !d.relays && sharesKernel(spec.Runtime) {
		if err := os.Remove(mark); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	if err := d.layout.make(sandboxID); err != nil {
		return err
	}
	return os.WriteFile(mark, nil, 0o600)
}

// placeInit puts agbox-init into a container that does not run, with the directories that it and its relay need.
func (d *Docker) placeInit(ctx context.Context, sandboxID string) (err error) {
	defer oplog.Step(ctx, "placed", "agbox-init")(&err)
	program, err := os.ReadFile(d.config.InitPath)
	if err != nil {
		return fmt.Errorf("cannot read agbox-init: %w", err)
	}
	var archive bytes.Buffer
	out := tar.NewWriter(&archive)
	for _, header := range []tar.Header{
		{Name: path.Base(runTarget), Typeflag: tar.TypeDir, Mode: 0o711},
		{Name: path.Base(relayState), Typeflag: tar.TypeDir, Mode: 0o700},
		{Name: path.Base(initTarget), Typeflag: tar.TypeReg, Mode: 0o555, Size: int64(len(program))},
	} {
		err = errors.Join(err, out.WriteHeader(&header))
	}
	if _, writeErr := out.Write(program); err == nil {
		err = writeErr
	}
	if err = errors.Join(err, out.Close()); err != nil {
		return err
	}
	ctx, cancel := d.api.Write(ctx)
	defer cancel()
	id, err := d.api.Primary(ctx, sandboxID)
	if err != nil {
		return err
	}
	if err := d.api.CopyToContainer(ctx, id, guestHome, &archive, container.CopyToContainerOptions{}); err != nil {
		return fmt.Errorf("cannot put agbox-init into container %s: %w", engine.PrimaryName(sandboxID), err)
	}
	return nil
}

// gather fetches from a container that has ended what its relay could not send any more.
func (d *Docker) gather(ctx context.Context, sandboxID string) {
	if !d.layout.relayed(sandboxID) {
		return
	}
	link := d.links.find(sandboxID)
	if link != nil && link.relay != nil {
		link.relay.Close()
	}
	ctx, cancel := d.api.Write(ctx)
	defer cancel()
	id, err := d.api.Primary(ctx, sandboxID)
	if err != nil {
		return
	}
	for _, directory := range []string{logTarget, relayState} { // results and indexes tell of output that is there
		archive, _, err := d.api.CopyFromContainer(ctx, id, directory)
		if err == nil {
			err = errors.Join(relay.Gather(tar.NewReader(archive), func(execID, kind string) string {
				return d.layout.gathered(sandboxID, execID, kind)
			}, d.room), archive.Close())
		}
		if err != nil && !engine.IsNotFound(err) {
			d.log.Warn("the last output of a sandbox's commands may be missing", "sandbox_id", sandboxID, "error", err)
		}
	}
}

// gathered is the file of this host that is of the same kind as one in the sandbox, "" for none.
func (l layout) gathered(sandboxID, execID, kind string) string {
	switch kind {
	case protocol.KindStdout, protocol.KindStderr:
		return l.log(sandboxID, execID, kind)
	case protocol.KindIndex:
		return l.index(sandboxID, execID)
	case protocol.KindRecord:
		return l.result(sandboxID, execID)
	}
	return ""
}

// relayOf is what the relay into the sandbox needs.
func (d *Docker) relayOf(sandboxID string, l *sandboxLink) relay.Sandbox {
	return relay.Sandbox{
		Link: l.Link, Running: l.running, Room: d.room, Log: d.log.With("sandbox_id", sandboxID),
		Attach:  func(ctx context.Context) (types.HijackedResponse, error) { return d.attachRelay(ctx, sandboxID) },
		Outputs: func() (stdout, stderr *os.File, err error) { return d.openOutputs(sandboxID, protocol.CommandID) },
		Record:  func() (*os.File, error) { return d.layout.openRecord(sandboxID, protocol.CommandID) },
	}
}

func (d *Docker) attachRelay(ctx context.Context, sandboxID string) (types.HijackedResponse, error) {
	ctx, cancel := d.api.Read(ctx)
	defer cancel()
	id, err := d.api.Primary(ctx, sandboxID)
	if err != nil {
		return types.HijackedResponse{}, err
	}
	made, err := d.api.ContainerExecCreate(ctx, id, container.ExecOptions{
		User: "0:0", WorkingDir: "/", AttachStdin: true, AttachStdout: true, AttachStderr: true,
		Cmd: []string{initTarget, "relay", "--socket=" + initSocket, "--logs=" + logTarget, "--state=" + relayState},
	})
	if err != nil {
		return types.HijackedResponse{}, err
	}
	return d.api.ContainerExecAttach(ctx, made.ID, container.ExecAttachOptions{})
}

// room is how many bytes may be added to a file of output without taking the last of its disk. What agbox-init looks at is the
// disk of the engine.
func (d *Docker) room(file *os.File) uint64 {
	var disk unix.Statfs_t
	if d.config.DiskHeadroom == 0 || unix.Fstatfs(int(file.Fd()), &disk) != nil {
		return math.MaxUint64
	}
	free := disk.Bavail * uint64(disk.Bsize)
	return free - min(free, d.config.DiskHeadroom)
}
