package pid1

import (
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/agbox-dev/agbox/paths"
)

// workspace is where commands start when nobody says otherwise. It is there in every sandbox, and the user's.
const workspace = paths.Workspace

// makePlaces makes the places where commands work. It is done before the first of them and no earlier: until the daemon asks
// for one, it has not seen that what is mounted is what was accepted.
func (l *lookup) makePlaces() {
	for _, dir := range l.tmpfs {
		openMemory(dir)
	}
	a, problem := l.account("")
	if problem != nil {
		warn(problem.message)
		return
	}
	prepareWorkspace(workspace, l.own, a)
	prepareWorkdir(l.workdir, a)
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
		warn("memory on " + dir + " not opened to all users: " + err.Error())
	}
}

// tmpfsMagic is the kernel's TMPFS_MAGIC.
const tmpfsMagic = 0x01021994

// prepareWorkspace creates the workspace and gives it to the user, unless something is mounted on it that is not the
// sandbox's own. What fails is only said: a read-only root and missing capabilities are no reason not to start.
func prepareWorkspace(dir string, own bool, a account) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		warn("working directory not created: " + err.Error())
		return
	}
	var st syscall.Stat_t
	if syscall.Lstat(dir, &st) != nil || st.Mode&syscall.S_IFMT != syscall.S_IFDIR ||
		st.Uid == a.uid && st.Gid == a.gid || !own && mountedOn(dir) {
		return
	}
	give(dir, a)
}

// prepareWorkdir creates a working directory and gives it to the user. One that the image has stays as it is.
func prepareWorkdir(dir string, a account) {
	if _, err := os.Stat(dir); err == nil {
		return
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		warn("working directory not created: " + err.Error())
		return
	}
	give(dir, a)
}

func give(dir string, a account) {
	if err := syscall.Chown(dir, int(a.uid), int(a.gid)); err != nil {
		warn("working directory " + dir + " not given to user " + a.label() + ": " + err.Error())
	}
}

// mountedOn tells whether dir itself is a mount point; true as well when that cannot be known.
func mountedOn(dir string) bool {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return true
	}
	dir = "/" + strings.Trim(dir, "/")
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) > 4 && unescape(f[4]) == dir {
			return true
		}
	}
	return false
}

// unescape undoes the octal escapes of mountinfo, such as \040 for a space.
func unescape(s string) string {
	if strings.IndexByte(s, '\\') < 0 {
		return s
	}
	var b []byte
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+4 <= len(s) {
			if v, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b = append(b, byte(v))
				i += 3
				continue
			}
		}
		b = append(b, s[i])
	}
	return string(b)
}
