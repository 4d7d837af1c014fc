package envd

import (
	"context"
	"io/fs"
	"path"
	"strings"

	"connectrpc.com/connect"

	"github.com/agbox-dev/agbox/gateway/envd/proto/filesystem"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// filesystems serves the files of a sandbox.
type filesystems struct{ *Handler }

// metadataPrefix is that of the attributes that are a file's metadata.
const metadataPrefix = "e2b."

// maxEntries is how many entries a list has at most.
const maxEntries = 100_000

// entryOf is a file as the wire has it.
func entryOf(f *agboxv1.FileInfo) *filesystem.EntryInfo {
	e := &filesystem.EntryInfo{
		Name: path.Base(f.GetPath()), Path: f.GetPath(), Size: int64(f.GetSize()), Mode: f.GetMode() & 0o777, Owner: f.GetOwner(), Group: f.GetGroup(),
		Type: typeOf(f.GetType()), ModifiedTime: f.GetModifiedAt(),
	}
	mode := fs.FileMode(f.GetMode() & 0o777)
	switch f.GetType() {
	case "directory":
		mode |= fs.ModeDir
	case "symlink":
		mode |= fs.ModeSymlink
		target := f.GetResolvedPath()
		e.Type, e.Mode = typeOf(f.GetTargetType()), f.GetTargetMode()&0o777
		if target == "" {
			target, e.Type = f.GetPath(), filesystem.FileType_FILE_TYPE_UNSPECIFIED
		}
		e.SymlinkTarget = &target
	}
	e.Permissions = mode.String()
	if e.Owner == "" {
		e.Owner = decimal(f.GetUid())
	}
	if e.Group == "" {
		e.Group = decimal(f.GetGid())
	}
	e.Metadata = metadataOf(f)
	return e
}

// metadataOf is nil where there is none.
func metadataOf(f *agboxv1.FileInfo) map[string]string {
	var metadata map[string]string
	for name, value := range f.GetAttributes() {
		if key, is := strings.CutPrefix(name, metadataPrefix); is {
			if metadata == nil {
				metadata = map[string]string{}
			}
			metadata[key] = value
		}
	}
	return metadata
}

func typeOf(kind string) filesystem.FileType {
	switch kind {
	case "file":
		return filesystem.FileType_FILE_TYPE_FILE
	case "directory":
		return filesystem.FileType_FILE_TYPE_DIRECTORY
	case "symlink":
		return filesystem.FileType_FILE_TYPE_SYMLINK
	}
	return filesystem.FileType_FILE_TYPE_UNSPECIFIED
}

func (b *box) stat(ctx context.Context, user, name string) (*agboxv1.FileInfo, error) {
	resp, err := b.client.StatFile(ctx, &agboxv1.StatFileRequest{SandboxId: b.id, User: &user, Path: name, FromHome: true, Attributes: true})
	return resp.GetFile(), err
}

// Stat implements filesystemconnect.FilesystemHandler.
func (f *filesystems) Stat(ctx context.Context, req *connect.Request[filesystem.StatRequest]) (*connect.Response[filesystem.StatResponse], error) {
	b, user, err := f.rpcUser(ctx, req.Header())
	if err != nil {
		return nil, err
	}
	file, err := b.stat(ctx, user, req.Msg.GetPath())
	if err != nil {
		return nil, rpcError(err)
	}
	return connect.NewResponse(&filesystem.StatResponse{Entry: entryOf(file)}), nil
}

// MakeDir implements filesystemconnect.FilesystemHandler.
func (f *filesystems) MakeDir(ctx context.Context, req *connect.Request[filesystem.MakeDirRequest]) (*connect.Response[filesystem.MakeDirResponse], error) {
	b, user, err := f.rpcUser(ctx, req.Header())
	if err != nil {
		return nil, err
	}
	made, err := b.client.MakeDirectory(ctx, &agboxv1.MakeDirectoryRequest{SandboxId: b.id, User: user, Path: req.Msg.GetPath(), FromHome: true, Parents: true})
	if err != nil {
		return nil, rpcError(err)
	}
	return connect.NewResponse(&filesystem.MakeDirResponse{Entry: entryOf(made.GetDirectory())}), nil
}

// Move implements filesystemconnect.FilesystemHandler.
func (f *filesystems) Move(ctx context.Context, req *connect.Request[filesystem.MoveRequest]) (*connect.Response[filesystem.MoveResponse], error) {
	b, user, err := f.rpcUser(ctx, req.Header())
	if err != nil {
		return nil, err
	}
	moved, err := b.client.MoveFile(ctx, &agboxv1.MoveFileRequest{SandboxId: b.id, User: user, Source: req.Msg.GetSource(), Destination: req.Msg.GetDestination(),
		FromHome: true, Parents: true})
	if err != nil {
		return nil, rpcError(err)
	}
	return connect.NewResponse(&filesystem.MoveResponse{Entry: entryOf(moved.GetFile())}), nil
}

// ListDir implements filesystemconnect.FilesystemHandler.
func (f *filesystems) ListDir(ctx context.Context, req *connect.Request[filesystem.ListDirRequest]) (*connect.Response[filesystem.ListDirResponse], error) {
	b, user, err := f.rpcUser(ctx, req.Header())
	if err != nil {
		return nil, err
	}
	depth := max(req.Msg.GetDepth(), 1)
	list, err := b.client.ListFiles(ctx, &agboxv1.ListFilesRequest{SandboxId: b.id, User: &user, Path: req.Msg.GetPath(), FromHome: true, Attributes: true,
		Recursive: depth > 1, Depth: depth, Limit: maxEntries})
	if err != nil {
		return nil, rpcError(err)
	}
	if list.GetTruncated() {
		return nil, connect.NewError(connect.CodeResourceExhausted, errTooMany)
	}
	response := &filesystem.ListDirResponse{}
	for _, file := range list.GetFiles() {
		response.Entries = append(response.Entries, entryOf(file))
	}
	return connect.NewResponse(response), nil
}

// Remove implements filesystemconnect.FilesystemHandler.
func (f *filesystems) Remove(ctx context.Context, req *connect.Request[filesystem.RemoveRequest]) (*connect.Response[filesystem.RemoveResponse], error) {
	b, user, err := f.rpcUser(ctx, req.Header())
	if err != nil {
		return nil, err
	}
	_, err = b.client.RemoveFile(ctx, &agboxv1.RemoveFileRequest{SandboxId: b.id, User: &user, Path: req.Msg.GetPath(), FromHome: true, Recursive: true})
	if err != nil && refusalOf(err).reason != "FILE_NOT_FOUND" {
		return nil, rpcError(err)
	}
	return connect.NewResponse(&filesystem.RemoveResponse{}), nil
}
