package hostpath

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Places are what of this host no sandbox may have.
type Places struct {
	// Own are the daemon's directories. They need not exist.
	Own []string
	// Engine is the address of the engine in use, such as "unix:///run/docker.sock", and EngineRoot its data directory;
	// "" where it is not on this host.
	Engine, EngineRoot string
	// Home is the user's home directory, and Getenv reads the daemon's environment; "" and nil for none.
	Home   string
	Getenv func(string) string
}

// What the kernel serves is not for a sandbox, and neither is a directory that contains it.
var kernelDirs = []string{"/proc", "/sys", "/dev"}

const (
	whatKernel  = "the kernel's file system"
	whatSocket  = "the container engine's socket"
	whatEngine  = "a container engine's own files"
	whatMachine = "a way to control virtual machines"
	whatSystem  = "a way to control this host's services"
	whatSession = "a way to control a user's session"
	whatOwn     = "agboxd's own data"
)

// named is a place by its path, or by one below a directory.
type named struct{ path, what string }

// system are the places in / by which a process gets hold of the host or of all containers. What lies in /run may be found
// in /var/run as well.
var system = []named{
	{"/run/docker.sock", whatSocket}, {"/run/cri-dockerd.sock", whatSocket},
	{"/run/docker", whatEngine}, {"/run/containerd", whatEngine}, {"/run/podman", whatEngine}, {"/run/crio", whatEngine},
	{"/run/buildkit", whatEngine}, {"/run/nerdctl", whatEngine}, {"/run/k3s", whatEngine}, {"/run/k0s", whatEngine},
	{"/var/lib/docker", whatEngine}, {"/var/lib/containerd", whatEngine}, {"/var/lib/containers", whatEngine},
	{"/var/lib/buildkit", whatEngine}, {"/var/lib/kubelet", whatEngine}, {"/var/lib/rancher", whatEngine},
	{"/var/lib/lxd", whatMachine}, {"/var/snap/lxd/common/lxd", whatMachine}, {"/var/lib/incus", whatMachine},
	{"/run/incus", whatMachine}, {"/run/libvirt", whatMachine},
	{"/run/systemd/private", whatSystem}, {"/run/dbus/system_bus_socket", whatSystem},
}

// session are the places in the runtime directory of a user, /run/user/UID.
var session = []named{
	{"bus", whatSession}, {"systemd", whatSession},
	{"docker.sock", whatSocket}, {"docker", whatEngine}, {"podman", whatEngine}, {"containerd", whatEngine},
	{"containerd-rootless", whatEngine}, {"buildkit", whatEngine}, {"libvirt", whatMachine},
}

// home are the places in the user's home directory.
var home = []named{
	{".docker/run", whatSocket}, {".docker/desktop", whatSocket},
	{".local/share/docker", whatEngine}, {".local/share/containers", whatEngine},
}

const runtimeDirs = "/run/user"

// Guard looks for the places. What the daemon does not own and does not exist at this moment is none.
func (p Places) Guard() *Guard {
	g := &Guard{}
	for _, dir := range kernelDirs {
		g.add(whatKernel, dir)
	}
	for _, dir := range p.Own {
		g.add(whatOwn, dir)
	}
	for _, address := range []string{p.Engine, p.Env("DOCKER_HOST"), p.Env("CONTAINER_HOST")} {
		if socket, local := strings.CutPrefix(address, "unix://"); local {
			g.addExisting(whatSocket, socket)
		}
	}
	g.addExisting(whatEngine, p.EngineRoot)
	for _, n := range system {
		g.addExisting(n.what, n.path)
		if strings.HasPrefix(n.path, "/run/") {
			g.addExisting(n.what, "/var"+n.path)
		}
	}
	for _, dir := range p.runtimeDirs() {
		for _, n := range session {
			g.addExisting(n.what, filepath.Join(dir, n.path))
		}
	}
	for _, n := range home {
		g.addExisting(n.what, filepath.Join(p.Home, n.path))
	}
	return g
}

// Env reads the daemon's environment.
func (p Places) Env(key string) string {
	if p.Getenv == nil {
		return ""
	}
	return p.Getenv(key)
}

// runtimeDirs are this user's and those of all who are logged in.
func (p Places) runtimeDirs() []string {
	var dirs []string
	if dir := p.Env("XDG_RUNTIME_DIR"); dir != "" {
		dirs = append(dirs, dir)
	}
	entries, _ := os.ReadDir(runtimeDirs) // every user may list it, where it is there
	for _, e := range entries {
		dirs = append(dirs, filepath.Join(runtimeDirs, e.Name()))
	}
	return dirs
}

// addExisting adds a place unless it is certain that there is nothing.
func (g *Guard) addExisting(what, path string) {
	if !filepath.IsAbs(path) {
		return
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR) {
		g.add(what, path)
	}
}
