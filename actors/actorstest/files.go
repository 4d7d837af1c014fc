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
	header     *tar.Header
	content    []byte
	attributes map[string]string
}

// tree is a files.Sink that keeps what it is given by absolute path.
type tree struct {
	directory string
	owner     files.Account
	files     map[string]treeFile
}

func (t tree) Add(header *tar.Header, content io.Reader) (err error) {
	header.Uid, header.Gid = t.owner.UID, t.owner.GID
	file := treeFile{header: header}
	if content != nil {
		file.content, err = io.ReadAll(content)
	}
	t.files[path.Join(t.directory, header.Name)] = file
	return err
}

func (tree) End() error { return nil }

// UploadFiles keeps what the stream has, for user 1000 unless another number is named.
func (r *Runtime) UploadFiles(_ context.Context, sandboxID, directory, owner string, _ bool, stream io.Reader) (files.Written, error) {
	account, err := files.Accounts{}.Rule(owner, "1000:1000")
	if err != nil {
		return files.Written{}, err
	}
	unpacked := tree{directory, account, map[string]treeFile{}}
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
	for _, p := range slices.Sorted(maps.Keys(unpacked.files)) {
		for parent := path.Dir(p); parent != "/"; parent = path.Dir(parent) {
			if _, there := r.trees[sandboxID][parent]; !there {
				r.keep(sandboxID, parent, treeFile{header: &tar.Header{Typeflag: tar.TypeDir, Mode: 0o755, Uid: account.UID, Gid: account.GID}})
			}
		}
		r.keep(sandboxID, p, unpacked.files[p])
	}
	return written, nil
}

// keep is called with the runtime locked.
func (r *Runtime) keep(sandboxID, p string, file treeFile) {
	kind := "created"
	if _, there := r.trees[sandboxID][p]; there {
		kind = "modified"
	}
	r.trees[sandboxID][p] = file
	r.tell(sandboxID, &agboxv1.FileEvent{Kind: kind, Path: p, Directory: file.header.Typeflag == tar.TypeDir})
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

func (r *Runtime) DownloadFiles(_ context.Context, sandboxID, p string, _ bool) (io.ReadCloser, error) {
	if _, err := r.file(sandboxID, p); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var stream bytes.Buffer
	out := tar.NewWriter(&stream)
	for _, name := range r.sortedFiles(sandboxID) {
		if !paths.Within(name, p) {
			continue
		}
		header := *r.trees[sandboxID][name].header
		header.Name = strings.TrimPrefix(strings.TrimPrefix(name, path.Dir(p)), "/")
		if err := out.WriteHeader(&header); err != nil {
			return nil, err
		}
		if _, err := out.Write(r.trees[sandboxID][name].content); err != nil {
			return nil, err
		}
	}
	return io.NopCloser(&stream), out.Close()
}

func (r *Runtime) StatFile(_ context.Context, sandboxID, p string, _ bool, look files.Look) (*agboxv1.FileInfo, error) {
	who, err := accountOf(look.User)
	if err != nil {
		return nil, err
	}
	p = who.from(p)
	if look.User != nil && (p == "/" || p == "/tmp" || p == who.home) {
		return infoOf(p, directoryOf(who, files.NewDirectory)), nil
	}
	file, err := r.file(sandboxID, p)
	if err != nil {
		return nil, err
	}
	return infoOf(p, file), nil
}

func (r *Runtime) ListFiles(_ context.Context, sandboxID, directory string, recursive, _ bool, look files.Look, list *files.List) error {
	who, err := accountOf(look.User)
	if err != nil {
		return err
	}
	directory = who.from(directory)
	if look.User != nil && directory != "/" && directory != who.home {
		switch at, err := r.file(sandboxID, directory); {
		case err != nil:
			return err
		case at.header.Typeflag != tar.TypeDir:
			return files.Refuse(files.ErrNotDirectory, "%q is not a directory", directory)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.sortedFiles(sandboxID) {
		if p == directory || !paths.Within(p, directory) || !recursive && path.Dir(p) != directory ||
			look.Depth > 0 && strings.Count(strings.TrimPrefix(p, directory), "/") > int(look.Depth) {
			continue
		}
		if !list.Add(infoOf(p, r.trees[sandboxID][p])) {
			break
		}
	}
	return nil
}

func (r *Runtime) RemoveFile(_ context.Context, sandboxID, p string, recursive bool, user *string) error {
	who, err := accountOf(user)
	if err != nil {
		return err
	}
	p = who.from(p)
	if _, err := r.file(sandboxID, p); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	below := slices.DeleteFunc(r.sortedFiles(sandboxID), func(name string) bool { return !paths.Within(name, p) })
	if len(below) > 1 && !recursive {
		return files.Refuse(files.ErrNotEmpty, "%q is not empty", p)
	}
	for _, name := range slices.Backward(below) {
		r.tell(sandboxID, &agboxv1.FileEvent{Kind: "removed", Path: name, Directory: r.trees[sandboxID][name].header.Typeflag == tar.TypeDir})
		delete(r.trees[sandboxID], name)
	}
	return nil
}

// tell is called with the runtime locked.
func (r *Runtime) tell(sandboxID string, event *agboxv1.FileEvent) {
	if r.fileEvents == nil {
		r.fileEvents = map[string][]*agboxv1.FileEvent{}
	}
	r.fileEvents[sandboxID] = append(r.fileEvents[sandboxID], event)
	if r.filesChanged != nil {
		close(r.filesChanged)
		r.filesChanged = nil
	}
}

// WatchFiles tells of uploads, writes, moves and removals.
func (r *Runtime) WatchFiles(ctx context.Context, sandboxID, p string, recursive bool, user *string, tell func(*agboxv1.FileEvent) error) error {
	who, err := accountOf(user)
	if err != nil {
		return err
	}
	p = who.from(p)
	r.mu.Lock()
	next := len(r.fileEvents[sandboxID])
	r.mu.Unlock()
	batch := []*agboxv1.FileEvent{{Kind: "watching", Path: p, Directory: true}}
	for {
		for _, event := range batch {
			if err := tell(event); err != nil {
				return err
			}
			if event.Kind == "removed" && event.Path == p {
				return nil
			}
		}
		r.mu.Lock()
		if r.filesChanged == nil {
			r.filesChanged = make(chan struct{})
		}
		changed, news := r.filesChanged, r.fileEvents[sandboxID][next:]
		r.mu.Unlock()
		next += len(news)
		batch = slices.DeleteFunc(slices.Clone(news), func(event *agboxv1.FileEvent) bool {
			return event.Path != p && path.Dir(event.Path) != p && !(recursive && paths.Within(event.Path, p))
		})
		if len(news) > 0 {
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// sortedFiles has a directory before what is in it; the runtime is locked.
func (r *Runtime) sortedFiles(sandboxID string) []string {
	return slices.SortedFunc(maps.Keys(r.trees[sandboxID]), func(a, b string) int {
		return slices.Compare(strings.Split(a, "/"), strings.Split(b, "/"))
	})
}
