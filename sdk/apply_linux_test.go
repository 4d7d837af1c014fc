package sdk_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk"
	"github.com/agbox-dev/agbox/sdk/sdktest"
)

// box is what a daemon says that a sandbox changed.
type box struct {
	agboxv1.UnimplementedSandboxServiceServer
	mount   *agboxv1.ChangedMount
	changes []*agboxv1.Change
	tar     bytes.Buffer
	out     *tar.Writer
}

func (b *box) add(change *agboxv1.Change, header *tar.Header, content string) {
	if !utf8.ValidString(change.Path) {
		change.Path, change.PathBytes = "not UTF-8", []byte(change.Path)
	}
	b.changes = append(b.changes, change)
	if header == nil {
		return
	}
	if b.out == nil {
		b.out = tar.NewWriter(&b.tar)
	}
	header.Format, header.Size = tar.FormatPAX, int64(len(content))
	if err := b.out.WriteHeader(header); err != nil {
		panic(err)
	}
	if _, err := b.out.Write([]byte(content)); err != nil {
		panic(err)
	}
}

func (b *box) file(kind, path, content string, mode int64) {
	b.add(&agboxv1.Change{Kind: kind, Type: "file", Path: path, Mode: uint32(mode), SizeBytes: uint64(len(content))},
		&tar.Header{Typeflag: tar.TypeReg, Name: path, Mode: mode, ModTime: time.Unix(1_700_000_000, 0)}, content)
}

func (b *box) directory(kind, path string, mode int64) {
	b.add(&agboxv1.Change{Kind: kind, Type: "directory", Path: path, Mode: uint32(mode)}, &tar.Header{Typeflag: tar.TypeDir, Name: path + "/", Mode: mode}, "")
}

func (b *box) link(path, target string) {
	b.add(&agboxv1.Change{Kind: "added", Type: "symlink", Path: path, Mode: 0o777, LinkTarget: target}, &tar.Header{Typeflag: tar.TypeSymlink, Name: path, Linkname: target}, "")
}

func (b *box) removed(path, of string) {
	b.add(&agboxv1.Change{Kind: "removed", Type: of, Path: path}, nil, "")
}

func (b *box) SandboxChanges(_ *agboxv1.SandboxChangesRequest, stream grpc.ServerStreamingServer[agboxv1.SandboxChangesResponse]) error {
	err := stream.Send(&agboxv1.SandboxChangesResponse{Mount: b.mount})
	for _, change := range b.changes {
		err = errors.Join(err, stream.Send(&agboxv1.SandboxChangesResponse{Changes: []*agboxv1.Change{change}}))
	}
	return err
}

func (b *box) DownloadChanges(_ *agboxv1.DownloadChangesRequest, stream grpc.ServerStreamingServer[agboxv1.DownloadFilesChunk]) error {
	for b.tar.Len() > 0 {
		if err := stream.Send(&agboxv1.DownloadFilesChunk{Data: b.tar.Next(100)}); err != nil {
			return err
		}
	}
	return nil
}

// apply has a daemon tell of the box as the changes of source, and returns what was left: path and reason.
func (b *box) apply(t *testing.T, source string, between func(), opts ...sdk.ApplyOption) string {
	t.Helper()
	_, socket := sdktest.Stub(t, b)
	c := newClient(t, socket)
	if b.out != nil {
		if err := b.out.Close(); err != nil {
			t.Fatal(err)
		}
	}
	b.mount = &agboxv1.ChangedMount{Target: "/workspace", Source: source, ListedAt: timestamppb.New(listed(t))}
	var all []sdk.Change
	for change, err := range c.Changes(t.Context(), "box") {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, change)
	}
	if between != nil {
		between()
	}
	left, err := c.ApplyChanges(t.Context(), "box", all, opts...)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, l := range left {
		fmt.Fprintf(&text, "%q: %s\n", l.Change.Path, l.Reason)
	}
	return text.String()
}

// listed is a time that no change is older than which is made from here on, and none newer that was made before.
func listed(t *testing.T) time.Time {
	t.Helper()
	name := filepath.Join(t.TempDir(), "clock")
	stamp := func() time.Time {
		if err := os.WriteFile(name, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		return info.ModTime()
	}
	first := stamp()
	for {
		if now := stamp(); now.After(first) {
			return now
		}
	}
}

func files(t *testing.T, dir string) string {
	t.Helper()
	var text strings.Builder
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		content := ""
		switch name, _ := filepath.Rel(dir, path); {
		case info.Mode().IsRegular():
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			content = string(data)
			fallthrough
		default:
			link, _ := os.Readlink(path)
			fmt.Fprintf(&text, "%s %q %s%s\n", info.Mode(), name, content, link)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return text.String()
}

func makeFiles(t *testing.T, dir string, names ...string) {
	t.Helper()
	for _, name := range names {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("host"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestApply: all kinds of changes arrive, without what no host is to have of a sandbox.
func TestApply(t *testing.T) {
	t.Parallel()
	source := t.TempDir()
	if err := os.Chmod(source, 0o755); err != nil {
		t.Fatal(err)
	}
	makeFiles(t, source, "changed", "gone", "gone-dir/a/b", "dir/old", "to-dir", "to-file/a/b")
	if err := os.Mkdir(filepath.Join(source, "mode"), 0o755); err != nil {
		t.Fatal(err)
	}
	var b box
	b.file("changed", "changed", "box", 0o4755)
	b.file("added", "dir/new\n\xff", "box", 0o600)
	b.directory("added", "closed", 0o500)
	b.file("added", "closed/in", "box", 0o444)
	b.directory("changed", "mode", 0o2700)
	b.link("link", "dir/old")
	b.link("dir/up", "../changed")
	b.add(&agboxv1.Change{Kind: "changed", Type: "directory", OldType: "file", Path: "to-dir", Mode: 0o755}, &tar.Header{Typeflag: tar.TypeDir, Name: "to-dir/", Mode: 0o755}, "")
	b.file("added", "to-dir/in", "box", 0o644)
	b.add(&agboxv1.Change{Kind: "changed", Type: "file", OldType: "directory", Path: "to-file", Mode: 0o644}, &tar.Header{Typeflag: tar.TypeReg, Name: "to-file", Mode: 0o644}, "box")
	b.file("added", "hard-1", "box", 0o644)
	b.add(&agboxv1.Change{Kind: "added", Type: "file", Path: "hard-2", Mode: 0o644}, &tar.Header{Typeflag: tar.TypeLink, Name: "hard-2", Linkname: "hard-1"}, "")
	b.removed("gone", "file")
	b.removed("gone-dir", "directory")
	b.removed("never-there", "file")
	if left := b.apply(t, source, nil); left != "" {
		t.Errorf("left: %s", left)
	}
	const want = `drwxr-xr-x "." 
-rwxr-xr-x "changed" box
dr-x------ "closed" 
-r--r--r-- "closed/in" box
drwxr-xr-x "dir" 
-rw------- "dir/new\n\xff" box
-rw-r--r-- "dir/old" host
Lrwxrwxrwx "dir/up" ../changed
-rw-r--r-- "hard-1" box
-rw-r--r-- "hard-2" box
Lrwxrwxrwx "link" dir/old
drwx------ "mode" 
drwxr-xr-x "to-dir" 
-rw-r--r-- "to-dir/in" box
-rw-r--r-- "to-file" box
`
	if got := files(t, source); got != want {
		t.Errorf("the host has\n%s\nwant\n%s", got, want)
	}
	one, err := os.Stat(filepath.Join(source, "hard-1"))
	if err != nil {
		t.Fatal(err)
	}
	if two, err := os.Stat(filepath.Join(source, "hard-2")); err != nil || !os.SameFile(one, two) || !one.ModTime().Equal(time.Unix(1_700_000_000, 0)) {
		t.Errorf("two links are not one file of the sandbox's time: %v, %v", one.ModTime(), err)
	}
	os.Chmod(filepath.Join(source, "closed"), 0o700)
}

// TestApplyLeaves: conflicts, what cannot be on a host, and what is not as it was listed is named and left.
func TestApplyLeaves(t *testing.T) {
	t.Parallel()
	source := t.TempDir()
	makeFiles(t, source, "conflict", "late", "late-gone", "late-dir/a", "late-type", "way/x", "kept")
	var b box
	b.file("changed", "conflict", "box", 0o644)
	b.changes[0].Conflict = true
	b.file("changed", "late", "box", 0o644)
	b.file("added", "late-added", "box", 0o644)
	b.file("changed", "late-type", "box", 0o644)
	b.file("changed", "way/x", "box", 0o644)
	b.file("added", "no/such/directory", "box", 0o644)
	b.link("absolute", "/etc/passwd")
	b.link("out", "../x")
	b.link("behind", "way/../../x")
	b.link("kept-inside", "./way/x")
	b.removed("late-gone", "file")
	b.removed("late-dir", "directory")
	b.add(&agboxv1.Change{Kind: "added", Type: "fifo", Path: "fifo", Problem: "it is a fifo"}, nil, "")
	b.add(&agboxv1.Change{Kind: "added", Type: "file", Path: "vanished"}, nil, "")
	b.add(&agboxv1.Change{Kind: "added", Type: "file", Path: "now-a-link"}, &tar.Header{Typeflag: tar.TypeSymlink, Name: "now-a-link", Linkname: "/etc"}, "")
	b.add(&agboxv1.Change{Kind: "added", Type: "file", Path: "hard"}, &tar.Header{Typeflag: tar.TypeLink, Name: "hard", Linkname: "conflict"}, "")
	unlisted := &tar.Header{Typeflag: tar.TypeReg, Name: "unlisted", Mode: 0o644}
	b.add(&agboxv1.Change{}, unlisted, "x")
	b.changes = b.changes[:len(b.changes)-1]
	left := b.apply(t, source, func() {
		makeFiles(t, source, "late", "late-added", "late-gone", "late-dir/b")
		for _, err := range []error{os.Remove(filepath.Join(source, "late-type")), os.Mkdir(filepath.Join(source, "late-type"), 0o755),
			os.Rename(filepath.Join(source, "way"), filepath.Join(source, "away")), os.Symlink("away", filepath.Join(source, "way"))} {
			if err != nil {
				t.Fatal(err)
			}
		}
	})
	const want = `"absolute": the link leads out of the mount, to "/etc/passwd"
"behind": the link leads out of the mount, to "way/../../x"
"conflict": the host changed it since the sandbox was made
"fifo": it is a fifo
"hard": it is the same file as "conflict", which is left
"late": the host changed it since it was listed
"late-added": the host has it, too, since it was listed
"late-dir": the host changed it since it was listed
"late-gone": the host changed it since it was listed
"late-type": the host has made something else of it since it was listed
"no/such/directory": the host has no directory for it
"now-a-link": the sandbox has made something else of it since it was listed
"out": the link leads out of the mount, to "../x"
"vanished": the sandbox has it no longer
"way/x": on the host the way to it leads through a link, or to another file system
`
	if left != want {
		t.Errorf("left\n%s\nwant\n%s", left, want)
	}
	for _, name := range []string{"conflict", "late", "late-added", "late-gone", "late-dir/a", "kept", "away/x"} {
		if text, err := os.ReadFile(filepath.Join(source, name)); string(text) != "host" {
			t.Errorf("%s holds %q, %v", name, text, err)
		}
	}
	entries, _ := os.ReadDir(source)
	for _, entry := range entries {
		if name := entry.Name(); strings.HasPrefix(name, ".agbox-") || name == "unlisted" || name == "hard" || name == "fifo" {
			t.Errorf("%s was made", name)
		}
	}

	var again box
	again.file("changed", "conflict", "box", 0o644)
	again.changes[0].Conflict = true
	again.link("absolute", "/etc/passwd")
	if left := again.apply(t, source, nil, sdk.WithOverwrite(), sdk.WithOutsideLinks()); left != "" {
		t.Errorf("left although told to do it: %s", left)
	}
	if link, _ := os.Readlink(filepath.Join(source, "absolute")); link != "/etc/passwd" {
		t.Errorf("the link leads to %q", link)
	}
}

// TestApplyStaysInside: names that lead out are left, and whoever swaps directories of the source for links meanwhile has
// nothing written or removed behind them.
func TestApplyStaysInside(t *testing.T) {
	t.Parallel()
	outside := t.TempDir()
	makeFiles(t, outside, "x", "d/x")
	before := files(t, outside)
	parent := t.TempDir()
	source := filepath.Join(parent, "source")
	makeFiles(t, source, "a/x")
	ended, swapping := context.WithCancel(t.Context())
	done := make(chan error, 1)
	if err := os.Symlink(outside, filepath.Join(source, "link")); err != nil {
		t.Fatal(err)
	}
	go func() {
		at := func(name string) string { return filepath.Join(source, name) }
		for ended.Err() == nil {
			for _, move := range [][2]string{{"a", "a2"}, {"link", "a"}, {"a", "link"}, {"a2", "a"}} {
				if err := os.Rename(at(move[0]), at(move[1])); err != nil {
					done <- err
					return
				}
			}
		}
		done <- nil
	}()
	for round := range 30 {
		var b box
		for _, name := range []string{"../x", "/x", "a/../../x", "..", ""} {
			b.file("changed", name, "evil", 0o644)
		}
		b.file("added", fmt.Sprintf("a/new-%d", round), "evil", 0o644)
		b.file("changed", "a/x", "evil", 0o644)
		b.directory("added", fmt.Sprintf("a/dir-%d", round), 0o755)
		b.removed("a/d", "directory")
		b.apply(t, source, nil, sdk.WithOverwrite())
	}
	swapping()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if after := files(t, outside); after != before {
		t.Errorf("outside of the source there was\n%s\nand is\n%s", before, after)
	}
	if entries, _ := os.ReadDir(parent); len(entries) != 1 {
		t.Errorf("beside the source there is %v", entries)
	}
}
