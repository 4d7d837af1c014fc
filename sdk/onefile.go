package sdk

import (
	"context"
	"io"
	"io/fs"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// FileOption changes a call about one file.
type FileOption func(*fileCall)

type fileCall struct {
	user             string
	fromHome         bool
	mode             *uint32
	inPlace, parents bool
	keep             bool
	offset, length   uint64
}

// AsUser works with this user's rights, named as for WithUser, and makes what it makes that user's; without it as an exec would run.
func AsUser(user string) FileOption { return func(c *fileCall) { c.user = user } }

// FromHome has relative paths begin at the user's home, which "~" stands for, in place of the sandbox's working directory.
func FromHome() FileOption { return func(c *fileCall) { c.fromHome = true } }

// WithMode gives what is written or made these permissions.
func WithMode(mode fs.FileMode) FileOption {
	bits := modeBits(mode)
	return func(c *fileCall) { c.mode = &bits }
}

// InPlace writes into the file that is there, through a link too; without it a whole file takes its place.
func InPlace() FileOption { return func(c *fileCall) { c.inPlace = true } }

// WithParents makes the directories above what is written, made or moved to.
func WithParents() FileOption { return func(c *fileCall) { c.parents = true } }

// KeepExisting has MoveFile fail where something is at the destination.
func KeepExisting() FileOption { return func(c *fileCall) { c.keep = true } }

// WithRange has ReadFile begin at an offset and read so many bytes at most, 0 for all.
func WithRange(offset, length uint64) FileOption {
	return func(c *fileCall) { c.offset, c.length = offset, length }
}

func modeBits(mode fs.FileMode) uint32 {
	bits := uint32(mode.Perm())
	for bit, flag := range map[uint32]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid, 0o1000: fs.ModeSticky} {
		if mode&flag != 0 {
			bits |= bit
		}
	}
	return bits
}

func about(opts []FileOption) (c fileCall) {
	for _, opt := range opts {
		opt(&c)
	}
	return c
}

// ReadFile opens a file of a sandbox that runs. It lives as long as ctx, at most; the caller closes it.
func (c *Client) ReadFile(ctx context.Context, id, path string, opts ...FileOption) (io.ReadCloser, File, error) {
	call := about(opts)
	stream, err := c.raw.ReadFile(ctx, &agboxv1.ReadFileRequest{
		SandboxId: id, Path: path, User: call.user, FromHome: call.fromHome, Offset: call.offset, Length: call.length})
	if err != nil {
		return nil, File{}, err
	}
	return stream, fileOf(stream.Info), nil
}

// WriteFile writes content to a file of a sandbox that runs, to its end. Where that fails no part of it is there, unless InPlace.
func (c *Client) WriteFile(ctx context.Context, id, path string, content io.Reader, opts ...FileOption) (File, error) {
	call := about(opts)
	info, err := c.raw.WriteFile(ctx, &agboxv1.WriteFileStart{
		SandboxId: id, Path: path, User: call.user, FromHome: call.fromHome, Mode: call.mode, InPlace: call.inPlace, Parents: call.parents}, content)
	if err != nil {
		return File{}, err
	}
	return fileOf(info), nil
}

// MakeDirectory makes a directory in a sandbox that runs.
func (c *Client) MakeDirectory(ctx context.Context, id, path string, opts ...FileOption) (File, error) {
	call := about(opts)
	made, err := c.raw.MakeDirectory(ctx, &agboxv1.MakeDirectoryRequest{
		SandboxId: id, Path: path, User: call.user, FromHome: call.fromHome, Mode: call.mode, Parents: call.parents})
	if err != nil {
		return File{}, err
	}
	return fileOf(made.GetDirectory()), nil
}

// MoveFile renames a file or directory in a sandbox that runs; what is at the destination is replaced, as rename(2) does it.
func (c *Client) MoveFile(ctx context.Context, id, source, destination string, opts ...FileOption) (File, error) {
	call := about(opts)
	moved, err := c.raw.MoveFile(ctx, &agboxv1.MoveFileRequest{
		SandboxId: id, Source: source, Destination: destination, User: call.user, FromHome: call.fromHome, Parents: call.parents, KeepExisting: call.keep})
	if err != nil {
		return File{}, err
	}
	return fileOf(moved.GetFile()), nil
}
