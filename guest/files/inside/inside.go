// Package inside is the end of file work that runs in the sandbox: agbox-init in its mode "file".
package inside

import (
	"errors"
	"os"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/agbox-dev/agbox/guest/account"
	"github.com/agbox-dev/agbox/guest/files/removal"
	"github.com/agbox-dev/agbox/guest/kernel"
	"github.com/agbox-dev/agbox/guest/protocol"
	"github.com/agbox-dev/agbox/paths"
)

// Main looks into the sandbox's files for the daemon and ends:
//
//	agbox-init file stat PATH
//	agbox-init file list PATH LIMIT [-r]
//	agbox-init file read PATH
//	agbox-init file write DIRECTORY OWNER USER IMAGE-USER
//	agbox-init file remove PATH [-r]
//	agbox-init file watch PATH [-r]
//	agbox-init file get PATH OFFSET LENGTH
//	agbox-init file put PATH MODE REMOVED-ATTRIBUTES [-in-place] [-parents]
//	agbox-init file mkdir PATH MODE [-parents]
//	agbox-init file move SOURCE DESTINATION [-parents] [-keep]
//
// stat and list take -a for attributes as well, list a depth after -d. It runs as the user whose rights count; a path that is not absolute begins
// at that user's home.
// What it finds goes to descriptor 1, which is the write end of a pipe that the daemon reads, as package protocol (file.go) has it; what it is to
// write comes from descriptor 0. When the daemon is gone, or wants no more, this process ends, whatever it does.
func Main(args []string) {
	const fd = 1
	var st syscall.Stat_t
	err := syscall.Fstat(fd, &st)
	if err != nil || st.Mode&syscall.S_IFMT != syscall.S_IFIFO || len(args) < 2 {
		kernel.Warn("file: is for the daemon, who gives it a pipe and a path")
		os.Exit(2)
	}
	runtime.GOMAXPROCS(1) // few threads: it counts against the sandbox's limit
	syscall.SetNonblock(fd, false)
	if args[0] != "write" && args[0] != "put" { // which take away what is half there
		go endWithReader(fd)
	}
	o := output{fd: fd, attributes: slices.Contains(args[2:], "-a")}
	path, recursive := fromHome(args[1]), slices.Contains(args[2:], "-r")
	if args[0] == "write" {
		path = args[1]
	}
	o.attributes = o.attributes || args[0] == "put" || args[0] == "mkdir" || args[0] == "move"
	var problem *fault
	last := protocol.FileEnd
	switch args[0] {
	case "stat":
		problem = o.stat(path)
	case "list":
		l := lister{output: &o, recursive: recursive}
		l.room, _ = strconv.Atoi(args[min(2, len(args)-1)])
		if i := slices.Index(args, "-d"); i > 0 && i+1 < len(args) {
			l.depth, _ = strconv.Atoi(args[i+1])
		}
		if problem = l.top(path); l.cut {
			last = protocol.FileMore
		}
	case "read":
		c := carrier{output: &o}
		problem = c.carry(path)
	case "write":
		problem = write(args[1:])
	case "remove":
		problem = remove(path, recursive)
	case "watch":
		problem = watch(&o, path, recursive)
	case "get":
		offset, _ := strconv.ParseInt(args[2], 10, 64)
		length, _ := strconv.ParseInt(args[3], 10, 64)
		problem = o.get(path, offset, length)
	case "put":
		problem = put(&o, path, args[2:])
	case "mkdir":
		problem = makeDirectory(&o, path, args[2:])
	case "move":
		args[2] = fromHome(args[2])
		problem = move(&o, path, args[2:])
	default:
		os.Exit(2)
	}
	if problem != nil {
		o.add(protocol.FileFailed, problem.kind, problem.message)
	} else {
		o.add(last)
	}
	o.flush()
	os.Exit(0)
}

// fromHome is an absolute path, from the home of this process's user on where it is not.
func fromHome(name string) string {
	home := os.Getenv("HOME")
	if !strings.HasPrefix(home, "/") {
		home = "/"
	}
	return path.Clean(kernel.Join(home, name))
}

// endWithReader ends the process when nobody reads the pipe any more.
func endWithReader(fd int) {
	epoll, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err == nil {
		err = syscall.EpollCtl(epoll, syscall.EPOLL_CTL_ADD, fd, &syscall.EpollEvent{Fd: int32(fd)}) // EPOLLERR is always told
	}
	for err == nil || err == syscall.EINTR {
		var n int
		if n, err = syscall.EpollWait(epoll, make([]syscall.EpollEvent, 1), -1); n > 0 {
			break
		}
	}
	os.Exit(0)
}

// output is the pipe. A write waits for the reader.
type output struct {
	fd  int
	buf []byte

	attributes bool           // are told of as well
	accounts   *account.Rules // read when a first name is wanted
}

const outputChunk = 32 << 10

func (o *output) add(fields ...string) { o.grow(protocol.AppendFile(o.buf, fields...)) }

// data adds bytes of a file.
func (o *output) data(b []byte) { o.grow(protocol.AppendFileData(o.buf, b)) }

func (o *output) grow(buf []byte) {
	if o.buf = buf; len(buf) >= outputChunk {
		o.flush()
	}
}

func (o *output) flush() {
	for len(o.buf) > 0 {
		n, err := syscall.Write(o.fd, o.buf)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			os.Exit(0)
		}
		o.buf = o.buf[:copy(o.buf, o.buf[n:])]
	}
}

// fault is what goes into a Failed record.
type fault struct{ kind, message string }

// faultOf explains an error at a path.
func faultOf(path string, err error) *fault {
	var errno syscall.Errno
	errors.As(err, &errno)
	name := strconv.Quote(path)
	switch errno {
	case syscall.EACCES, syscall.EPERM:
		return &fault{protocol.FileDenied, name + ": the user has no right to it in the sandbox; name another user, or change its mode"}
	case syscall.EISDIR:
		return &fault{protocol.FileIsDirectory, name + " is a directory; name a file"}
	case syscall.EEXIST:
		return &fault{protocol.FileExists, name + " exists already; choose another path, or remove it"}
	case syscall.ENOSPC, syscall.EDQUOT:
		return &fault{protocol.FileNoSpace, name + ": no space is left where it lies; remove something there"}
	case syscall.ENOENT:
		return &fault{protocol.FileNotFound, name + " does not exist in the sandbox; a list of its directory shows what does"}
	case syscall.ENOTDIR:
		return &fault{protocol.FileNotDirectory, name + " is not a directory, or goes through what is none; StatFile tells what it is"}
	case syscall.ENOTEMPTY:
		return &fault{protocol.FileNotEmpty, name + " is a directory that is not empty; remove it recursively if that is meant"}
	case syscall.EROFS:
		return &fault{protocol.FileReadOnly, name + " lies in a part of the sandbox that can only be read; choose another, or make its mount writable"}
	case syscall.EBUSY:
		return &fault{protocol.FileMounted, name + " is in use as a mount point; remove what is in it instead"}
	}
	return &fault{protocol.FileOther, name + ": the sandbox says: " + err.Error()}
}

func (o *output) stat(path string) *fault {
	var st syscall.Stat_t
	if err := syscall.Lstat(path, &st); err != nil {
		return faultOf(path, err)
	}
	o.entry(path, path, &st)
	return nil
}

// entry tells of a file: name is what opens it, path what it is called.
func (o *output) entry(name, path string, st *syscall.Stat_t) {
	kind, link, size := "other", "", int64(0)
	switch st.Mode & syscall.S_IFMT {
	case syscall.S_IFREG:
		kind, size = "file", st.Size
	case syscall.S_IFDIR:
		kind = "directory"
	case syscall.S_IFLNK:
		kind, size = "symlink", st.Size
		link, _ = os.Readlink(name)
	}
	decimal := func(n int64) string { return strconv.FormatInt(n, 10) }
	fields := []string{protocol.FileEntry, kind, decimal(int64(st.Mode & 0o7777)), decimal(int64(st.Uid)), decimal(int64(st.Gid)), decimal(size),
		decimal(int64(st.Mtim.Sec)), decimal(int64(st.Mtim.Nsec)), path, link}
	owner, group := o.names(st)
	resolved, target, mode := "", "", int64(0)
	if kind == "symlink" {
		resolved, target, mode = resolve(name)
	}
	fields = append(fields, owner, group, resolved, target, decimal(mode))
	if o.attributes && (kind == "file" || kind == "directory") {
		for _, a := range attributesOf(name) {
			fields = append(fields, a.name, a.value)
		}
	}
	o.add(fields...)
}

// names are those of the file's owner and group, "" for what the sandbox has no name for.
func (o *output) names(st *syscall.Stat_t) (owner, group string) {
	if o.accounts == nil {
		o.accounts = &account.Rules{}
		_ = o.accounts.Refresh() // there are numbers
	}
	return o.accounts.UserName(st.Uid), o.accounts.GroupName(st.Gid)
}

// resolve follows a link to its end, "" where that is nowhere.
func resolve(name string) (path, kind string, mode int64) {
	fd, err := syscall.Open(name, kernel.PathOnly|syscall.O_CLOEXEC, 0)
	if err != nil {
		return "", "", 0
	}
	defer syscall.Close(fd)
	var st syscall.Stat_t
	if err = syscall.Fstat(fd, &st); err == nil {
		path, err = kernel.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	}
	if err != nil || !strings.HasPrefix(path, "/") {
		return "", "", 0
	}
	switch kind = "other"; st.Mode & syscall.S_IFMT {
	case syscall.S_IFREG:
		kind = "file"
	case syscall.S_IFDIR:
		kind = "directory"
	}
	return path, kind, int64(st.Mode & 0o7777)
}

// lister walks a tree, each directory in the order of its names.
type lister struct {
	*output
	room      int // for so many more
	recursive bool
	depth     int  // of directories, 0: all
	cut       bool // there was more
}

// top lists what path leads to, over a link too.
func (l *lister) top(path string) *fault {
	names, err := namesIn(path)
	if err != nil {
		return faultOf(path, err)
	}
	l.list(path, names, 1)
	return nil
}

// list leaves out what vanishes meanwhile.
func (l *lister) list(dir string, names []string, depth int) {
	for _, name := range names {
		path := kernel.Join(dir, name)
		var st syscall.Stat_t
		err := syscall.Lstat(path, &st)
		if l.cut = l.cut || l.room == 0 || err == syscall.ENAMETOOLONG; l.cut {
			return
		}
		if err != nil {
			continue
		}
		l.entry(path, path, &st)
		l.room--
		if l.recursive && st.Mode&syscall.S_IFMT == syscall.S_IFDIR && (l.depth == 0 || depth < l.depth) {
			below, _ := namesIn(path)
			l.list(path, below, depth+1)
		}
	}
}

// namesIn returns the sorted names in a directory.
func namesIn(dir string) ([]string, error) {
	file, err := os.OpenFile(dir, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	names, err := file.Readdirnames(-1)
	slices.Sort(names)
	return names, err
}

// locate opens the directory that a path lies in, and returns its last part, "." for the root, and the path without links but for that part.
func locate(path string) (fd int, base, real string, err error) {
	parent, base := ".", "."
	if i := strings.LastIndexByte(path, '/'); i >= 0 && i < len(path)-1 {
		parent, base = path[:i+1], path[i+1:]
	} else if i >= 0 {
		parent = "/"
	}
	if fd, err = syscall.Open(parent, kernel.PathOnly|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0); err != nil {
		return -1, base, "", err
	}
	if real, err = kernel.Readlink("/proc/self/fd/" + strconv.Itoa(fd)); err == nil && base != "." {
		real = kernel.Join(real, base)
	}
	return fd, base, real, err
}

// remove removes a file or directory. It works from the file's own directory, held open, so that nobody who swaps a
// directory for a link meanwhile gets something else removed.
func remove(path string, recursive bool) *fault {
	fd, base, real, err := locate(path)
	if base == "." {
		return &fault{protocol.FileReserved, strconv.Quote(path) + " is the sandbox's root, which stays; name what is in it"}
	}
	if err == nil {
		err = syscall.Fchdir(fd)
	}
	var st syscall.Stat_t
	if err == nil {
		err = syscall.Lstat(base, &st)
	}
	if err != nil {
		return faultOf(path, err)
	}
	if problem := reserved(real); problem != nil {
		return problem
	}
	points, err := kernel.MountPoints()
	if err != nil {
		return faultOf(path, err)
	}
	for _, point := range points {
		if paths.Within(point, real) {
			return &fault{protocol.FileMounted, strconv.Quote(path) + " is, or contains, the mount point " + strconv.Quote(point) +
				"; remove what is beside it, or in it, instead"}
		}
	}
	switch directory := st.Mode&syscall.S_IFMT == syscall.S_IFDIR; {
	case directory && recursive:
		err = removal.Tree(base)
	case directory:
		err = syscall.Rmdir(base)
	default:
		err = syscall.Unlink(base)
	}
	if err != nil {
		return faultOf(path, err)
	}
	return nil
}

// reserved refuses a path without links that is the sandbox's own, or the kernel's.
func reserved(real string) *fault {
	if dir := paths.Reserved(real); dir != "" {
		return &fault{protocol.FileReserved, strconv.Quote(real) + " lies in " + dir + ", which the sandbox needs for itself; choose another path"}
	}
	return nil
}
