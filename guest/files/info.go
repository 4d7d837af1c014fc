package files

import (
	"archive/tar"
	"cmp"
	"io"
	"path"
	"strings"

	"google.golang.org/protobuf/types/known/timestamppb"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// Bounds of a listing.
const (
	// DefaultLimit is how many files a list has when the request does not say, MaxLimit the most that it may ask for.
	DefaultLimit = 10_000
	MaxLimit     = 100_000
	// maxNames bounds the bytes of all names in one list: an answer stays far below what clients take.
	maxNames = 32 << 20
)

// Info returns what a tar header tells of the file at p.
func Info(p string, header *tar.Header) *agboxv1.FileInfo {
	info := &agboxv1.FileInfo{
		Path: text(p), Mode: uint32(header.Mode & 0o7777), ModifiedAt: timestamppb.New(header.ModTime),
		Uid: uint32(header.Uid), Gid: uint32(header.Gid),
	}
	switch header.Typeflag {
	case tar.TypeReg, tar.TypeLink:
		info.Type, info.Size = "file", uint64(header.Size)
	case tar.TypeDir:
		info.Type = "directory"
	case tar.TypeSymlink:
		info.Type, info.LinkTarget, info.Size = "symlink", text(header.Linkname), uint64(len(header.Linkname))
	default:
		info.Type = "other"
	}
	return info
}

// text makes a name fit for an answer: what is not UTF-8 in it is shown as U+FFFD.
func text(name string) string { return strings.ToValidUTF8(name, "\uFFFD") }

// List collects files up to a limit, in order of their paths: part by part, so that a directory's files follow it.
type List struct {
	Files     []*agboxv1.FileInfo
	Truncated bool

	limit, names int
}

// NewList returns a list of at most so many files; 0 means DefaultLimit.
func NewList(limit uint32) *List {
	return &List{limit: min(int(cmp.Or(limit, DefaultLimit)), MaxLimit)}
}

// Limit is how many files the list takes.
func (l *List) Limit() int { return l.limit }

// Add reports false when the list is full.
func (l *List) Add(info *agboxv1.FileInfo) bool {
	size := len(info.Path) + len(info.LinkTarget)
	if len(l.Files) == l.limit || l.names+size > maxNames {
		l.Truncated = true
		return false
	}
	l.Files, l.names = append(l.Files, info), l.names+size
	return true
}

// ReadTar fills the list from the tar stream of a directory, which an engine writes in the list's order: what is directly
// in it, or with recursive all below it. directory is what the paths begin with.
func (l *List) ReadTar(from io.Reader, directory string, recursive bool) error {
	sizes := map[string]uint64{} // of what hard links point to, which come without; those of the first MaxLimit files
	in := tar.NewReader(from)
	for first := true; ; first = false {
		header, err := in.Next()
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		case first && header.Typeflag != tar.TypeDir:
			return Refuse(ErrNotDirectory, "%q is not a directory; StatFile tells what it is", directory)
		case first:
			continue // the directory itself
		}
		_, below, _ := strings.Cut(strings.Trim(path.Clean("/"+header.Name), "/"), "/")
		if directory == "/" {
			below = strings.Trim(path.Clean("/"+header.Name), "/")
		}
		info := Info(path.Join(directory, below), header)
		if header.Typeflag == tar.TypeLink {
			info.Size = sizes[path.Clean(header.Linkname)]
		} else if info.Type == "file" && len(sizes) < MaxLimit {
			sizes[path.Clean(header.Name)] = info.Size
		}
		if below == "" || !recursive && strings.Contains(below, "/") {
			continue
		}
		if !l.Add(info) {
			return nil
		}
	}
}
