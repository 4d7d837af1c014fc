package links

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path"

	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/container"
	"golang.org/x/sys/unix"

	"github.com/agbox-dev/agbox/dockerrt/engine"
	"github.com/agbox-dev/agbox/dockerrt/layout"
	"github.com/agbox-dev/agbox/guest/protocol"
	"github.com/agbox-dev/agbox/guest/relay"
	"github.com/agbox-dev/agbox/oplog"
)

// PlaceInit puts agbox-init into a container that does not run, with the directories that it and its relay need.
func (ls *Links) PlaceInit(ctx context.Context, sandboxID string) (err error) {
	defer oplog.Step(ctx, "placed", "agbox-init")(&err)
	program, err := os.ReadFile(ls.config.InitPath)
	if err != nil {
		return fmt.Errorf("cannot read agbox-init: %w", err)
	}
	var archive bytes.Buffer
	out := tar.NewWriter(&archive)
	for _, header := range []tar.Header{
		{Name: path.Base(layout.RunTarget), Typeflag: tar.TypeDir, Mode: 0o711},
		{Name: path.Base(layout.RelayState), Typeflag: tar.TypeDir, Mode: 0o700},
		{Name: path.Base(layout.InitTarget), Typeflag: tar.TypeReg, Mode: 0o555, Size: int64(len(program))},
	} {
		err = errors.Join(err, out.WriteHeader(&header))
	}
	if _, writeErr := out.Write(program); err == nil {
		err = writeErr
	}
	if err = errors.Join(err, out.Close()); err != nil {
		return err
	}
	ctx, cancel := ls.engine.Write(ctx)
	defer cancel()
	id, err := ls.engine.Primary(ctx, sandboxID)
	if err != nil {
		return err
	}
	if err := ls.engine.CopyToContainer(ctx, id, layout.GuestHome, &archive, container.CopyToContainerOptions{}); err != nil {
		return fmt.Errorf("cannot put agbox-init into container %s: %w", engine.PrimaryName(sandboxID), err)
	}
	return nil
}

// Gather fetches from a container that has ended what its relay could not send any more.
func (ls *Links) Gather(ctx context.Context, sandboxID string) {
	if !ls.layout.Relayed(sandboxID) {
		return
	}
	link := ls.Find(sandboxID)
	if link != nil && link.relay != nil {
		link.relay.Close()
	}
	ctx, cancel := ls.engine.Write(ctx)
	defer cancel()
	id, err := ls.engine.Primary(ctx, sandboxID)
	if err != nil {
		return
	}
	for _, directory := range []string{layout.LogTarget, layout.RelayState} { // results and indexes tell of output that is there
		archive, _, err := ls.engine.CopyFromContainer(ctx, id, directory)
		if err == nil {
			err = errors.Join(relay.Gather(tar.NewReader(archive), func(execID, kind string) string {
				return ls.layout.Gathered(sandboxID, execID, kind)
			}, ls.room), archive.Close())
		}
		if err != nil && !engine.IsNotFound(err) {
			ls.log.Warn("the last output of a sandbox's commands may be missing", "sandbox_id", sandboxID, "error", err)
		}
	}
}

// relayOf is what the relay into the sandbox needs.
func (ls *Links) relayOf(sandboxID string, l *Link) relay.Sandbox {
	return relay.Sandbox{
		Link: l.Link, Running: l.running, Room: ls.room, Log: ls.log.With("sandbox_id", sandboxID),
		Attach: func(ctx context.Context) (types.HijackedResponse, error) {
			return ls.attach(ctx, sandboxID, "relay", "--socket="+layout.InitSocket, "--logs="+layout.LogTarget, "--state="+layout.RelayState)
		},
		Outputs: func() (stdout, stderr *os.File, err error) {
			return ls.layout.OpenOutputs(sandboxID, protocol.CommandID)
		},
		Record: func() (*os.File, error) { return ls.layout.OpenRecord(sandboxID, protocol.CommandID) },
	}
}

// attach runs agbox-init with args in the container, as root, and returns what the engine makes of its input and output.
func (ls *Links) attach(ctx context.Context, sandboxID string, args ...string) (types.HijackedResponse, error) {
	ctx, cancel := ls.engine.Read(ctx)
	defer cancel()
	id, err := ls.engine.Primary(ctx, sandboxID)
	if err != nil {
		return types.HijackedResponse{}, err
	}
	made, err := ls.engine.ContainerExecCreate(ctx, id, container.ExecOptions{
		User: "0:0", WorkingDir: "/", AttachStdin: true, AttachStdout: true, AttachStderr: true,
		Cmd: append([]string{layout.InitTarget}, args...),
	})
	if err != nil {
		return types.HijackedResponse{}, err
	}
	return ls.engine.ContainerExecAttach(ctx, made.ID, container.ExecAttachOptions{})
}

// room is how many bytes may be added to a file of output without taking the last of its disk. What agbox-init looks at is the
// disk of the engine.
func (ls *Links) room(file *os.File) uint64 {
	var disk unix.Statfs_t
	if ls.config.DiskHeadroom == 0 || unix.Fstatfs(int(file.Fd()), &disk) != nil {
		return math.MaxUint64
	}
	free := disk.Bavail * uint64(disk.Bsize)
	return free - min(free, ls.config.DiskHeadroom)
}
