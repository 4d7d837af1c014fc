package inside

import (
	"bufio"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"github.com/agbox-dev/agbox/guest/account"
	"github.com/agbox-dev/agbox/guest/kernel"
	"github.com/agbox-dev/agbox/guest/protocol"
	"github.com/agbox-dev/agbox/paths"
)

// writer makes the files that the daemon sends. It works from directories that it holds open, opens nothing that is there but
// directories, and so waits for nobody. A file gets its name once it is whole.
type writer struct {
	in       *bufio.Reader
	top      place // the destination
	made     bool  // it was not there before
	uid, gid int

	last    string // a directory below it, which at is
	at      place
	bounded bool // no link leads out of top
}

// place is a directory, and its path without links.
type place struct {
	fd   int
	real string
}

// write makes what comes in a directory, which is made when it is missing. All of it belongs to owner, a name or number; to whom an exec would
// run as for "". Its last file is not there when the daemon goes away meanwhile.
func write(args []string) *fault {
	if len(args) != 4 {
		os.Exit(2)
	}
	signal.Ignore(syscall.SIGTERM) // the end of what comes is what it heeds
	debug.SetGCPercent(20)
	w := writer{in: bufio.NewReaderSize(os.Stdin, 64<<10)}
	if problem := w.findOwner(args[1], args[2], args[3]); problem != nil {
		return problem
	}
	if problem := w.begin(args[0]); problem != nil {
		return problem
	}
	for {
		fields, err := protocol.ReadFile(w.in)
		if err == nil && fields[0] == protocol.FileEnd {
			return nil
		}
		var i protocol.FileItem
		if err == nil {
			i, err = protocol.ParseFileItem(fields)
		}
		if err != nil {
			return cutOff(err)
		}
		if problem := w.item(&i); problem != nil {
			return problem
		}
	}
}

// cutOff ends the process when there is nobody to tell.
func cutOff(err error) *fault {
	if err == io.EOF {
		os.Exit(0)
	}
	return &fault{protocol.FileOther, "what is to be written cannot be read: " + err.Error()}
}

// findOwner resolves whom it is for, as for an exec.
func (w *writer) findOwner(owner, user, imageUser string) *fault {
	rules := account.Rules{User: user, ImageUser: imageUser, CanSwitch: true}
	if err := rules.Refresh(); err != nil {
		return &fault{protocol.FileOther, account.Unreadable(err)}
	}
	a, problem := rules.Of(owner)
	if problem != "" {
		return &fault{protocol.FileOwner, problem + "; name one that is, or a number"}
	}
	w.uid, w.gid = int(a.UID), int(a.GID)
	return nil
}

// begin opens the destination.
func (w *writer) begin(directory string) *fault {
	root, err := syscall.Open("/", kernel.PathOnly|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return faultOf("/", err)
	}
	w.top, w.at.fd = place{root, "/"}, -1
	for _, name := range strings.Split(strings.Trim(directory, "/"), "/") {
		if name == "" {
			break
		}
		next, made, problem := w.enter(w.top, name)
		if problem != nil {
			return problem
		}
		syscall.Close(w.top.fd)
		w.top, w.made = next, made
	}
	return reserved(w.top.real)
}

// enter opens a directory in another one, and makes it when it is missing. A link that leads out of the destination is refused.
func (w *writer) enter(in place, name string) (next place, made bool, problem *fault) {
	const flags = kernel.PathOnly | syscall.O_DIRECTORY | syscall.O_CLOEXEC
	next.real = kernel.Join(in.real, name)
	if problem := reserved(next.real); problem != nil {
		return next, false, problem
	}
	var err error
	if next.fd, err = syscall.Openat(in.fd, name, flags|syscall.O_NOFOLLOW, 0); err == syscall.ENOENT {
		if err = syscall.Mkdirat(in.fd, name, 0o755); err == nil {
			made = true
			next.fd, err = syscall.Openat(in.fd, name, flags|syscall.O_NOFOLLOW, 0)
		}
		if err == nil {
			err = kernel.Chown(next.fd, w.uid, w.gid)
		}
	}
	if err == nil {
		return next, made, nil
	}
	target, linkErr := kernel.Readlink("/proc/self/fd/" + strconv.Itoa(in.fd) + "/" + name)
	if err != syscall.ENOTDIR && err != syscall.ELOOP || linkErr != nil {
		return next, false, faultOf(next.real, err)
	}
	if next.fd, err = syscall.Openat(in.fd, name, flags, 0); err == syscall.ENOENT {
		return next, false, &fault{protocol.FileNotFound, strconv.Quote(next.real) + " goes through a link to " + strconv.Quote(target) +
			", which does not exist in the sandbox; remove the link or make that"}
	} else if err != nil {
		return next, false, faultOf(next.real, err)
	}
	from := next.real
	if next.real, err = kernel.Readlink("/proc/self/fd/" + strconv.Itoa(next.fd)); err != nil {
		return next, false, faultOf(from, err)
	}
	if w.bounded && !paths.Within(next.real, w.top.real) {
		return next, false, &fault{protocol.FileEscapes, "the tar stream goes through " + strconv.Quote(from) + ", which is a link in the sandbox to " +
			strconv.Quote(next.real) + ", out of " + strconv.Quote(w.top.real) + "; unpack it there"}
	}
	return next, false, reserved(next.real)
}

// parent opens the directory that a file below the destination lies in.
func (w *writer) parent(name string) (in place, base string, problem *fault) {
	dir, base := "", name
	if i := strings.LastIndexByte(name, '/'); i >= 0 {
		dir, base = name[:i], name[i+1:]
	}
	w.bounded = true
	if w.at.fd < 0 || dir != w.last {
		if w.at.fd >= 0 {
			syscall.Close(w.at.fd)
		}
		w.last, w.at.fd = dir, -1
		here := place{real: w.top.real}
		var err error
		if here.fd, err = kernel.Duplicate(w.top.fd); err != nil {
			return here, base, faultOf(here.real, err)
		}
		for dir != "" {
			var first string
			first, dir, _ = strings.Cut(dir, "/")
			next, _, problem := w.enter(here, first)
			syscall.Close(here.fd)
			if problem != nil {
				return here, base, problem
			}
			here = next
		}
		w.at = here
	}
	return w.at, base, reserved(kernel.Join(w.at.real, base))
}

func (w *writer) item(i *protocol.FileItem) *fault {
	if w.uid != 0 {
		i.Mode &^= 0o6000 // setuid and setgid bits are root's alone
	}
	if i.Name == "." {
		if !w.made {
			return nil
		}
		return w.directory(w.top, ".", i)
	}
	in, base, problem := w.parent(i.Name)
	if problem != nil {
		return problem
	}
	if i.Type == protocol.ItemDirectory {
		return w.directory(in, base, i)
	}
	// Nothing of another name can be in the way of this one.
	name := ".agbox-" + strconv.FormatUint(rand.Uint64(), 36)
	path := kernel.Join(in.real, base)
	switch i.Type {
	case protocol.ItemFile:
		problem = w.regular(in, name, path, i)
	case protocol.ItemSymlink:
		problem = w.symlink(in, name, path, i)
	case protocol.ItemLink:
		var from place
		var of string
		if from, of, problem = w.target(i.Link); problem == nil {
			if err := kernel.LinkAt(from.fd, of, in.fd, name); err != nil {
				problem = faultOf(path, err)
			}
			syscall.Close(from.fd)
		}
	default:
		return cutOff(protocol.ErrMalformed)
	}
	if problem == nil {
		if err := syscall.Renameat(in.fd, name, in.fd, base); err == syscall.EISDIR || err == syscall.ENOTEMPTY {
			problem = &fault{protocol.FileOther, strconv.Quote(path) + " is a directory, which no file takes the place of; remove it first"}
		} else if err != nil {
			problem = faultOf(path, err)
		}
	}
	if problem != nil || i.Type == protocol.ItemLink { // of two names of one file none is taken away
		syscall.Unlinkat(in.fd, name)
	}
	return problem
}

// target opens the directory of a file that was made before, beside that of the link to it.
func (w *writer) target(name string) (in place, base string, problem *fault) {
	held, last := w.at, w.last
	w.at.fd = -1
	in, base, problem = w.parent(name)
	w.at, w.last = held, last
	return in, base, problem
}

func (w *writer) directory(in place, base string, i *protocol.FileItem) *fault {
	path := kernel.Join(in.real, base)
	if err := syscall.Mkdirat(in.fd, base, 0o700); err != nil && err != syscall.EEXIST {
		return faultOf(path, err)
	}
	fd, err := syscall.Openat(in.fd, base, syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err == syscall.ENOTDIR || err == syscall.ELOOP {
		return &fault{protocol.FileNotDirectory, strconv.Quote(path) + " is no directory, and none takes its place; remove it first"}
	} else if err != nil {
		return faultOf(path, err)
	}
	defer syscall.Close(fd)
	return w.attributes(fd, path, i)
}

// attributes gives a file that is open its owner, mode and time.
func (w *writer) attributes(fd int, path string, i *protocol.FileItem) *fault {
	err := syscall.Fchown(fd, w.uid, w.gid)
	if err == nil {
		err = syscall.Fchmod(fd, uint32(i.Mode))
	}
	if err == nil {
		err = kernel.SetTimeAt(fd, "", written(i))
	}
	if err != nil {
		return faultOf(path, err)
	}
	return nil
}

// regular has the file under its temporary name, whole or not at all.
func (w *writer) regular(in place, name, path string, i *protocol.FileItem) *fault {
	fd, err := syscall.Openat(in.fd, name, syscall.O_WRONLY|syscall.O_CREAT|syscall.O_EXCL|syscall.O_NOFOLLOW|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return faultOf(path, err)
	}
	defer syscall.Close(fd)
	for at := int64(0); at < i.Size; {
		fields, err := protocol.ReadFile(w.in)
		if err != nil {
			syscall.Unlinkat(in.fd, name)
			return cutOff(err)
		}
		size := int64(-1)
		if len(fields) == 2 && fields[0] == protocol.FileHole {
			size, _ = strconv.ParseInt(fields[1], 10, 64)
		} else if len(fields) == 2 && fields[0] == protocol.FileData {
			size = int64(len(fields[1]))
			err = writeAt(fd, fields[1], at)
		}
		if err != nil {
			return faultOf(path, err)
		}
		if size <= 0 || size > i.Size-at {
			return cutOff(protocol.ErrMalformed)
		}
		at += size
	}
	if err := syscall.Ftruncate(fd, i.Size); err != nil { // it may end with a hole
		return faultOf(path, err)
	}
	return w.attributes(fd, path, i)
}

func writeAt(fd int, data string, at int64) error {
	for b := unsafe.Slice(unsafe.StringData(data), len(data)); len(b) > 0; {
		n, err := syscall.Pwrite(fd, b, at)
		if err != nil && err != syscall.EINTR {
			return err
		}
		b, at = b[max(n, 0):], at+int64(max(n, 0))
	}
	return nil
}

func (w *writer) symlink(in place, name, path string, i *protocol.FileItem) *fault {
	err := kernel.SymlinkAt(i.Link, in.fd, name)
	if err != nil {
		return faultOf(path, err)
	}
	// What is under the name now need not be the link any more.
	fd, err := syscall.Openat(in.fd, name, kernel.PathOnly|syscall.O_NOFOLLOW|syscall.O_CLOEXEC, 0)
	if err != nil {
		return faultOf(path, err)
	}
	defer syscall.Close(fd)
	var st syscall.Stat_t
	if err = syscall.Fstat(fd, &st); err == nil && st.Mode&syscall.S_IFMT != syscall.S_IFLNK {
		err = syscall.EEXIST
	}
	if err == nil {
		err = kernel.Chown(fd, w.uid, w.gid)
	}
	if err == nil {
		err = kernel.SetTimeAt(in.fd, name, written(i))
	}
	if err != nil {
		return faultOf(path, err)
	}
	return nil
}

func written(i *protocol.FileItem) syscall.Timespec {
	stamp := syscall.NsecToTimespec(0)
	stamp.Sec, stamp.Nsec = i.Seconds, i.Nanoseconds
	return stamp
}
