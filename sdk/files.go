package sdk

import (
	"context"
	"io/fs"
	"iter"
	"time"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk/apply"
	"github.com/agbox-dev/agbox/sdk/raw"
)

// Kinds of files in a sandbox.
const (
	FileRegular   = apply.Regular
	FileDirectory = apply.Directory
	FileSymlink   = apply.Symlink
	FileOther     = apply.Other
)

// File is a file of a sandbox as it was when the daemon looked. What is not UTF-8 in its names is shown as U+FFFD.
type File struct {
	Path       string // absolute, in the sandbox
	Type       string // FileRegular, …
	Size       uint64
	Mode       fs.FileMode // permissions, setuid, setgid and sticky; no type
	ModifiedAt time.Time
	LinkTarget string
	UID, GID   uint32
}

// fileMode turns stat(2)'s bits into Go's.
func fileMode(bits uint32) fs.FileMode {
	mode := fs.FileMode(bits & 0o777)
	for bit, flag := range map[uint32]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid, 0o1000: fs.ModeSticky} {
		if bits&bit != 0 {
			mode |= flag
		}
	}
	return mode
}

func fileOf(p *agboxv1.FileInfo) File {
	return File{
		Path: p.GetPath(), Type: p.GetType(), Size: p.GetSize(), Mode: fileMode(p.GetMode()), ModifiedAt: timeOf(p.GetModifiedAt()),
		LinkTarget: p.GetLinkTarget(), UID: p.GetUid(), GID: p.GetGid(),
	}
}

// StatFile tells of a file; a link at the end of the path is not followed. Relative paths are from the sandbox's working
// directory, here and in all that follows. A path where nothing is fails with ErrFileNotFound.
func (c *Client) StatFile(ctx context.Context, id, path string) (File, error) {
	resp, err := c.raw.StatFile(ctx, &agboxv1.StatFileRequest{SandboxId: id, Path: path})
	if err != nil {
		return File{}, err
	}
	return fileOf(resp.GetFile()), nil
}

// ListOption changes what ListFiles lists.
type ListOption func(*agboxv1.ListFilesRequest)

// WithRecursive lists all that is below the directory, each directory before what is in it.
func WithRecursive() ListOption { return func(r *agboxv1.ListFilesRequest) { r.Recursive = true } }

// WithLimit lists at most so many files in place of 10,000; the daemon lists 100,000 at most.
func WithLimit(n uint32) ListOption { return func(r *agboxv1.ListFilesRequest) { r.Limit = n } }

// ListFiles lists a directory by path; truncated says that there is more.
func (c *Client) ListFiles(ctx context.Context, id, directory string, opts ...ListOption) (files []File, truncated bool, err error) {
	req := &agboxv1.ListFilesRequest{SandboxId: id, Path: directory}
	for _, opt := range opts {
		opt(req)
	}
	resp, err := c.raw.ListFiles(ctx, req)
	for _, p := range resp.GetFiles() {
		files = append(files, fileOf(p))
	}
	return files, resp.GetTruncated(), err
}

// RemoveFile removes a file, a link or an empty directory of a sandbox that runs, with recursive a tree.
func (c *Client) RemoveFile(ctx context.Context, id, path string, recursive bool) error {
	_, err := c.raw.RemoveFile(ctx, &agboxv1.RemoveFileRequest{SandboxId: id, Path: path, Recursive: recursive})
	return err
}

// FileEvent is what happened to a file: "created", "modified" (a writer has closed it), "removed", "renamed" (Path is the
// new name, OldPath the old one), "attributes", "overflow": events were lost, look again, or "looking": the host has no watch left, what follows is seen late.
type FileEvent struct {
	Kind          string
	Path, OldPath string
	Directory     bool
}

// WatchFiles tells what happens to a file, or in a directory and with recursive in all below it. The first event has the
// kind "watching": what happens after it is told. It ends without an error when the directory is gone, else with one last
// error: the context's, or ErrSandboxNotReady when the sandbox does not run any more. It does not go on over a restart of
// the daemon, for what happens meanwhile nobody sees.
func (c *Client) WatchFiles(ctx context.Context, id, path string, recursive bool) iter.Seq2[FileEvent, error] {
	req := &agboxv1.WatchFilesRequest{SandboxId: id, Path: path, Recursive: recursive}
	return streamed(func() (*raw.FileEvents, error) { return c.raw.WatchFiles(ctx, req) }, nil, func(p *agboxv1.FileEvent) FileEvent {
		return FileEvent{p.GetKind(), p.GetPath(), p.GetOldPath(), p.GetDirectory()}
	})
}
