package chaos

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk"
	"github.com/agbox-dev/agbox/sdk/raw"
	"github.com/agbox-dev/agbox/test/chaos/checker"
)

// leaseGrace is far longer than a daemon is away: a sandbox that is held never ends for want of its holder.
const leaseGrace = time.Minute

// endGrace is how long a sandbox lives that nobody holds, from its acceptance or the daemon's start.
const endGrace = 3 * time.Second

// hold holds a sandbox's lease until it is DELETED, over every restart of the daemon.
func (w *world) hold(ctx context.Context, box *follower) {
	ctx, cancel := context.WithCancel(ctx)
	w.work.Go(func() {
		defer cancel()
		select {
		case <-box.done:
		case <-ctx.Done():
		}
	})
	w.work.Go(func() {
		for ctx.Err() == nil {
			held, err := w.client.HoldSandbox(ctx, &agboxv1.HoldSandboxRequest{SandboxId: box.id})
			for err == nil {
				_, err = held.Recv()
			}
			if held != nil {
				held.Close()
			}
			if !transient(err) {
				return // it is being deleted
			}
			w.rest(ctx)
		}
	})
}

// attach runs a command that gives back its input, which is sent piece by piece, and then exits.
func (c *client) attach(ctx context.Context, box *follower) {
	c.execs++
	id := fmt.Sprintf("%s-x%d", box.id, c.execs)
	want := checker.Want{ExitCode: int32(c.random.IntN(126)), Stdout: checker.Lines(100 + c.random.IntN(3000))}
	c.world.record.AskExec(box.id, id, want)
	err := c.ask(ctx, "exec "+id, func(ctx context.Context) error {
		_, err := c.world.client.CreateExec(ctx, &agboxv1.CreateExecRequest{
			SandboxId: box.id, ExecId: id, Stdin: true, Command: []string{"sh", "-c", fmt.Sprintf("cat; exit %d", want.ExitCode)},
		})
		return err
	})
	if err == nil {
		c.world.record.AcceptedExec(box.id, id)
	}
	feeding, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	if c.feed(feeding, id, want.Stdout.String()) == nil {
		return
	}
	// Without its end of input it would go on for ever.
	c.world.record.AskCancel(box.id, id)
	c.ask(ctx, "cancel "+id, func(ctx context.Context) error {
		_, err := c.world.client.CancelExec(ctx, &agboxv1.CancelExecRequest{ExecId: id})
		return err
	})
}

func (c *client) feed(ctx context.Context, execID, text string) error {
	var attached *sdk.Attachment
	if err := c.ask(ctx, "attach "+execID, func(ctx context.Context) (err error) {
		attached, err = c.world.SDK.AttachExec(ctx, execID)
		return err
	}); err != nil {
		return err
	}
	defer attached.Detach()
	defer context.AfterFunc(ctx, attached.Detach)()
	for piece := range slices.Chunk([]byte(text), 1+c.random.IntN(4000)) {
		if _, err := attached.Write(piece); err != nil {
			return err
		}
	}
	return attached.CloseStdin()
}

// A client's files lie in fileDir in its sandbox, or in layered, which is the tree of the host's that all share, copy-on-write.
const (
	fileDir = "/workspace/chaos"
	layered = "/layered"
)

// fileText is what a file of that name holds.
func fileText(name string) string { return strings.Repeat(name+"\n", 500) }

// upload puts a new file into the sandbox.
func (c *client) upload(ctx context.Context, box *follower) {
	name := fmt.Sprintf("%s-%d", box.id, len(c.files))
	var packed bytes.Buffer
	w := tar.NewWriter(&packed)
	text := fileText(name)
	if err := errors.Join(w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text))}),
		func() error { _, err := io.WriteString(w, text); return err }(), w.Close()); err != nil {
		panic(err) // it is written to memory
	}
	if c.ask(ctx, "upload to "+box.id, func(ctx context.Context) error {
		_, err := c.world.client.UploadFiles(ctx, &agboxv1.UploadFilesStart{SandboxId: box.id, Path: c.dir}, bytes.NewReader(packed.Bytes()))
		return err
	}) == nil {
		c.files = append(c.files, name)
	}
}

// compare takes one of the files out again, which must be as it was put in.
func (c *client) compare(ctx context.Context, box *follower) {
	if len(c.files) == 0 || box.ends { // which may end under the download
		return
	}
	name := c.files[c.random.IntN(len(c.files))]
	var text string
	err := c.ask(ctx, "download from "+box.id, func(ctx context.Context) (err error) {
		text, err = c.download(ctx, box.id, c.dir+"/"+name)
		return err
	})
	if typed, ok := errors.AsType[*raw.Error](err); ok && typed.Reason == "FILE_NOT_FOUND" || err == nil && text != fileText(name) {
		c.world.Checker.Report().Add(checker.WrongFile, box.id, fmt.Sprintf("%s: %d bytes of %d, %v", name, len(text), len(fileText(name)), err))
	}
}

// changes has the daemon tell what the layer holds: all files, as added ones.
func (c *client) changes(ctx context.Context, box *follower) {
	var added []string
	err := c.ask(ctx, "changes of "+box.id, func(ctx context.Context) error {
		added = nil
		for change, err := range c.world.SDK.Changes(ctx, box.id) {
			if err != nil {
				return err
			}
			if change.Kind == sdk.ChangeAdded {
				added = append(added, change.Path)
			}
		}
		return nil
	})
	for _, name := range c.files {
		if err == nil && !slices.Contains(added, name) {
			c.world.Checker.Report().Add(checker.WrongFile, box.id, fmt.Sprintf("%s is not told as added, but %v", name, added))
		}
	}
}

func (c *client) download(ctx context.Context, id, path string) (string, error) {
	stream, err := c.world.client.DownloadFiles(ctx, &agboxv1.DownloadFilesRequest{SandboxId: id, Path: path})
	if err != nil {
		return "", err
	}
	defer stream.Close()
	packed := tar.NewReader(stream)
	if _, err := packed.Next(); err != nil {
		return "", err
	}
	text, err := io.ReadAll(packed)
	return string(text), err
}

// kept is a client's snapshot and the files in it.
type kept struct {
	id    string
	files []string
}

// keep makes a snapshot of the sandbox, in place of the one that the client has.
func (c *client) keep(ctx context.Context, box *follower) {
	if c.kept != nil {
		if c.world.removeSnapshot(ctx, c, c.kept.id) != nil {
			return // something was made from it that is still there
		}
		c.kept = nil
	}
	c.made++
	made := &kept{id: fmt.Sprintf("%s-%d-s%d", c.world.prefix, c.n, c.made), files: slices.Clone(c.files)}
	tries := 0
	err := c.ask(ctx, "snapshot "+made.id, func(ctx context.Context) error {
		tries++
		c.world.record.AskSnapshot(made.id)
		_, err := c.world.client.SnapshotSandbox(ctx, &agboxv1.SnapshotSandboxRequest{SandboxId: box.id, SnapshotId: made.id})
		return err
	})
	if typed, ok := errors.AsType[*raw.Error](err); err == nil || ok && typed.Reason == "SNAPSHOT_ID_TAKEN" && tries > 1 {
		c.world.record.AcceptedSnapshot(made.id)
		c.kept = made
	}
}

func (w *world) removeSnapshot(ctx context.Context, c *client, id string) error {
	err := c.ask(ctx, "delete snapshot "+id, func(ctx context.Context) error {
		w.record.AskDeleteSnapshot(id)
		_, err := w.client.DeleteSnapshot(ctx, &agboxv1.DeleteSnapshotRequest{SnapshotId: id})
		return err
	})
	if typed, ok := errors.AsType[*raw.Error](err); ok && typed.Reason == "SNAPSHOT_NOT_FOUND" {
		err = nil // an earlier try, whose answer got lost
	}
	if err == nil {
		w.record.DeletedSnapshot(id)
	}
	return err
}

// fork makes a sandbox of the one that the client has, which is deleted then.
func (c *client) fork(ctx context.Context, box *follower) {
	c.made++
	id := fmt.Sprintf("%s-%d-%d", c.world.prefix, c.n, c.made)
	if !c.begin(ctx, id, func(ctx context.Context) error {
		_, err := c.world.client.ForkSandbox(ctx, &agboxv1.ForkSandboxRequest{SandboxId: box.id, ForkId: id})
		return err
	}) {
		return
	}
	c.operate(ctx, box, checker.Delete)
	c.box.Store(c.world.follow(ctx, id))
}

// removeSnapshots deletes every snapshot that is left. All sandboxes must have been deleted.
func (w *world) removeSnapshots(ctx context.Context) error {
	list, err := w.client.ListSnapshots(ctx, &agboxv1.ListSnapshotsRequest{})
	if err != nil {
		return err
	}
	for _, s := range list.Snapshots {
		if !s.Fork {
			if err := w.removeSnapshot(ctx, w.clients[0], s.SnapshotId); err != nil {
				return err
			}
		}
	}
	return nil
}
