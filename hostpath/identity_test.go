package hostpath_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/agbox-dev/agbox/hostpath"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func identify(t *testing.T, path string) hostpath.Identity {
	t.Helper()
	file, err := hostpath.Open(path)
	must(t, err)
	defer file.Close()
	id, err := hostpath.Identify(file)
	must(t, err)
	return id
}

// TestVerify: what was accepted is found again, whatever happened to what is in it, and nothing else in its place is taken
// for it. A directory that is made anew has the inode number of the one before.
func TestVerify(t *testing.T) {
	remake := func(t *testing.T, path string) {
		must(t, os.RemoveAll(path))
		must(t, os.Mkdir(path, 0o755))
	}
	for name, test := range map[string]struct {
		change func(t *testing.T, path string)
		want   string
	}{
		"nothing":        {func(*testing.T, string) {}, ""},
		"what is in it":  {func(t *testing.T, path string) { must(t, os.WriteFile(path+"/new", nil, 0o600)) }, ""},
		"its attributes": {func(t *testing.T, path string) { must(t, os.Chmod(path, 0o700)) }, ""},
		"away and back": {func(t *testing.T, path string) {
			must(t, os.Rename(path, path+"2"))
			must(t, os.Rename(path+"2", path))
		}, ""},
		"made anew": {remake, "is another directory than the one that was accepted"},
		"gone":      {func(t *testing.T, path string) { must(t, os.Remove(path)) }, "does not exist any more"},
		"parent is a file": {func(t *testing.T, path string) {
			must(t, os.RemoveAll(filepath.Dir(path)))
			must(t, os.WriteFile(filepath.Dir(path), nil, 0o600))
		}, "does not exist any more"},
		"a link": {func(t *testing.T, path string) {
			must(t, os.Rename(path, path+"2"))
			must(t, os.Symlink(path+"2", path))
		},
			"is or goes through a symbolic link now"},
		"a link on the way": {func(t *testing.T, path string) {
			dir := filepath.Dir(path)
			must(t, os.Rename(dir, dir+"2"))
			must(t, os.Symlink(dir+"2", dir))
		}, "is or goes through a symbolic link now"},
		"a file": {func(t *testing.T, path string) { must(t, os.Remove(path)); must(t, os.WriteFile(path, nil, 0o600)) },
			"is a file now, and was a directory"},
		"a moved one": {func(t *testing.T, path string) {
			must(t, os.Mkdir(path+"2", 0o755))
			must(t, os.Rename(path, path+"3"))
			must(t, os.Rename(path+"2", path))
		}, "is another directory than the one that was accepted"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "top", "source")
			must(t, os.MkdirAll(path, 0o755))
			accepted := identify(t, path)
			if kept := hostpath.FromMessage(accepted.Message()); kept != accepted {
				t.Errorf("kept as %+v, it was %+v", kept, accepted)
			}
			test.change(t, path)
			file, err := hostpath.Verify(path, accepted)
			if err == nil {
				file.Close()
			}
			changed, is := errors.AsType[*hostpath.Changed](err)
			if test.want == "" && err != nil || test.want != "" && (!is || changed.What != test.want || changed.Path != path) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

// TestVerifyWhatIsReadOnce: a file that is copied may be saved anew, a socket listened on anew; what was accepted before there
// were identities is anything but a link.
func TestVerifyWhatIsReadOnce(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "s")
	listen := func() net.Listener {
		listener, err := net.Listen("unix", path)
		must(t, err)
		return listener
	}
	verify := func(accepted hostpath.Identity, want bool) {
		t.Helper()
		file, err := hostpath.Verify(path, accepted)
		if err == nil {
			file.Close()
		}
		if (err == nil) != want {
			t.Errorf("%+v: %v", accepted, err)
		}
	}
	listener := listen()
	socket := identify(t, path)
	listener.Close()
	listener = listen()
	verify(socket, true)
	listener.Close()
	must(t, os.WriteFile(path, nil, 0o600))
	verify(socket, false)
	file := identify(t, path)
	must(t, os.WriteFile(path+".new", nil, 0o600))
	must(t, os.Rename(path+".new", path))
	verify(file, false)
	verify(file.Copied(), true)
	verify(hostpath.Identity{}, true)
	must(t, os.Rename(path, path+".old"))
	must(t, os.Symlink(path+".old", path))
	verify(file.Copied(), false)
	verify(hostpath.Identity{}, false)
}
