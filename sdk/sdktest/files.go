package sdktest

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/agbox-dev/agbox/paths"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/agbox-dev/agbox/guest/files"
)

// trees are the files of all sandboxes, in memory, whether there is such a sandbox or not.
type trees struct {
	mu    sync.Mutex
	files map[string]map[string]entry // by sandbox and absolute path
}

type entry struct {
	header  *tar.Header
	content []byte
}

// sink is a files.Sink that keeps what it is given; what is missing is made.
type sink struct {
	directory string
	owner     files.Account
	tree      map[string]entry
}

func (s sink) Add(header *tar.Header, content io.Reader) (err error) {
	one := entry{header: header}
	if content != nil {
		one.content, err = io.ReadAll(content)
	}
	p := path.Join(s.directory, header.Name)
	s.keep(p, one)
	for dir := path.Dir(p); dir != "/" && s.tree[dir].header == nil; dir = path.Dir(dir) {
		s.keep(dir, entry{header: &tar.Header{Typeflag: tar.TypeDir, Mode: 0o755}})
	}
	return err
}

func (s sink) keep(p string, one entry) {
	one.header.Uid, one.header.Gid, one.header.Mode = s.owner.UID, s.owner.GID, s.owner.Plain(one.header.Mode)
	s.tree[p] = one
}

func (sink) End() error { return nil }

func clean(p string) string {
	clean, _ := files.Clean("/workspace", p)
	return clean
}

// UploadFiles accepts any owner that is a number.
func (d *Daemon) UploadFiles(stream grpc.ClientStreamingServer[agboxv1.UploadFilesRequest, agboxv1.UploadFilesResponse]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	start := first.GetStart()
	reader, writer := io.Pipe()
	defer reader.Close()
	go func() {
		for {
			message, err := stream.Recv()
			if err == nil {
				_, err = writer.Write(message.GetData())
			}
			if err != nil {
				writer.CloseWithError(err)
				return
			}
		}
	}()
	owner, err := files.Accounts{}.Rule(start.GetOwner(), "1000:1000")
	if err != nil {
		return Refusal(codes.FailedPrecondition, "OWNER_UNKNOWN", "owner: "+err.Error(), "field", "owner")
	}
	unpacked := sink{clean(start.GetPath()), owner, map[string]entry{}}
	written, err := files.Unpack(reader, unpacked)
	if err != nil {
		return Refusal(codes.InvalidArgument, "TAR_INVALID", "data: "+err.Error(), "field", "data")
	}
	d.trees.mu.Lock()
	defer d.trees.mu.Unlock()
	if d.trees.files == nil {
		d.trees.files = map[string]map[string]entry{}
	}
	tree := d.trees.files[start.GetSandboxId()]
	if tree == nil {
		tree = map[string]entry{}
		d.trees.files[start.GetSandboxId()] = tree
	}
	maps.Copy(tree, unpacked.tree)
	return stream.SendAndClose(&agboxv1.UploadFilesResponse{Files: written.Files, Bytes: written.Bytes})
}

// below returns the paths at and below p, each directory before what is in it.
func (d *Daemon) below(sandboxID, p string) (map[string]entry, []string, error) {
	d.trees.mu.Lock()
	defer d.trees.mu.Unlock()
	tree := maps.Clone(d.trees.files[sandboxID])
	maps.DeleteFunc(tree, func(name string, _ entry) bool { return !paths.Within(name, p) })
	if len(tree) == 0 {
		return nil, nil, Refusal(codes.NotFound, "FILE_NOT_FOUND", "path: "+p+" does not exist in the sandbox", "field", "path")
	}
	return tree, slices.SortedFunc(maps.Keys(tree), func(a, b string) int {
		return slices.Compare(strings.Split(a, "/"), strings.Split(b, "/"))
	}), nil
}

func (d *Daemon) DownloadFiles(req *agboxv1.DownloadFilesRequest, stream grpc.ServerStreamingServer[agboxv1.DownloadFilesChunk]) error {
	p := clean(req.GetPath())
	tree, names, err := d.below(req.GetSandboxId(), p)
	if err != nil {
		return err
	}
	var all bytes.Buffer
	out := tar.NewWriter(&all)
	for _, name := range names {
		header := *tree[name].header
		header.Name = strings.TrimPrefix(strings.TrimPrefix(name, path.Dir(p)), "/")
		if err := out.WriteHeader(&header); err != nil {
			return err
		}
		if _, err := out.Write(tree[name].content); err != nil {
			return err
		}
	}
	if err := out.Close(); err != nil {
		return err
	}
	for all.Len() > 0 {
		if err := stream.Send(&agboxv1.DownloadFilesChunk{Data: all.Next(1000)}); err != nil {
			return err
		}
	}
	return nil
}

func (d *Daemon) StatFile(_ context.Context, req *agboxv1.StatFileRequest) (*agboxv1.StatFileResponse, error) {
	p := clean(req.GetPath())
	tree, _, err := d.below(req.GetSandboxId(), p)
	if err != nil {
		return nil, err
	}
	return &agboxv1.StatFileResponse{File: files.Info(p, tree[p].header)}, nil
}

func (d *Daemon) ListFiles(_ context.Context, req *agboxv1.ListFilesRequest) (*agboxv1.ListFilesResponse, error) {
	p := clean(req.GetPath())
	tree, names, err := d.below(req.GetSandboxId(), p)
	if err != nil {
		return nil, err
	}
	list := files.NewList(req.GetLimit())
	for _, name := range names[1:] {
		if req.GetRecursive() || path.Dir(name) == p {
			list.Add(files.Info(name, tree[name].header))
		}
	}
	return &agboxv1.ListFilesResponse{Files: list.Files, Truncated: list.Truncated}, nil
}

func (d *Daemon) RemoveFile(_ context.Context, req *agboxv1.RemoveFileRequest) (*agboxv1.RemoveFileResponse, error) {
	_, names, err := d.below(req.GetSandboxId(), clean(req.GetPath()))
	if err != nil {
		return nil, err
	}
	if len(names) > 1 && !req.GetRecursive() {
		return nil, Refusal(codes.FailedPrecondition, "DIRECTORY_NOT_EMPTY", "path: it is not empty", "field", "path")
	}
	d.trees.mu.Lock()
	defer d.trees.mu.Unlock()
	for _, name := range names {
		delete(d.trees.files[req.GetSandboxId()], name)
	}
	return &agboxv1.RemoveFileResponse{}, nil
}

// WatchFiles tells the same of every file, and that the directory is gone.
func (d *Daemon) WatchFiles(req *agboxv1.WatchFilesRequest, stream grpc.ServerStreamingServer[agboxv1.FileEvent]) error {
	p := clean(req.GetPath())
	for _, event := range []*agboxv1.FileEvent{
		{Kind: "watching", Path: p, Directory: true},
		{Kind: "renamed", Path: p + "/new", OldPath: p + "/o\nld"},
		{Kind: "removed", Path: p, Directory: true},
	} {
		if err := stream.Send(event); err != nil {
			return err
		}
	}
	return nil
}
