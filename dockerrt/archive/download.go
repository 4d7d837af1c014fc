package archive

import (
	"archive/tar"
	"context"
	"io"

	"github.com/agbox-dev/agbox/dockerrt/engine"
	"github.com/agbox-dev/agbox/guest/files"
)

// DownloadFiles returns a file or directory of the sandbox's primary as a tar stream, whose names begin with the last part
// of p; a link is one in the stream, too. The stream ends with ctx; Close must follow. With running, agbox-init reads the files: as the
// engine opens one it waits for whoever in the sandbox holds a lease on it, 45 s for each, and does nothing else for that container
// meanwhile, not even a stop.
func (fs *Files) DownloadFiles(ctx context.Context, sandboxID, p string, running bool) (io.ReadCloser, error) {
	if running {
		return fs.carry(ctx, sandboxID, p)
	}
	box, err := fs.filesOf(ctx, sandboxID)
	if err == nil {
		err = box.onDisk(ctx, p)
	}
	if err != nil {
		return nil, engine.Unreachable(err)
	}
	return box.read(ctx, p)
}

// read has the engine read what is on the disk.
func (b box) read(ctx context.Context, p string) (io.ReadCloser, error) {
	stream, _, err := b.files.engine.CopyFromContainer(ctx, b.ID, p)
	if err != nil {
		return nil, engine.Unreachable(engineRefusal(p, err))
	}
	return engineStream{stream}, nil
}

// carriedTree is a tree that agbox-init tells of.
type carriedTree struct {
	*io.PipeReader
	cancel context.CancelFunc
	done   chan struct{}
}

func (c carriedTree) Close() error {
	c.cancel()
	err := c.PipeReader.Close()
	<-c.done
	return err
}

// carry returns once there is something to read, or why there is not.
func (fs *Files) carry(ctx context.Context, sandboxID, p string) (io.ReadCloser, error) {
	ctx, cancel := context.WithCancel(ctx)
	from, to := io.Pipe()
	tree := carriedTree{from, cancel, make(chan struct{})}
	begun := make(chan error, 1)
	go func() {
		defer close(tree.done)
		out := tar.NewWriter(to)
		_, err := fs.inside(ctx, sandboxID, func(fields []string) error {
			select {
			case begun <- nil:
			default:
			}
			return files.Carry(out, fields)
		}, "read", p)
		if err == nil {
			err = out.Close()
		}
		select {
		case begun <- err:
		default:
		}
		to.CloseWithError(err) // io.EOF for nil
	}()
	select {
	case err := <-begun:
		if err != nil {
			tree.Close()
			return nil, err
		}
		return tree, nil
	case <-ctx.Done():
		tree.Close()
		return nil, ctx.Err()
	}
}
