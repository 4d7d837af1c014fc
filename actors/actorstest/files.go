package actorstest

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/agbox-dev/agbox/guest/files"
	"github.com/agbox-dev/agbox/paths"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// trees are the files of sandboxes, which this runtime keeps as long as it lives: for each sandbox, headers and contents
// by absolute path. The zero value is ready; it is the runtime's lock that guards them.
type trees map[string]map[string]treeFile

type treeFile struct {
	header  *tar.Header
	content []byte
}

// tree is a files.Sink that keeps what it is given by absolute path.
type tree struct {
	directory string
	files     map[string]treeFile
}

func (t tree) Add(header *tar.Header, content io.Reader) (err error) {
	file := treeFile{header: header}
	if content != nil {
		file.content, err = io.ReadAll(content)
	}
	t.files[path.Join(t.directory, header.Name)] = file
	return err
}

func (tree) End() error { return nil }

// UploadFiles keeps what the stream has; every directory is there, and everything belongs to root.
func (r *Runtime) UploadFiles(_ context.Context, sandboxID, directory, _ string, _ bool, stream io.Reader) (files.Written, error) {
	unpacked := tree{directory, map[string]treeFile{}}
	written, err := files.Unpack(stream, unpacked)
	if err != nil {
		return written, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, "upload to "+directory+" in "+sandboxID)
	if r.trees == nil {
		r.trees = trees{}
	}
	if r.trees[sandboxID] == nil {
		r.trees[sandboxID] = map[string]treeFile{}
	}
	maps.Copy(r.trees[sandboxID], unpacked.files)
	return written, nil
}

func (r *Runtime) file(sandboxID, p string) (treeFile, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	file, found := r.trees[sandboxID][p]
	if !found {
		return file, files.Refuse(files.ErrNotFound, "%q does not exist in the sandbox", p)
	}
	return file, nil
}

// DownloadFiles returns one file.
func (r *Runtime) DownloadFiles(_ context.Context, sandboxID, p string, _ bool) (io.ReadCloser, error) {
	file, err := r.file(sandboxID, p)
	if err != nil {
		return nil, err
	}
	header := *file.header
	header.Name = path.Base(p)
	var stream bytes.Buffer
	out := tar.NewWriter(&stream)
	if err := out.WriteHeader(&header); err != nil {
		return nil, err
	}
	if _, err := out.Write(file.content); err != nil {
		return nil, err
	}
	return io.NopCloser(&stream), out.Close()
}

func (r *Runtime) StatFile(_ context.Context, sandboxID, p string, _ bool) (*agboxv1.FileInfo, error) {
	file, err := r.file(sandboxID, p)
	if err != nil {
		return nil, err
	}
	return files.Info(p, file.header), nil
}

func (r *Runtime) ListFiles(_ context.Context, sandboxID, directory string, recursive, _ bool, list *files.List) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.sortedFiles(sandboxID) {
		if p == directory || !paths.Within(p, directory) || !recursive && path.Dir(p) != directory {
			continue
		}
		if !list.Add(files.Info(p, r.trees[sandboxID][p].header)) {
			break
		}
	}
	return nil
}

func (r *Runtime) RemoveFile(_ context.Context, sandboxID, p string, _ bool) error {
	if _, err := r.file(sandboxID, p); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for name := range r.trees[sandboxID] {
		if paths.Within(name, p) {
			delete(r.trees[sandboxID], name)
		}
	}
	return nil
}

// WatchFiles begins, and nothing happens.
func (r *Runtime) WatchFiles(ctx context.Context, _, p string, _ bool, tell func(*agboxv1.FileEvent) error) error {
	if err := tell(&agboxv1.FileEvent{Kind: "watching", Path: p, Directory: true}); err != nil {
		return err
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

// sortedFiles has a directory before what is in it; the runtime is locked.
func (r *Runtime) sortedFiles(sandboxID string) []string {
	return slices.SortedFunc(maps.Keys(r.trees[sandboxID]), func(a, b string) int {
		return slices.Compare(strings.Split(a, "/"), strings.Split(b, "/"))
	})
}
