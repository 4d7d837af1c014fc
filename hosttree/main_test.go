package hosttree_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/agbox-dev/agbox/hosttree"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// host is a directory of the test's own, with a source "proj" that holds one file.
type host struct {
	t    testing.TB
	root string
}

func newHost(t testing.TB) *host {
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	h := &host{t, root}
	h.file("proj/main.go")
	return h
}

func (h *host) path(rel string) string { return filepath.Join(h.root, rel) }

func (h *host) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) dir(rel string) string {
	h.t.Helper()
	h.must(os.MkdirAll(h.path(rel), 0o755))
	return h.path(rel)
}

// file writes a file that holds its own name.
func (h *host) file(rel string) string {
	h.t.Helper()
	h.dir(filepath.Dir(rel))
	h.must(os.WriteFile(h.path(rel), []byte(rel), 0o644))
	return h.path(rel)
}

// sparse makes a file of size bytes, all zero.
func (h *host) sparse(rel string, size int64) string {
	h.t.Helper()
	h.file(rel)
	h.must(os.Truncate(h.path(rel), 0))
	h.must(os.Truncate(h.path(rel), size))
	return h.path(rel)
}

func (h *host) link(rel, to string) {
	h.t.Helper()
	h.dir(filepath.Dir(rel))
	h.must(os.Symlink(to, h.path(rel)))
}

func (h *host) fifo(rel string) {
	h.t.Helper()
	h.must(unix.Mkfifo(h.path(rel), 0o600))
}

func (h *host) socket(rel string) {
	h.t.Helper()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	h.must(err)
	defer unix.Close(fd)
	// A socket's path is short by nature, so it is made elsewhere and moved.
	short, err := os.MkdirTemp("", "s")
	h.must(err)
	defer os.RemoveAll(short)
	h.must(unix.Bind(fd, &unix.SockaddrUnix{Name: filepath.Join(short, "s")}))
	h.must(os.Rename(filepath.Join(short, "s"), h.path(rel)))
}

// wantError checks an *Error's kind and a part of its message.
func wantError(t *testing.T, err, kind error, part string) {
	t.Helper()
	refused, ok := errors.AsType[*hosttree.Error](err)
	if !ok || !errors.Is(err, kind) || refused.Kind != kind || !strings.Contains(err.Error(), part) {
		t.Errorf("got %v\nwant %v with %q", err, kind, part)
	}
}

// entry is what a tar holds under a name.
type entry struct {
	tar.Header
	content []byte
}

// untar reads a whole tar, in order; it fails t when that is not well-formed.
func untar(t testing.TB, r io.Reader) []entry {
	t.Helper()
	var list []entry
	for archive := tar.NewReader(r); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return list
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, entry{*h, content})
	}
}

// streamed is the tar of a copy to /to.
func streamed(t testing.TB, source string, excludes ...string) ([]entry, error) {
	t.Helper()
	var out bytes.Buffer
	if err := hosttree.Stream(t.Context(), &out, source, "/to", excludes); err != nil {
		return nil, err
	}
	return untar(t, &out), nil
}
