package pid1_test

import (
	"archive/tar"
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/agbox-dev/agbox/guest/files"
	"github.com/agbox-dev/agbox/guest/protocol"
	"github.com/agbox-dev/agbox/test/dockertest/skiplog"
)

// unpack has agbox-init make what feed sends in a directory, and returns what it says about that.
func unpack(t *testing.T, dir string, feed func(files.Sink) error) error {
	t.Helper()
	cmd := exec.Command(initBinary, "file", "write", dir, "77:88", "", "")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	from, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	cmd.Stdout, cmd.Stderr = to, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	to.Close()
	err = feed(files.Send(stdin))
	stdin.Close()
	from.SetReadDeadline(time.Now().Add(time.Minute))
	said, readErr := protocol.ReadFile(bufio.NewReader(from))
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	switch {
	case err != nil && !errors.Is(err, syscall.EPIPE):
		return err
	case readErr != nil:
		return readErr
	case said[0] == protocol.FileFailed:
		return files.ParseFailure(said)
	}
	return nil
}

// add sends headers, each file with so many bytes of "x" as its size says.
func add(all ...tar.Header) func(files.Sink) error {
	return func(s files.Sink) error {
		for _, h := range all {
			if err := s.Add(&h, strings.NewReader(strings.Repeat("x", int(h.Size)))); err != nil {
				return err
			}
		}
		return s.End()
	}
}

func needsRoot(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		skiplog.Skip(t, "needs root: it gives files away")
	}
}

// What is in an archive comes out as it is, whatever lies there, and holes stay holes.
func TestWrite(t *testing.T) {
	t.Parallel()
	needsRoot(t)
	dir := filepath.Join(t.TempDir(), "new")
	at := time.Unix(1_000_000_000, 5000)
	reg := func(name string, size, mode int64) tar.Header {
		return tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: mode, ModTime: at}
	}
	if err := unpack(t, dir, add(
		tar.Header{Typeflag: tar.TypeDir, Name: ".", Mode: 0o711, ModTime: at},
		reg("a/b/c \xff", 70_000, 0o640), reg("a/b/set", 1, 0o6755), reg("a/b/c \xff", 3, 0o600),
		tar.Header{Typeflag: tar.TypeLink, Name: "a/hard", Linkname: "a/b/set"}, tar.Header{Typeflag: tar.TypeLink, Name: "a/hard", Linkname: "a/b/set"},
		tar.Header{Typeflag: tar.TypeSymlink, Name: "l", Linkname: "/none\xfe", ModTime: at},
		tar.Header{Typeflag: tar.TypeDir, Name: "a", Mode: 0o1700, ModTime: at},
	)); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]struct {
		mode, links uint32
		size        int64
	}{
		"": {syscall.S_IFDIR | 0o711, 0, -1}, "a": {syscall.S_IFDIR | 0o1700, 0, -1}, "a/b": {syscall.S_IFDIR | 0o755, 0, -1},
		"a/b/c \xff": {syscall.S_IFREG | 0o600, 1, 3}, "a/b/set": {syscall.S_IFREG | 0o755, 2, 1}, "l": {syscall.S_IFLNK | 0o777, 1, 6},
	} {
		var st syscall.Stat_t
		if err := syscall.Lstat(filepath.Join(dir, name), &st); err != nil || st.Mode != want.mode || st.Uid != 77 || st.Gid != 88 ||
			want.links > 0 && uint32(st.Nlink) != want.links || want.size >= 0 && st.Size != want.size {
			t.Errorf("%q is %o of %d:%d, %d bytes, %d links; %v", name, st.Mode, st.Uid, st.Gid, st.Size, st.Nlink, err)
		} else if name != "a/b" && (st.Mtim.Sec != at.Unix() || st.Mtim.Nsec != 5000) && name != "" {
			t.Errorf("%q is of %v", name, st.Mtim)
		}
	}
	if all, err := filepath.Glob(filepath.Join(dir, "a", ".*")); len(all) > 0 || err != nil {
		t.Errorf("there is more: %v, %v", all, err)
	}

	hole := reg("hole", 1<<30, 0o600)
	if err := unpack(t, dir, func(s files.Sink) error {
		if err := s.Add(&hole, io.MultiReader(strings.NewReader("begin"), io.LimitReader(zeros{}, hole.Size-5))); err != nil {
			return err
		}
		return s.End()
	}); err != nil {
		t.Fatal(err)
	}
	var st syscall.Stat_t
	if err := syscall.Stat(filepath.Join(dir, "hole"), &st); err != nil || st.Size != hole.Size || st.Blocks > 200 {
		t.Errorf("the hole has %d bytes in %d blocks, %v", st.Size, st.Blocks, err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// What would lead out of the directory, or change what somebody else has there, is refused, and nothing is half there.
func TestWriteRefuses(t *testing.T) {
	t.Parallel()
	needsRoot(t)
	out, dir := t.TempDir(), t.TempDir()
	for _, err := range []error{
		os.Symlink(out, filepath.Join(dir, "out")), os.Symlink("none", filepath.Join(dir, "dangling")), os.Symlink("sub", filepath.Join(dir, "in")),
		os.Mkdir(filepath.Join(dir, "sub"), 0o700), syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o600), os.Symlink("/proc/self", filepath.Join(dir, "kernel")),
		os.WriteFile(filepath.Join(out, "secret"), []byte("kept"), 0o600), os.Link(filepath.Join(out, "secret"), filepath.Join(dir, "shared")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	file := func(name string) tar.Header { return tar.Header{Typeflag: tar.TypeReg, Name: name, Size: 1} }
	for name, test := range map[string]struct {
		kind error
		h    tar.Header
	}{
		"through a link":       {files.ErrEscapes, file("out/x")},
		"deep through a link":  {files.ErrEscapes, file("out/y/x")},
		"through nothing":      {files.ErrNotFound, file("dangling/x")},
		"into the kernel":      {files.ErrEscapes, file("kernel/x")},
		"through a pipe":       {files.ErrNotDirectory, file("fifo/x")},
		"a file for a tree":    {files.ErrRefused, file("sub")},
		"a tree for a pipe":    {files.ErrNotDirectory, tar.Header{Typeflag: tar.TypeDir, Name: "fifo"}},
		"a tree for a link":    {files.ErrNotDirectory, tar.Header{Typeflag: tar.TypeDir, Name: "out"}},
		"a link for a tree":    {files.ErrRefused, tar.Header{Typeflag: tar.TypeSymlink, Name: "sub", Linkname: "x"}},
		"a link to what isn't": {files.ErrNotFound, tar.Header{Typeflag: tar.TypeLink, Name: "x", Linkname: "none"}},
	} {
		if err := unpack(t, dir, add(test.h)); !errors.Is(err, test.kind) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := unpack(t, dir, add(file("in/deep/x"), file("fifo"), file("dangling"), file("shared"))); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(filepath.Join(out, "secret")); string(text) != "kept" {
		t.Errorf("the file that had another name has %q, %v", text, err)
	}
	if err := unpack(t, filepath.Join(dir, "fifo/x"), add()); !errors.Is(err, files.ErrNotDirectory) {
		t.Errorf("below a file: %v", err)
	}
	if err := unpack(t, "/proc/self", add()); !errors.Is(err, files.ErrReserved) {
		t.Errorf("into the kernel: %v", err)
	}
	// Whoever goes away in the middle of a file leaves none.
	if err := unpack(t, dir, func(s files.Sink) error {
		return s.Add(&tar.Header{Typeflag: tar.TypeReg, Name: "half", Size: 1 << 20}, bytes.NewReader(bytes.Repeat([]byte("x"), 600<<10)))
	}); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("half a file: %v", err)
	}
	var names []string
	for _, name := range []string{dir, out} {
		all, err := os.ReadDir(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range all {
			names = append(names, one.Name())
		}
	}
	if got := strings.Join(names, " "); got != "dangling fifo in kernel out shared sub secret" {
		t.Errorf("there are %s", got)
	}
}
