package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/docker/docker/api/types/container"

	"github.com/agbox-dev/agbox/dockerrt/engine"
	"github.com/agbox-dev/agbox/dockerrt/mount"
	"github.com/agbox-dev/agbox/hostpath"
	"github.com/agbox-dev/agbox/hosttree"
	"github.com/agbox-dev/agbox/oplog"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// copyTime bounds one copy: a tree of many gigabytes on a slow disk.
const copyTime = time.Hour

// CopyIn puts the spec's copies into the primary, which was not started yet.
func (fs *Files) CopyIn(ctx context.Context, sandboxID string, spec *agboxv1.CreateSpec) error {
	for _, c := range spec.Copies {
		began := time.Now()
		bytes, err := fs.copyTree(ctx, sandboxID, c)
		oplog.Stepped(ctx, began, err, fmt.Sprintf("copied to %s with %d bytes", c.Target, bytes), "%s", c.Source)
		if engine.Code(err) != "" {
			return err
		}
		if err != nil {
			return engine.Coded("SANDBOX_COPY_FAILED", "cannot copy %s to %s: %w", c.Source, c.Target, err)
		}
	}
	return nil
}

// copyTree returns how many bytes of a tar stream it took.
func (fs *Files) copyTree(ctx context.Context, sandboxID string, c *agboxv1.CopySpec) (int64, error) {
	id, err := fs.engine.Primary(ctx, sandboxID)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, copyTime)
	defer cancel()
	source, err := hostpath.Verify(c.Source, hostpath.FromMessage(c.Accepted))
	if err != nil {
		return 0, mount.Changed(err)
	}
	defer source.Close()
	guard := fs.config.Places().Guard()
	if err := guard.Copy(c.Source); err != nil {
		return 0, mount.Changed(err)
	}
	owner, err := fs.copyOwner(ctx, sandboxID, c)
	if err != nil {
		return 0, err
	}
	reader, writer := io.Pipe()
	counted := &counter{to: writer}
	streamed := make(chan error, 1)
	go func() {
		err := hosttree.StreamOpened(ctx, counted, source, c.Target, c.ExcludePatterns, guard.Entry, owner)
		if errors.Is(err, hosttree.ErrChanged) {
			oplog.Printf(ctx, "%s: files changed while they were copied: %v", c.Source, err)
			fs.log.Warn("files changed while they were copied", "sandbox_id", sandboxID, "source", c.Source, "error", err)
			err = nil
		}
		writer.CloseWithError(err)
		streamed <- err
	}()
	err = fs.engine.CopyToContainer(ctx, id, "/", reader, container.CopyToContainerOptions{})
	reader.CloseWithError(errors.New("the engine reads no further"))
	if streamErr := <-streamed; err == nil {
		err = streamErr
	} else if cause, own := errors.AsType[*hosttree.Error](streamErr); own {
		err = cause
	} else if place, own := errors.AsType[*hostpath.Protected](streamErr); own {
		err = mount.Changed(place)
	}
	return counted.bytes, err
}

// copyOwner is whom a copy belongs to in the sandbox: as whom an exec would run, unless the spec says otherwise. nil leaves it
// to whom it belongs on the host.
func (fs *Files) copyOwner(ctx context.Context, sandboxID string, c *agboxv1.CopySpec) (*hosttree.Owner, error) {
	if c.KeepOwner {
		return nil, nil
	}
	box, err := fs.box(ctx, sandboxID)
	if err != nil {
		return nil, err
	}
	account, err := box.owner(ctx, c.Owner)
	if err != nil {
		return nil, err
	}
	return &hosttree.Owner{UID: account.UID, GID: account.GID}, nil
}

// counter counts what is written through it.
type counter struct {
	to    io.Writer
	bytes int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.to.Write(p)
	c.bytes += int64(n)
	return n, err
}
