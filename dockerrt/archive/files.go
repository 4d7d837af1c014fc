package archive

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/agbox-dev/agbox/dockerrt/engine"
	"github.com/agbox-dev/agbox/guest/files"
	"github.com/agbox-dev/agbox/guest/protocol"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// The engine's archive API reaches the files of a container whether it runs or not, and resolves links within its root. It
// sees the container's own layer, volumes and binds, and not what is in the sandbox's memory. While it is at work the
// engine answers nothing else about that container: not even a stop.

// UploadFiles unpacks a tar stream in a directory of the sandbox's primary, which is made when it is missing; owner is as
// an exec's user. It returns when the stream has ended, or with ctx; what was unpacked before an error stays, but no part of a file. With
// running, agbox-init makes the files, else the engine does. Refusals are *files.Refusal.
func (fs *Files) UploadFiles(ctx context.Context, sandboxID, directory, owner string, running bool, stream io.Reader) (files.Written, error) {
	upload := fs.uploadToDisk
	if running {
		upload = fs.uploadInside
	}
	written, err := upload(ctx, sandboxID, directory, owner, stream)
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return written, engine.Unreachable(err)
}

func (fs *Files) uploadToDisk(ctx context.Context, sandboxID, directory, owner string, stream io.Reader) (files.Written, error) {
	box, err := fs.filesOf(ctx, sandboxID)
	if err != nil {
		return files.Written{}, err
	}
	to, err := box.destination(ctx, directory)
	if err != nil {
		return files.Written{}, err
	}
	if to.owner, err = box.owner(ctx, owner); err != nil {
		return files.Written{}, err
	}
	unpacking := newUnpacking(ctx, box, directory, to)
	var written files.Written
	if err = unpacking.above(); err == nil {
		written, err = files.Unpack(stream, unpacking)
	}
	if err != nil {
		err = unpacking.stop(err)
	}
	return written, err
}

func (fs *Files) uploadInside(ctx context.Context, sandboxID, directory, owner string, stream io.Reader) (written files.Written, err error) {
	box, err := fs.box(ctx, sandboxID)
	if err != nil {
		return written, err
	}
	user, err := box.user()
	if err != nil {
		return written, err
	}
	_, err = fs.insideAs(ctx, sandboxID, root, func(to io.Writer) (err error) {
		written, err = files.Unpack(stream, files.Send(to))
		return err
	}, func([]string) error { return protocol.ErrMalformed },
		"write", directory, owner, user, box.option("--image-user="))
	return written, err
}

// engineStream tells an engine that went away from the stream's end.
type engineStream struct{ io.ReadCloser }

func (s engineStream) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		err = engine.Unreachable(err)
	}
	return n, err
}

// StatFile tells of one file of the primary; a link at its end is not followed. With running, agbox-init looks, else the
// engine does, which takes longer and knows no users.
func (fs *Files) StatFile(ctx context.Context, sandboxID, p string, running bool, look files.Look) (*agboxv1.FileInfo, error) {
	ctx, cancel := fs.engine.Read(ctx)
	defer cancel()
	if !running {
		info, err := fs.statOnDisk(ctx, sandboxID, p)
		return info, engine.Unreachable(err)
	}
	args := []string{"stat", p}
	if look.Attributes {
		args = append(args, "-a")
	}
	return fs.entry(ctx, sandboxID, userOf(look.User), nil, args...)
}

// userOf is whom agbox-init looks as.
func userOf(named *string) string {
	if named == nil {
		return root
	}
	return *named
}

func (fs *Files) statOnDisk(ctx context.Context, sandboxID, p string) (*agboxv1.FileInfo, error) {
	stream, err := fs.DownloadFiles(ctx, sandboxID, p, false)
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
func (fs *Files) ListFiles(ctx context.Context, sandboxID, directory string, recursive, running bool, look files.Look, list *files.List) error {
	ctx, cancel := context.WithTimeout(ctx, engine.WriteTimeout)
	defer cancel()
	if !running {
		return engine.Unreachable(fs.listOnDisk(ctx, sandboxID, directory, recursive, list))
	}
	args := []string{"list", directory, strconv.Itoa(list.Limit())}
	if recursive {
		args = append(args, "-r")
	}
	if look.Attributes {
		args = append(args, "-a")
	}
	if look.Depth > 0 {
		args = append(args, "-d", strconv.FormatUint(uint64(look.Depth), 10))
	}
	last, err := fs.insideAs(ctx, sandboxID, userOf(look.User), nil, func(fields []string) error {
		info, err := files.ParseEntry(fields)
		if err == nil && !list.Add(info) {
			err = errListFull
		}
		return err
	}, args...)
	if errors.Is(err, errListFull) {
		return nil
	}
	if err == nil && last[0] == protocol.FileMore {
		list.Truncated = true
	}
	return err
}

var errListFull = errors.New("the list is full")

func (fs *Files) listOnDisk(ctx context.Context, sandboxID, directory string, recursive bool, list *files.List) error {
	box, err := fs.filesOf(ctx, sandboxID)
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
	stream, _, err := fs.engine.CopyFromContainer(ctx, box.ID, place.path)
	if err != nil {
		return engineRefusal(directory, err)
	}
	defer stream.Close()
	return list.ReadTar(stream, directory, recursive)
}

// RemoveFile removes a file, a link or an empty directory of a primary that runs, with recursive a tree. What is mounted
// stays. user is as in files.Look.
func (fs *Files) RemoveFile(ctx context.Context, sandboxID, p string, recursive bool, user *string) error {
	ctx, cancel := context.WithTimeout(ctx, engine.WriteTimeout)
	defer cancel()
	args := []string{"remove", p}
	if recursive {
		args = append(args, "-r")
	}
	_, err := fs.insideAs(ctx, sandboxID, userOf(user), nil, func([]string) error { return protocol.ErrMalformed }, args...)
	return err
}

// WatchFiles tells what happens in a directory, or to a file, of a primary that runs, beginning with "watching". It returns
// nil once the directory is gone, and files.ErrNotRunning when the sandbox is; an error of tell ends it, and so does ctx. user is as in
// files.Look.
func (fs *Files) WatchFiles(ctx context.Context, sandboxID, p string, recursive bool, user *string, tell func(*agboxv1.FileEvent) error) error {
	args := []string{"watch", p}
	if recursive {
		args = append(args, "-r")
	}
	_, err := fs.insideAs(ctx, sandboxID, userOf(user), nil, func(fields []string) error {
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
	case errdefs.IsUnavailable(err) || engine.Unreachable(err) != err:
		return err
	}
	return files.Refuse(files.ErrRefused, "%q: the engine says: %s", p, text)
}
