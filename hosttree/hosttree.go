// Package hosttree writes a file or directory of the host as a tar for a container's file system.
//
// A copy takes files, directories and symbolic links with their owner, mode (setuid, setgid and sticky included) and
// modification time; hard links within the copy stay hard links. Left behind are extended attributes, ACLs and holes:
// a sparse file becomes a full one. Symbolic links are never followed, neither on the way to the source nor in it, and
// keep their text; one that names a place within the source by its absolute path on the host becomes relative. One
// that leads out of the source, a socket, a pipe or a device makes the whole copy fail, unless it is excluded.
//
// # Exclude patterns
//
// They are those of a .gitignore file: one without a slash matches at any depth, one with a slash from the top, a trailing
// slash matches directories only, "**" spans directories, "!" takes back what an earlier pattern excluded, the last match
// wins; blank patterns and those that begin with "#" do nothing. What lies in an excluded directory is excluded. The
// source itself never is.
//
// # Extraction
//
// The tar is meant for the Engine API's PUT /containers/{id}/archive with path=/ and noOverwriteDirNonDir (the
// client's default), without copyUIDGID, on a container that is created and not yet started: bind mounts are in place
// then, so that a copy may go below a writable one. It holds the target and what is below it, and no parents. The engine
// (as of 20.10) makes missing parents for root with mode 0755 and leaves those that exist alone; symbolic links in
// a parent's path lead where they lead in the container. A target that exists takes the source's owner, mode and time;
// a directory there keeps what else it holds; a file there is replaced by a file. The engine refuses to put a directory
// in the place of a file or a file in that of a directory, and a hard link whose two names lie in different mounts.
//
// The engine takes a tar that ends early for a whole one. Whoever streams to it must therefore fail the request when
// Stream fails, as io.PipeWriter's CloseWithError does, except for ErrChanged.
package hosttree

import (
	"context"
	"io/fs"
)

// maxEntries bounds the entries of one copy; with them the memory for names that wait to be read: some
// 40 MB with usual names, 280 MB when each has the 255 bytes that file systems allow.
const maxEntries = 1_000_000

// maxDepth bounds the directories that are open at a time, one for each level.
const maxDepth = 255

// Check tells whether source, a clean absolute path, can be copied without excludes. It reads directories and links but
// no file: that a file's content cannot be read, only Stream finds. It holds for this moment; Stream checks again.
//
// visit, when not nil, is called for the source and each entry in it that is copied, parents first, in lexical order,
// with its path on the host. The error is visit's, ctx's or an *Error.
func Check(ctx context.Context, source string, excludes []string, visit func(path string, info fs.FileInfo) error) error {
	return check(ctx, source, excludes, maxEntries, visit)
}

func check(ctx context.Context, source string, excludes []string, limit int, visit func(string, fs.FileInfo) error) error {
	patterns, err := newExcluder(excludes)
	if err != nil {
		return err
	}
	w := &walk{source: source, patterns: patterns, limit: limit, visit: func(e entry) error {
		if visit == nil {
			return nil
		}
		return visit(e.path, e.info)
	}}
	return w.run(ctx)
}
