package hostpath_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agbox-dev/agbox/hostpath"
)

// TestGuard: what is there is refused, by itself, in what contains it and by a second name; what is not there is in
// nobody's way, but for the daemon's own.
func TestGuard(t *testing.T) {
	top, err := os.MkdirTemp("", "g") // a socket's path is short
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(top) })
	top, err = filepath.EvalSymlinks(top)
	must(t, err)
	at := func(path string) string { return filepath.Join(top, path) }
	dir := func(path string) { must(t, os.MkdirAll(at(path), 0o755)) }
	socket := func(path string) {
		dir(filepath.Dir(path))
		listener, err := net.Listen("unix", at(path))
		must(t, err)
		t.Cleanup(func() { listener.Close() })
	}
	environment := map[string]string{"XDG_RUNTIME_DIR": at("run/1"), "CONTAINER_HOST": "unix://" + at("podman/p.sock"),
		"DOCKER_HOST": "tcp://192.0.2.1:2375"}
	places := hostpath.Places{Own: []string{at("own/agbox")}, Engine: "unix://" + at("engine/d.sock"), EngineRoot: at("lib/engine"),
		Home: at("home"), Getenv: func(key string) string { return environment[key] }}
	dir("run/1")
	dir("home/.config")
	socket("run/2/bus")
	for path, want := range map[string]string{
		"run/1": "", "run": "", "engine": "", "podman": "", "lib": "", "home": "",
		"own": "contains agboxd's own data", "own/agbox/x": "lies in agboxd's own data",
	} {
		verdict(t, places.Guard().Mount(at(path)), at(path), want)
	}
	socket("run/1/bus")
	socket("engine/d.sock")
	socket("podman/p.sock")
	dir("lib/engine/volumes")
	dir("home/.local/share/containers")
	must(t, os.Mkdir(at("proj"), 0o755))
	must(t, os.Link(at("engine/d.sock"), at("proj/innocent")))
	must(t, os.Symlink(at("engine"), at("link")))
	guard := places.Guard()
	for path, want := range map[string]string{
		"run/1": "contains a way to control a user's session", "run/1/bus": "is a way to control a user's session", "run/2": "",
		"engine": "contains the container engine's socket", "podman/p.sock": "is the container engine's socket",
		"lib/engine/volumes": "lies in a container engine's own files", "lib": "contains a container engine's own files",
		"home": "contains a container engine's own files", "home/.config": "", "proj": "", "proj/innocent": "is the container engine's socket",
	} {
		verdict(t, guard.Mount(at(path)), at(path), want)
	}
	verdict(t, guard.Mount("/"), "/", "contains the kernel's file system")
	verdict(t, guard.Mount("/dev/null"), "/dev/null", "lies in the kernel's file system")
	verdict(t, guard.Copy(at("lib")), at("lib"), "")
	verdict(t, guard.Copy(at("lib/engine")), at("lib/engine"), "is a container engine's own files")
	info, err := os.Lstat(at("proj/innocent"))
	must(t, err)
	verdict(t, guard.Entry(at("proj/innocent"), info), at("proj/innocent"), "is the container engine's socket")
}

func verdict(t *testing.T, err error, path, want string) {
	t.Helper()
	refused, is := errors.AsType[*hostpath.Protected](err)
	if want == "" && err != nil || want != "" && (!is || !strings.HasPrefix(refused.Relation+" "+refused.What, want) || refused.Path != path) {
		t.Errorf("%s: %v, want %q", path, err, want)
	}
}
