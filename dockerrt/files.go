package dockerrt

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"

	"github.com/agbox-dev/agbox/guest/files"
	"github.com/agbox-dev/agbox/guest/files/record"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// The engine's archive API reaches the files of a container whether it runs or not, and resolves links within its root. It
// sees the container's own layer, volumes and binds, and not what is in the sandbox's memory. While it is at work the
// engine answers nothing else about that container: not even a stop.

// UploadFiles unpacks a tar stream in a directory of the sandbox's primary, which is made when it is missing; owner is as
// an exec's user. It returns when the stream has ended, or with ctx; what was unpacked before an error stays. Refusals are
// *files.Refusal.
func (d *Docker) UploadFiles(ctx context.Context, sandboxID, directory, owner string, stream io.Reader) (files.Written, error) {
	written, err := d.upload(ctx, sandboxID, directory, owner, stream)
	return written, reached(err)
}

func (d *Docker) upload(ctx context.Context, sandboxID, directory, owner string, stream io.Reader) (files.Written, error) {
	box, err := d.filesOf(ctx, sandboxID)
	if err != nil {
		return files.Written{}, err
	}
	to, err := box.destination(ctx, directory)
	if err != nil {
		return files.Written{}, err
	}
	if to.Owner, err = box.owner(ctx, owner); err != nil {
		return files.Written{}, err
	}
	engine := &unpacking{box: box, ctx: ctx, root: to.Root, directory: directory, to: to.Directory, seen: map[string]place{}}
	written, err := files.Unpack(stream, engine, to)
	if stopped := engine.stop(err); stopped != nil {
		err = stopped
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return written, err
}

// unpacking is a files.Engine.
type unpacking struct {
	box             box
	ctx             context.Context
	root, directory string
	to              string // directory without links
	// seen is what paths below it lead to; files.Unpack bounds them.
	seen map[string]place

	pipe *io.PipeWriter // nil while the engine unpacks nothing
	done chan error
}

func (u *unpacking) Write(p []byte) (int, error) {
	if u.pipe == nil {
		reader, writer := io.Pipe()
		u.pipe, u.done = writer, make(chan error, 1)
		go func() {
			err := u.box.docker.api.CopyToContainer(u.ctx, u.box.ID, u.root, reader, container.CopyToContainerOptions{})
			reader.CloseWithError(errEngineDone)
			u.done <- err
		}()
	}
	return u.pipe.Write(p)
}

func (u *unpacking) Finish() error {
	if u.pipe == nil {
		return nil
	}
	u.pipe.Close()
	u.pipe = nil
	if err := <-u.done; err != nil {
		return engineRefusal(u.directory, err)
	}
	return nil
}

// stop ends an unpacking that failed, and returns the engine's own error where that is the reason.
func (u *unpacking) stop(reason error) error {
	if u.pipe == nil {
		return nil
	}
	u.pipe.CloseWithError(reason)
	err := <-u.done
	if errors.Is(reason, errEngineDone) && err != nil {
		return engineRefusal(u.directory, err)
	}
	return nil
}

// Exists takes one look at a directory whose own directory it was asked about before.
func (u *unpacking) Exists(p string) (bool, error) {
	above, known := u.seen[path.Dir(p)]
	var err error
	if !known {
		above, err = u.box.resolve(u.ctx, path.Dir(p))
	}
	at := above
	if err == nil {
		at, err = u.box.follow(u.ctx, above, path.Base(p), p)
	}
	if err != nil {
		return false, err
	}
	u.seen[p] = at
	if !files.Within(at.path, u.to) {
		return false, files.Refuse(files.ErrEscapes, "the tar stream goes through %q, which is a link in the sandbox to %q, out of %q; unpack it there", p, at.path, u.directory)
	}
	return at.missing == 0, nil
}

var errEngineDone = errors.New("the engine reads no further")

// engineStream tells an engine that went away from the stream's end.
type engineStream struct{ io.ReadCloser }

func (s engineStream) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		err = reached(err)
	}
	return n, err
}

// StatFile tells of one file of the primary; a link at its end is not followed. With running, agbox-init looks, else the
// engine does, which takes longer.
func (d *Docker) StatFile(ctx context.Context, sandboxID, p string, running bool) (*agboxv1.FileInfo, error) {
	ctx, cancel := d.read(ctx)
	defer cancel()
	if !running {
		info, err := d.statOnDisk(ctx, sandboxID, p)
		return info, reached(err)
	}
	var info *agboxv1.FileInfo
	_, err := d.inside(ctx, sandboxID, func(fields []string) (err error) {
		info, err = files.ParseEntry(fields)
		return err
	}, "stat", p)
	if err == nil && info == nil {
		err = record.ErrMalformed
	}
	return info, err
}

func (d *Docker) statOnDisk(ctx context.Context, sandboxID, p string) (*agboxv1.FileInfo, error) {
	stream, err := d.DownloadFiles(ctx, sandboxID, p, false)
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	header, err := tar.NewReader(stream).Next()
	if err != nil {
		return nil, fmt.Errorf("the engine's tar stream of %s: %w", p, err)
	}
	return files.Info(p, header), nil
}

// ListFiles adds to list what is in a directory of the primary, with recursive all below it. With running, agbox-init
// looks, else the engine does, which reads all files below the directory for that.
func (d *Docker) ListFiles(ctx context.Context, sandboxID, directory string, recursive, running bool, list *files.List) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	if !running {
		return reached(d.listOnDisk(ctx, sandboxID, directory, recursive, list))
	}
	args := []string{"list", directory, strconv.Itoa(list.Limit())}
	if recursive {
		args = append(args, "-r")
	}
	last, err := d.inside(ctx, sandboxID, func(fields []string) error {
		info, err := files.ParseEntry(fields)
		if err == nil && !list.Add(info) {
			err = errListFull
		}
		return err
	}, args...)
	if errors.Is(err, errListFull) {
		return nil
	}
	if err == nil && last[0] == record.More {
		list.Truncated = true
	}
	return err
}

var errListFull = errors.New("the list is full")

func (d *Docker) listOnDisk(ctx context.Context, sandboxID, directory string, recursive bool, list *files.List) error {
	box, err := d.filesOf(ctx, sandboxID)
	if err != nil {
		return err
	}
	place, err := box.resolve(ctx, directory)
	if err == nil && place.missing > 0 {
		err = notFound(directory)
	}
	if err == nil {
		err = box.memory(place.path)
	}
	if err != nil {
		return err
	}
	stream, _, err := d.api.CopyFromContainer(ctx, box.ID, place.path)
	if err != nil {
		return engineRefusal(directory, err)
	}
	defer stream.Close()
	return list.ReadTar(stream, directory, recursive)
}

// RemoveFile removes a file, a link or an empty directory of a primary that runs, with recursive a tree. What is mounted
// stays.
func (d *Docker) RemoveFile(ctx context.Context, sandboxID, p string, recursive bool) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	args := []string{"remove", p}
	if recursive {
		args = append(args, "-r")
	}
	_, err := d.inside(ctx, sandboxID, func([]string) error { return record.ErrMalformed }, args...)
	return err
}

// WatchFiles tells what happens in a directory, or to a file, of a primary that runs, beginning with "watching". It returns
// nil once the directory is gone, and files.ErrNotRunning when the sandbox is; an error of tell ends it, and so does ctx.
func (d *Docker) WatchFiles(ctx context.Context, sandboxID, p string, recursive bool, tell func(*agboxv1.FileEvent) error) error {
	args := []string{"watch", p}
	if recursive {
		args = append(args, "-r")
	}
	_, err := d.inside(ctx, sandboxID, func(fields []string) error {
		event, err := files.ParseEvent(fields)
		if err != nil {
			return err
		}
		return tell(event)
	}, args...)
	return err
}

func notFound(p string) error {
	return files.Refuse(files.ErrNotFound, "%q does not exist in the sandbox; a list of its directory shows what does", p)
}

// engineRefusal puts what the engine says of a path into words for people.
func engineRefusal(p string, err error) error {
	text := err.Error()
	switch {
	case strings.Contains(text, "read-only"):
		return files.Refuse(files.ErrReadOnly, "%q, or what is to be unpacked in it, lies in a part of the sandbox that can only be read (%s); choose another, or make its mount writable", p, text)
	case errdefs.IsNotFound(err):
		return notFound(p)
	case strings.Contains(text, "not a directory"):
		return files.Refuse(files.ErrNotDirectory, "%q goes through what is not a directory; StatFile tells what it is", p)
	case errdefs.IsUnavailable(err) || reached(err) != err:
		return err
	}
	return files.Refuse(files.ErrRefused, "%q: the engine says: %s", p, text)
}
