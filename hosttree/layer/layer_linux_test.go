package layer_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agbox-dev/agbox/hosttree/layer"
	"github.com/agbox-dev/agbox/test/dockertest/skiplog"
)

// overlay is a copy-on-write mount as the engine makes it.
type overlay struct {
	layer.Layer
	merged string
}

func mounted(t *testing.T, fill func(lower string)) overlay {
	t.Helper()
	if os.Getuid() != 0 {
		skiplog.Skip(t, "an overlay takes root")
	}
	dir := t.TempDir()
	at := func(name string) string {
		path := filepath.Join(dir, name)
		if err := os.Mkdir(path, 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	o := overlay{layer.Layer{Lower: at("lower"), Upper: at("upper")}, at("merged")}
	fill(o.Lower)
	// Only what is done to the host from here on is a conflict; times of files have steps of some milliseconds.
	until := time.Now().Add(20 * time.Millisecond)
	for late := false; !late; {
		late = time.Now().After(until)
		if err := os.WriteFile(filepath.Join(dir, "made"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	info, err := os.Stat(filepath.Join(dir, "made"))
	if err != nil {
		t.Fatal(err)
	}
	o.Made = info.ModTime()
	options := "lowerdir=" + o.Lower + ",upperdir=" + o.Upper + ",workdir=" + at("work") + ",redirect_dir=nofollow,metacopy=off,index=off"
	if err := unix.Mount("overlay", o.merged, "overlay", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		skiplog.Skip(t, fmt.Sprintf("an overlay cannot be mounted here: %v", err))
	}
	t.Cleanup(func() {
		if err := unix.Unmount(o.merged, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return o
}

func (o overlay) list(t *testing.T) string {
	t.Helper()
	var text strings.Builder
	err := o.Walk(t.Context(), func(c *layer.Change) error {
		fmt.Fprintf(&text, "%s %s %q", c.Kind, c.Type, c.Path)
		if c.OldType != "" {
			fmt.Fprintf(&text, " was %s", c.OldType)
		}
		if c.LinkTarget != "" {
			fmt.Fprintf(&text, " -> %q", c.LinkTarget)
		}
		if c.Kind != layer.Removed && c.Type != layer.Symlink {
			fmt.Fprintf(&text, " %o", c.Mode)
		}
		if c.Conflict {
			text.WriteString(" conflict")
		}
		if c.Problem != "" {
			text.WriteString(": " + c.Problem)
		}
		text.WriteByte('\n')
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return text.String()
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func put(dir, name, text string) error {
	return errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755), os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
}

func readWrite(name string) error {
	file, err := os.OpenFile(name, os.O_RDWR, 0)
	if err == nil {
		err = file.Close()
	}
	return err
}

// TestWalk: the list is exactly what the sandbox did, whatever the kernel made of it.
func TestWalk(t *testing.T) {
	t.Parallel()
	o := mounted(t, func(lower string) {
		for _, name := range []string{"append", "truncate", "same", "opened", "touched", "chmod", "gone", "moved", "replaced", "to-dir", "to-link", "hard-a",
			"d/kept", "d/gone", "renamed/x/y", "again/old", "again/both", "again/sub/deep", "gone-dir/a/b", "dir-to-file/a", "untouched/a", "mode/a"} {
			must(t, put(lower, name, "host "+name+"\n"))
		}
		must(t, os.Symlink("append", filepath.Join(lower, "link")), os.Symlink("append", filepath.Join(lower, "kept-link")),
			os.Link(filepath.Join(lower, "hard-a"), filepath.Join(lower, "hard-b")))
	})
	in := func(name string) string { return filepath.Join(o.merged, name) }
	if got := o.list(t); got != "" {
		t.Errorf("at first there is\n%s", got)
	}
	must(t, put(o.merged, "append", "more"), os.Truncate(in("truncate"), 3),
		put(o.merged, "same", "host same\n"), readWrite(in("opened")), os.Chtimes(in("touched"), time.Unix(1, 0), time.Unix(2, 0)), os.Lchown(in("touched"), 77, 77),
		os.Chmod(in("chmod"), 0o600), os.Remove(in("gone")), os.Rename(in("moved"), in("moved-to")),
		put(o.merged, "new", "new"), os.Rename(in("new"), in("replaced")),
		os.Remove(in("to-dir")), put(o.merged, "to-dir/in", "x"), os.Remove(in("to-link")), os.Symlink("append", in("to-link")),
		put(o.merged, "hard-a", "more"), os.Remove(in("d/gone")), put(o.merged, "d/new", "x"),
		os.Remove(in("link")), os.Symlink("elsewhere", in("link")), os.Symlink("dangling", in("new-link")),
		os.RemoveAll(in("again")), put(o.merged, "again/both", "host again/both\n"), put(o.merged, "again/new", "x"), os.Mkdir(in("again/sub"), 0o755), put(o.merged, "again/sub/other", "x"),
		os.RemoveAll(in("gone-dir")), os.RemoveAll(in("dir-to-file")), put(o.merged, "dir-to-file", "x"), os.Chmod(in("mode"), 0o700),
		put(o.merged, "brief", "x"), os.Remove(in("brief")), os.Mkdir(in("empty"), 0o700))
	if err := os.Rename(in("renamed"), in("renamed-to")); !errors.Is(err, unix.EXDEV) {
		t.Errorf("a directory of the host's is renamed: %v; mv has to copy it", err)
	}
	const want = `added file "again/new" 644
added file "again/sub/other" 644
removed file "again/sub/deep"
removed file "again/old"
changed file "append" 644
changed file "chmod" 600
removed file "d/gone"
added file "d/new" 644
changed file "dir-to-file" was directory 644
added directory "empty" 700
removed file "gone"
removed directory "gone-dir"
changed file "hard-a" 644
changed symlink "link" -> "elsewhere"
changed directory "mode" 700
removed file "moved"
added file "moved-to" 644
added symlink "new-link" -> "dangling"
changed file "replaced" 644
changed directory "to-dir" was file 755
added file "to-dir/in" 644
changed symlink "to-link" was file -> "append"
changed file "truncate" 644
`
	if got := o.list(t); got != want {
		t.Errorf("the changes are\n%s\nwant\n%s", got, want)
	}
	headers, contents := tarOf(t, o.Layer)
	for name, want := range map[string]string{"append": "more", "truncate": "hos", "moved-to": "host moved\n", "replaced": "new", "to-dir/in": "x", "again/sub/other": "x"} {
		if contents[name] != want {
			t.Errorf("the tar has %q in %s, want %q", contents[name], name, want)
		}
	}
	if link := headers["link"]; link == nil || link.Typeflag != tar.TypeSymlink || link.Linkname != "elsewhere" || headers["empty/"].Mode != 0o700 || len(headers) != 17 {
		t.Errorf("the tar has %v", headers)
	}
}

// TestConflicts: what the host changed since the sandbox was made is told, and nothing else is.
func TestConflicts(t *testing.T) {
	t.Parallel()
	names := []string{"both", "sandbox", "host", "gone-both", "gone-sandbox", "gone-host", "moved", "dir-gone/a/b", "dir-gone-both/a/b", "added-beside/x", "mode-both/x", "typed"}
	o := mounted(t, func(lower string) {
		for _, name := range names {
			must(t, put(lower, name, "before"))
		}
	})
	in := func(name string) string { return filepath.Join(o.merged, name) }
	on := func(name string) string { return filepath.Join(o.Lower, name) }
	must(t, put(o.merged, "both", "box"), put(o.merged, "sandbox", "box"), os.Remove(in("gone-both")), os.Remove(in("gone-sandbox")), put(o.merged, "gone-host", "box"),
		os.Rename(in("moved"), in("moved-to")), os.RemoveAll(in("dir-gone")), os.RemoveAll(in("dir-gone-both")), put(o.merged, "added-both", "box"), put(o.merged, "added-same", "same"),
		os.Chmod(in("added-beside"), 0o700), os.Chmod(in("mode-both"), 0o700), os.Remove(in("typed")), os.Mkdir(in("typed"), 0o755))
	must(t, put(o.Lower, "both", "man"), put(o.Lower, "host", "man"), put(o.Lower, "gone-both", "man"), os.Remove(on("gone-host")), put(o.Lower, "dir-gone-both/a/c", "man"),
		put(o.Lower, "added-both", "man"), put(o.Lower, "added-same", "same"), put(o.Lower, "added-beside/y", "man"), os.Chmod(on("mode-both"), 0o750), put(o.Lower, "typed", "man"))
	const want = `changed directory "added-beside" 700
changed file "added-both" 644 conflict
changed file "both" 644 conflict
removed directory "dir-gone"
removed directory "dir-gone-both" conflict
removed file "gone-both" conflict
added file "gone-host" 644 conflict
removed file "gone-sandbox"
changed directory "mode-both" 700 conflict
removed file "moved"
added file "moved-to" 644
changed file "sandbox" 644
changed directory "typed" was file 755 conflict
`
	if got := o.list(t); got != want {
		t.Errorf("the changes are\n%s\nwant\n%s", got, want)
	}
}

// TestHostile: names, kinds, depths and lengths that a sandbox may choose are told as they are, and followed nowhere.
func TestHostile(t *testing.T) {
	t.Parallel()
	o := mounted(t, func(lower string) { must(t, put(lower, "dir/secret", "host")) })
	in := func(name string) string { return filepath.Join(o.merged, name) }
	socket, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	must(t, err)
	defer unix.Close(socket)
	must(t, put(o.merged, "a\nb\x1b[31m\xff", "x"), unix.Mkfifo(in("fifo"), 0o600), unix.Bind(socket, &unix.SockaddrUnix{Name: in("sock")}),
		put(o.merged, "suid", "x"), os.Chmod(in("suid"), 0o755|os.ModeSetuid), os.Symlink("/etc", in("etc")), put(o.merged, ".wh.dir", "x"),
		put(o.merged, "linked-1", "x"), os.Link(in("linked-1"), in("linked-2")), put(o.merged, "sparse", ""), os.Truncate(in("sparse"), 1<<40))
	if err := unix.Mknod(in("whiteout"), unix.S_IFCHR, 0); err == nil {
		t.Error("a whiteout can be made from inside")
	}
	at, err := unix.Open(o.merged, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	must(t, err)
	for range 300 {
		must(t, unix.Mkdirat(at, "p", 0o755))
		next, err := unix.Openat(at, "p", unix.O_RDONLY|unix.O_DIRECTORY, 0)
		must(t, err, unix.Close(at))
		at = next
	}
	must(t, unix.Close(at))
	got := o.list(t)
	deep := strings.Repeat("p/", 255)
	deep = deep[:len(deep)-1]
	for _, want := range []string{
		`added file "a\nb\x1b[31m\xff" 644` + "\n", `added fifo "fifo" 600: it is a fifo` + "\n", "added socket \"sock\" 755: it is a socket\n", `added file "suid" 4755` + "\n",
		`added symlink "etc" -> "/etc"` + "\n", `added file ".wh.dir" 644` + "\n", `added file "sparse" 644: it is 1099511627776 bytes long, of which 0 are on the disk` + "\n",
		`added directory "` + deep + `" 755: it lies 255 directories deep, and what is in it is not listed` + "\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("there is no %s", want)
		}
	}
	if lines := strings.Count(got, "\n"); lines != 9+255 {
		t.Errorf("there are %d changes: %.3000s", lines, got)
	}
	headers, _ := tarOf(t, o.Layer)
	if second := headers["linked-2"]; headers["a\nb\x1b[31m\xff"] == nil || headers["fifo"] != nil || headers["sparse"] != nil || second == nil || second.Typeflag != tar.TypeLink || second.Linkname != "linked-1" {
		t.Errorf("the tar has %v", headers)
	}
}

// TestSwaps: while it is read, the sandbox puts links to the host's root, and files, in place of directories.
func TestSwaps(t *testing.T) {
	t.Parallel()
	o := mounted(t, func(string) {})
	ended, swapping := context.WithCancel(t.Context())
	done := make(chan error, 1)
	must(t, put(o.merged, "a/b/c", "x"), os.Symlink("/etc", filepath.Join(o.merged, "link")))
	go func() {
		for ended.Err() == nil {
			for _, err := range []error{
				os.Rename(filepath.Join(o.merged, "a"), filepath.Join(o.merged, "a2")), os.Rename(filepath.Join(o.merged, "link"), filepath.Join(o.merged, "a")),
				os.Rename(filepath.Join(o.merged, "a"), filepath.Join(o.merged, "link")), os.Rename(filepath.Join(o.merged, "a2"), filepath.Join(o.merged, "a")),
			} {
				if err != nil {
					done <- err
					return
				}
			}
		}
		done <- nil
	}()
	for range 300 {
		err := o.Walk(t.Context(), func(c *layer.Change) error {
			switch c.Path {
			case ".", "a", "a2", "link", "a/b", "a2/b", "a/b/c", "a2/b/c":
				return nil
			}
			return fmt.Errorf("it came to %q", c.Path)
		})
		if err != nil {
			t.Error(err)
			break
		}
	}
	swapping()
	must(t, <-done)
}

// TestFileLayer: a file's private copy is a change only once it differs.
func TestFileLayer(t *testing.T) {
	t.Parallel()
	o := mounted(t, func(lower string) { must(t, put(lower, "x", "host")) })
	dir := filepath.Dir(o.Lower)
	must(t, put(dir, "file", "host"), put(dir, "copy", "host"))
	file := overlay{layer.Layer{Lower: filepath.Join(dir, "file"), Upper: filepath.Join(dir, "copy"), Made: time.Now().Add(time.Hour)}, ""}
	must(t, put(dir, "file", "the host's"))
	if got := file.list(t); got != "" {
		t.Errorf("a copy that nobody touched: %s", got)
	}
	file.Made = o.Made
	if got := file.list(t); got != "changed file \".\" 644 conflict\n" {
		t.Errorf("both changed: %s", got)
	}
	must(t, os.Remove(filepath.Join(dir, "file")))
	if got := file.list(t); got != "added file \".\" 644 conflict\n" {
		t.Errorf("the host's is gone: %s", got)
	}
	if err := (layer.Layer{Lower: dir, Upper: filepath.Join(dir, "none")}).Walk(t.Context(), nil); !errors.Is(err, layer.ErrGone) {
		t.Errorf("no layer: %v", err)
	}
}

func tarOf(t *testing.T, l layer.Layer) (map[string]*tar.Header, map[string]string) {
	t.Helper()
	var b bytes.Buffer
	if err := l.Tar(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	headers, contents := map[string]*tar.Header{}, map[string]string{}
	for in := tar.NewReader(&b); ; {
		h, err := in.Next()
		if err == io.EOF {
			return headers, contents
		} else if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		headers[h.Name], contents[h.Name] = h, string(text)
	}
}
