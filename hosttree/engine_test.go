package hosttree_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/client"
	"golang.org/x/sys/unix"

	"github.com/agbox-dev/agbox/hosttree"
	"github.com/agbox-dev/agbox/test/dockertest"
)

// engineTimeout bounds one test's calls to the engine.
const engineTimeout = 2 * time.Minute

// box is a container that is created and not started.
type box struct {
	t   *testing.T
	ctx context.Context
	api *client.Client
	id  string
}

func newBox(t *testing.T, mounts ...mount.Mount) *box {
	t.Helper()
	api := dockertest.Engine(t)
	ctx, cancel := context.WithTimeout(t.Context(), engineTimeout)
	t.Cleanup(cancel)
	made, err := api.ContainerCreate(ctx, &container.Config{Image: dockertest.TinyImage(t, api, dockertest.Busybox)},
		&container.HostConfig{NetworkMode: "none", Mounts: mounts}, nil, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), engineTimeout)
		defer cancel()
		if err := api.ContainerRemove(ctx, made.ID, container.RemoveOptions{Force: true}); err != nil {
			t.Error(err)
		}
	})
	return &box{t, ctx, api, made.ID}
}

// stream is how a copy gets into a container.
func (b *box) stream(source, target string, excludes ...string) (request, stream error) {
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := hosttree.Stream(b.ctx, w, source, target, excludes)
		w.CloseWithError(err)
		done <- err
	}()
	request = b.api.CopyToContainer(b.ctx, b.id, "/", r, container.CopyToContainerOptions{})
	r.Close()
	return request, <-done
}

func (b *box) copy(source, target string, excludes ...string) error {
	return errors.Join(b.stream(source, target, excludes...))
}

// put extracts one entry by hand.
func (b *box) put(h tar.Header, content string) {
	b.t.Helper()
	var buffer bytes.Buffer
	w := tar.NewWriter(&buffer)
	h.Size = int64(len(content))
	err := w.WriteHeader(&h)
	_, writeErr := io.WriteString(w, content)
	err = errors.Join(err, writeErr, w.Close(), b.api.CopyToContainer(b.ctx, b.id, "/", &buffer, container.CopyToContainerOptions{}))
	if err != nil {
		b.t.Fatal(err)
	}
}

// state is what a copy must keep of an entry.
type state struct {
	Mode     fs.FileMode
	UID, GID int
	Modified time.Time
	Link     string
	Content  string
}

// read is what the container holds at target, by path relative to that. The engine tells times in whole seconds.
func (b *box) read(target string) map[string]state {
	b.t.Helper()
	r, _, err := b.api.CopyFromContainer(b.ctx, b.id, target)
	if err != nil {
		b.t.Fatal(err)
	}
	defer r.Close()
	found := map[string]state{}
	for _, e := range untar(b.t, r) {
		rel, err := filepath.Rel(path.Base(target), e.Name)
		if err != nil {
			b.t.Fatal(err)
		}
		content, link := string(e.content), e.Linkname
		if e.Typeflag == tar.TypeLink {
			if link, err = filepath.Rel(path.Base(target), e.Linkname); err != nil {
				b.t.Fatal(err)
			}
			content, link = found[link].Content, ""
		}
		found[rel] = state{e.FileInfo().Mode(), e.Uid, e.Gid, e.ModTime.UTC(), link, content}
	}
	return found
}

// look is what the host holds at root, except what skip says.
func (h *host) look(root string, precision time.Duration, skip func(rel string) bool) map[string]state {
	h.t.Helper()
	found := map[string]state{}
	h.must(filepath.WalkDir(root, func(at string, d fs.DirEntry, err error) error {
		h.must(err)
		rel, err := filepath.Rel(root, at)
		h.must(err)
		if skip(rel) {
			return nil
		}
		info, err := d.Info()
		h.must(err)
		stat := info.Sys().(*syscall.Stat_t)
		s := state{info.Mode(), int(stat.Uid), int(stat.Gid), info.ModTime().Truncate(precision).UTC(), "", ""}
		switch info.Mode().Type() {
		case 0:
			content, err := os.ReadFile(at)
			h.must(err)
			s.Content = string(content)
		case fs.ModeSymlink:
			s.Link, err = os.Readlink(at)
			h.must(err)
		}
		found[rel] = s
		return nil
	}))
	return found
}

func wantStates(t *testing.T, got, want map[string]state) {
	t.Helper()
	for _, rel := range slices.Sorted(maps.Keys(want)) {
		if g, ok := got[rel]; !ok || g != want[rel] {
			w := want[rel]
			g.Content, w.Content = cut(g.Content), cut(w.Content)
			t.Errorf("%.80q (there: %t):\n got %+v\nwant %+v", rel, ok, g, w)
		}
	}
	for rel := range got {
		if _, ok := want[rel]; !ok {
			t.Errorf("%.80q is there too", rel)
		}
	}
}

func cut(content string) string { return content[:min(len(content), 40)] }

const pathBytes = 300

// everyKind makes proj a tree with entries of all kinds. As root it gives them owners; otherwise they stay the user's.
func everyKind(t *testing.T) (h *host, skip func(rel string) bool) {
	h = newHost(t)
	for _, file := range []string{"setuid", "setgid", "read-only", "sticky/f", "日本語 – ü", "\xff\xfe", "line\nbreak", ".wh.white",
		strings.Repeat("n", 200), strings.Repeat("long/", pathBytes/5) + "f", "kept.log", "gone.log", "skipped/deep/f"} {
		h.file("proj/" + file)
	}
	h.sparse("proj/empty-file", 0)
	h.must(os.WriteFile(h.path("proj/large"), bytes.Repeat([]byte("large "), 1<<16), 0o600))
	h.dir("proj/empty")
	h.link("proj/link", "main.go")
	h.link("proj/dangling", "sub/none")
	h.link("proj/to-long", strings.Repeat("long/", pathBytes/5)+"f")
	h.link("proj/absolute", h.path("proj/sticky/f"))
	h.must(os.Link(h.path("proj/main.go"), h.path("proj/sticky/hard")))
	for name, mode := range map[string]fs.FileMode{
		"": 0o750, "setuid": 0o755 | fs.ModeSetuid, "setgid": 0o755 | fs.ModeSetgid, "sticky": 0o777 | fs.ModeSticky,
		"read-only": 0o400, "empty": 0o500, "main.go": 0o664,
	} {
		h.must(os.Chmod(h.path("proj/"+name), mode))
	}
	var all []string
	h.must(filepath.WalkDir(h.path("proj"), func(at string, _ fs.DirEntry, err error) error {
		all = append(all, at)
		return err
	}))
	for i, at := range slices.Backward(all) {
		if os.Geteuid() == 0 {
			info, err := os.Lstat(at)
			h.must(err)
			h.must(os.Lchown(at, 1000+i, 2000+i))
			if info.Mode().Type() != fs.ModeSymlink {
				h.must(os.Chmod(at, info.Mode())) // a new owner takes setuid away
			}
		}
		when := unix.Timespec{Sec: 1e9 + int64(i), Nsec: 123456789}
		h.must(unix.UtimesNanoAt(unix.AT_FDCWD, at, []unix.Timespec{when, when}, unix.AT_SYMLINK_NOFOLLOW))
	}
	return h, func(rel string) bool {
		return rel == "skipped" || strings.HasPrefix(rel, "skipped/") || rel == "gone.log"
	}
}

// excludes are the patterns that leave out what everyKind's skip names.
var excludes = []string{"skipped/", "*.log", "!kept.log"}

// TestRoundTrip: every kind of entry arrives as it is on the host, wherever it goes.
func TestRoundTrip(t *testing.T) {
	h, skip := everyKind(t)
	precise := h.look(h.path("proj"), time.Nanosecond, skip)
	want := h.look(h.path("proj"), time.Second, skip)
	for _, states := range []map[string]state{precise, want} {
		absolute := states["absolute"]
		absolute.Link = "sticky/f"
		states["absolute"] = absolute
	}
	mounted := h.dir("mounted")
	h.dir("mounted/sub")
	b := newBox(t, mount.Mount{Type: mount.TypeBind, Source: mounted, Target: "/mnt/host"})

	const home = "/home/agbox"
	before := b.read(home)["."]
	for _, target := range []string{"/workspace/a/b", "/opt", home + "/x"} {
		if err := b.copy(h.path("proj"), target, excludes...); err != nil {
			t.Fatalf("copy to %s: %v", target, err)
		}
		wantStates(t, b.read(target), want)
	}
	after := b.read(home)["."]
	before.Modified, after.Modified = time.Time{}, time.Time{}
	if before.UID != 1000 || after != before {
		t.Errorf("the parent that existed was %+v and is %+v", before, after)
	}
	for _, made := range []string{"/workspace", "/workspace/a"} {
		if got := b.read(made)["."]; got.Mode != fs.ModeDir|0o755 || got.UID != 0 || got.GID != 0 {
			t.Errorf("the parent %s was made as %+v", made, got)
		}
	}

	if err := b.copy(h.path("proj"), "/mnt/host/sub/tree", excludes...); err != nil {
		t.Fatal(err)
	}
	wantStates(t, h.look(h.path("mounted/sub/tree"), time.Nanosecond, func(string) bool { return false }), precise)
	one, err := os.Stat(h.path("mounted/sub/tree/main.go"))
	h.must(err)
	if two, err := os.Stat(h.path("mounted/sub/tree/sticky/hard")); err != nil || !os.SameFile(one, two) {
		t.Errorf("the hard link is a file of its own: %v", err)
	}

	if err := b.copy(h.path("proj/setuid"), "/opt/some/where/program", "*"); err != nil {
		t.Fatal(err)
	}
	wantStates(t, b.read("/opt/some/where/program"), map[string]state{".": want["setuid"]})
}

// TestTargetExists: what becomes of a target that is there, as the package comment says.
func TestTargetExists(t *testing.T) {
	h := newHost(t)
	b := newBox(t)
	b.put(tar.Header{Typeflag: tar.TypeReg, Name: "there/other", Mode: 0o600, Uid: 7}, "other")
	b.put(tar.Header{Typeflag: tar.TypeReg, Name: "there/main.go", Mode: 0o600, Uid: 7}, "old")
	b.put(tar.Header{Typeflag: tar.TypeSymlink, Name: "alias", Linkname: "there"}, "")
	h.must(os.Chmod(h.path("proj"), 0o711))

	if err := b.copy(h.path("proj"), "/there"); err != nil {
		t.Fatal(err)
	}
	got := b.read("/there")
	if got["."].Mode != fs.ModeDir|0o711 || got["."].UID != os.Geteuid() {
		t.Errorf("the directory is %+v", got["."])
	}
	if got["main.go"].Content != "proj/main.go" || got["other"].Content != "other" || got["other"].UID != 7 {
		t.Errorf("it holds %+v", got)
	}

	if err := b.copy(h.path("proj"), "/alias/below"); err != nil {
		t.Fatal(err)
	}
	if got := b.read("/there/below"); got["main.go"].Content != "proj/main.go" {
		t.Errorf("through a link in the container came %+v", got)
	}

	for name, c := range map[string][2]string{
		"directory over file": {"proj", "/there/main.go"},
		"directory over link": {"proj", "/alias"},
		"file over directory": {"proj/main.go", "/there"},
	} {
		if err := b.copy(h.path(c[0]), c[1]); err == nil || !strings.Contains(err.Error(), "cannot overwrite") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestHardLinkAcrossMounts: what the engine cannot extract is an error, not a copy that lacks something.
func TestHardLinkAcrossMounts(t *testing.T) {
	h := newHost(t)
	h.dir("proj/host")
	h.must(os.Link(h.path("proj/main.go"), h.path("proj/host/hard")))
	b := newBox(t, mount.Mount{Type: mount.TypeBind, Source: h.dir("mounted"), Target: "/mnt/host"})
	if err := b.copy(h.path("proj"), "/mnt"); err == nil || !strings.Contains(err.Error(), "cross-device") {
		t.Errorf("got %v", err)
	}
}

// TestStreamFails: an error of the stream is one of the request.
func TestStreamFails(t *testing.T) {
	h := newHost(t)
	h.sparse("proj/a", large)
	h.fifo("proj/z")
	request, stream := newBox(t).stream(h.path("proj"), "/to")
	wantError(t, stream, hosttree.ErrEntryKind, "/proj/z")
	if !errors.Is(request, hosttree.ErrEntryKind) {
		t.Errorf("the request says %v", request)
	}
}
