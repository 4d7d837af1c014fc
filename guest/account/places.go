package account

import (
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/agbox-dev/agbox/guest/kernel"
	"github.com/agbox-dev/agbox/paths"
)

// MakePlaces makes the places where commands work: the memory that is mounted, the workspace, which is the sandbox's own or not, and the
// working directory. It is done before the first of them and no earlier: until the daemon asks
// for one, it has not seen that what is mounted is what was accepted.
func MakePlaces(tmpfs []string, workdir string, own bool, a Account) {
	for _, dir := range tmpfs {
		openMemory(dir)
	}
	prepareWorkspace(paths.Workspace, own, a)
	prepareWorkdir(workdir, a)
}

// openMemory lets every user write to the memory that is mounted on dir: an engine gives it the mode of the directory that
// it covers.
func openMemory(dir string) {
	fd, err := syscall.Open(dir, syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
	if err == nil {
		var fs syscall.Statfs_t
		if err = syscall.Fstatfs(fd, &fs); err == nil && fs.Type == tmpfsMagic {
			err = syscall.Fchmod(fd, 0o1777)
		}
		syscall.Close(fd)
	}
	if err != nil {
		kernel.Warn("memory on " + dir + " not opened to all users: " + err.Error())
	}
}

// tmpfsMagic is the kernel's TMPFS_MAGIC.
const tmpfsMagic = 0x01021994

// prepareWorkspace creates the workspace and gives it to the user, unless something is mounted on it that is not the
// sandbox's own. What fails is only said: a read-only root and missing capabilities are no reason not to start.
func prepareWorkspace(dir string, own bool, a Account) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		kernel.Warn("working directory not created: " + err.Error())
		return
	}
	var st syscall.Stat_t
	if syscall.Lstat(dir, &st) != nil || st.Mode&syscall.S_IFMT != syscall.S_IFDIR ||
		st.Uid == a.UID && st.Gid == a.GID || !own && mountedOn(dir) {
		return
	}
	give(dir, a)
}

// prepareWorkdir creates a working directory and gives it to the user. One that the image has stays as it is.
func prepareWorkdir(dir string, a Account) {
	if _, err := os.Stat(dir); err == nil {
		return
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		kernel.Warn("working directory not created: " + err.Error())
		return
	}
	give(dir, a)
}

func give(dir string, a Account) {
	if err := syscall.Chown(dir, int(a.UID), int(a.GID)); err != nil {
		kernel.Warn("working directory " + dir + " not given to user " + a.Label() + ": " + err.Error())
	}
}

// mountedOn tells whether dir itself is a mount point; true as well when that cannot be known.
func mountedOn(dir string) bool {
	points, err := kernel.MountPoints()
	return err != nil || slices.Contains(points, "/"+strings.Trim(dir, "/"))
}
