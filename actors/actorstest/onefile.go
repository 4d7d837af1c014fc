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
	"time"

	"github.com/agbox-dev/agbox/guest/files"
	"github.com/agbox-dev/agbox/paths"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// accounts are those of every sandbox.
var accounts = files.Accounts{Passwd: "root:x:0:0::/root:\nagbox:x:1000:1000::/home/agbox:\nuser:x:1001:1001::/home/user:\n"}

// account is whom a call about files is for.
type account struct {
	files.Account
	name, home string
}

// accountOf resolves a user as an exec's, "agbox" for "" and for nil.
func accountOf(user *string) (account, error) {
	name := "agbox"
	if user != nil && *user != "" {
		name, _, _ = strings.Cut(*user, ":")
	}
	known, err := accounts.Lookup(name)
	a := account{known, name, "/home/" + name}
	if known.UID == 0 {
		a.home = "/root"
	}
	return a, err
}

// from is a path from the home on.
func (a account) from(p string) string {
	if path.IsAbs(p) {
		return p
	}
	return path.Join(a.home, p)
}

// infoOf knows the names of owners, and attributes whether asked for or not.
func infoOf(p string, file treeFile) *agboxv1.FileInfo {
	info := files.Info(p, file.header)
	for _, name := range []string{"root", "agbox", "user"} {
		if known, err := accounts.Lookup(name); err == nil && known.UID == file.header.Uid {
			info.Owner, info.Group = name, name
		}
	}
	info.Attributes = file.attributes
	return info
}

func (r *Runtime) ReadFile(_ context.Context, sandboxID string, get files.Get, take func(*agboxv1.FileInfo, []byte) error) error {
	who, err := accountOf(&get.User)
	if err != nil {
		return err
	}
	p := who.from(get.Path)
	file, err := r.file(sandboxID, p)
	if err != nil {
		return err
	}
	if file.header.Typeflag == tar.TypeDir {
		return files.Refuse(files.ErrIsDirectory, "%q is a directory", p)
	}
	if err := take(infoOf(p, file), nil); err != nil {
		return err
	}
	content := file.content[min(get.Offset, uint64(len(file.content))):]
	if get.Length > 0 {
		content = content[:min(get.Length, uint64(len(content)))]
	}
	for part := range slices.Chunk(content, 32<<10) {
		if err := take(nil, part); err != nil {
			return err
		}
	}
	return nil
}

func (r *Runtime) WriteFile(_ context.Context, sandboxID string, put files.Put, content io.Reader) (*agboxv1.FileInfo, error) {
	who, err := accountOf(&put.User)
	if err != nil {
		return nil, err
	}
	var all bytes.Buffer
	if _, err := all.ReadFrom(content); err != nil {
		return nil, err
	}
	p := who.from(put.Path)
	r.mu.Lock()
	defer r.mu.Unlock()
	before, there := r.trees[sandboxID][p]
	if there && before.header.Typeflag == tar.TypeDir {
		return nil, files.Refuse(files.ErrIsDirectory, "%q is a directory", p)
	}
	if err := r.makeRoom(sandboxID, p, who, put.Parents); err != nil {
		return nil, err
	}
	mode := int64(files.NewFile)
	if there {
		mode = before.header.Mode
	}
	if put.Mode != nil {
		mode = int64(*put.Mode)
	}
	file := treeFile{content: all.Bytes(), attributes: map[string]string{}, header: &tar.Header{Typeflag: tar.TypeReg, Size: int64(all.Len()), Mode: mode,
		Uid: who.UID, Gid: who.GID, ModTime: time.Now()}}
	for name, value := range before.attributes {
		if put.InPlace && (put.RemoveAttributes == "" || !strings.HasPrefix(name, put.RemoveAttributes)) {
			file.attributes[name] = value
		}
	}
	maps.Copy(file.attributes, put.Attributes)
	r.keep(sandboxID, p, file)
	if !there {
		r.tell(sandboxID, &agboxv1.FileEvent{Kind: "attributes", Path: p})
		r.tell(sandboxID, &agboxv1.FileEvent{Kind: "modified", Path: p})
	}
	return infoOf(p, file), nil
}

// makeRoom has the directories above a path there, or says that they are missing; the runtime is locked.
func (r *Runtime) makeRoom(sandboxID, p string, who account, parents bool) error {
	if r.trees == nil {
		r.trees = trees{}
	}
	if r.trees[sandboxID] == nil {
		r.trees[sandboxID] = map[string]treeFile{}
	}
	var missing []string
	for dir := path.Dir(p); dir != "/" && dir != who.home && dir != path.Dir(who.home) && dir != "/tmp" && dir != paths.Workspace; dir = path.Dir(dir) {
		switch at, there := r.trees[sandboxID][dir]; {
		case there && at.header.Typeflag != tar.TypeDir:
			return files.Refuse(files.ErrNotDirectory, "%q is not a directory", dir)
		case !there:
			missing = append(missing, dir)
		}
	}
	if len(missing) > 0 && !parents {
		return files.Refuse(files.ErrNotFound, "%q does not exist in the sandbox", missing[0])
	}
	for _, dir := range slices.Backward(missing) {
		r.keep(sandboxID, dir, directoryOf(who, files.NewDirectory))
	}
	return nil
}

func directoryOf(who account, mode int64) treeFile {
	return treeFile{header: &tar.Header{Typeflag: tar.TypeDir, Mode: mode, Uid: who.UID, Gid: who.GID, ModTime: time.Now()}}
}

func (r *Runtime) MakeDirectory(_ context.Context, sandboxID, user, p string, mode uint32, parents bool) (*agboxv1.FileInfo, error) {
	who, err := accountOf(&user)
	if err != nil {
		return nil, err
	}
	p = who.from(p)
	r.mu.Lock()
	defer r.mu.Unlock()
	if before, there := r.trees[sandboxID][p]; there && before.header.Typeflag != tar.TypeDir {
		return nil, files.Refuse(files.ErrNotDirectory, "%q is not a directory", p)
	} else if there || p == who.home || p == "/" {
		return nil, files.Refuse(files.ErrExists, "%q exists already", p)
	}
	if err := r.makeRoom(sandboxID, p, who, parents); err != nil {
		return nil, err
	}
	made := directoryOf(who, int64(mode))
	r.keep(sandboxID, p, made)
	return infoOf(p, made), nil
}

func (r *Runtime) MoveFile(_ context.Context, sandboxID string, move files.Move) (*agboxv1.FileInfo, error) {
	who, err := accountOf(&move.User)
	if err != nil {
		return nil, err
	}
	from, to := who.from(move.Source), who.from(move.Destination)
	moved, err := r.file(sandboxID, from)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, there := r.trees[sandboxID][to]; there && move.KeepExisting {
		return nil, files.Refuse(files.ErrExists, "%q exists already", to)
	}
	if err := r.makeRoom(sandboxID, to, who, move.Parents); err != nil {
		return nil, err
	}
	for _, p := range r.sortedFiles(sandboxID) {
		if paths.Within(p, from) {
			file := r.trees[sandboxID][p]
			delete(r.trees[sandboxID], p)
			r.trees[sandboxID][to+strings.TrimPrefix(p, from)] = file
		}
	}
	r.tell(sandboxID, &agboxv1.FileEvent{Kind: "renamed", Path: to, OldPath: from, Directory: moved.header.Typeflag == tar.TypeDir})
	return infoOf(to, moved), nil
}
