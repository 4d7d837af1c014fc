package inside

import (
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"github.com/agbox-dev/agbox/guest/kernel"
	"github.com/agbox-dev/agbox/guest/protocol"
	"github.com/agbox-dev/agbox/paths"
)

const watchMask = syscall.IN_CREATE | syscall.IN_CLOSE_WRITE | syscall.IN_DELETE | syscall.IN_MOVED_FROM | syscall.IN_MOVED_TO |
	syscall.IN_ATTRIB | syscall.IN_DELETE_SELF | syscall.IN_MOVE_SELF | syscall.IN_ONLYDIR | syscall.IN_EXCL_UNLINK

// pairTime is how long the second half of a rename may be behind the first. The kernel queues both in one go, nearly always
// next to each other.
const pairTime = 10 // milliseconds

// watcher turns inotify's events into records. While the reader of these is slow, events wait in the kernel's queue, which
// is bounded and tells when it overflows.
type watcher struct {
	*output
	root      string
	only      string // with a file: its name in root
	recursive bool

	fd    int
	epoll int
	dirs  map[int32]string // by watch descriptor
	moved map[uint32]event // first halves of renames, by cookie
	// told are files that a scan of a new directory has found, whose events may still be in the queue.
	announced map[string]struct{}
	done      bool
}

type event struct {
	path      string
	directory bool
}

// watch tells what happens in a directory, and with recursive in all below it, or to one file, until the directory is
// gone. Of a directory that is new, what is in it already is told as created.
func watch(o *output, path string, recursive bool) *fault {
	w := &watcher{output: o, fd: -1, epoll: -1, root: path, recursive: recursive, announced: map[string]struct{}{}}
	var st syscall.Stat_t
	if err := syscall.Stat(path, &st); err != nil {
		return faultOf(path, err)
	}
	if st.Mode&syscall.S_IFMT != syscall.S_IFDIR {
		// Its directory: the file may be replaced by another of that name.
		i := strings.LastIndexByte(path, '/')
		w.root, w.only, w.recursive = path[:max(i, 1)], path[i+1:], false
	}
	problem := w.begin()
	if problem != nil && problem.kind != scarce {
		return problem
	}
	w.send("watching", path, "", w.only == "")
	w.flush()
	if problem != nil {
		return w.look()
	}
	buf := make([]byte, 64<<10)
	for !w.done {
		timeout := -1
		if len(w.moved) > 0 {
			timeout = pairTime
		}
		if n, err := syscall.EpollWait(w.epoll, make([]syscall.EpollEvent, 1), timeout); err == nil && n == 0 {
			w.unpaired()
			w.flush()
		} else if err != nil && err != syscall.EINTR {
			return faultOf(path, err)
		}
		for !w.done {
			n, err := syscall.Read(w.fd, buf)
			if err == syscall.EINTR {
				continue
			}
			if err == syscall.EAGAIN {
				clear(w.announced)
				break
			}
			if err != nil {
				return faultOf(path, err)
			}
			problem := w.read(buf[:n])
			if problem != nil && problem.kind == scarce {
				return w.look()
			} else if problem != nil {
				return problem
			}
			w.flush()
		}
	}
	return nil
}

// begin watches from anew.
func (w *watcher) begin() *fault {
	if w.dirs != nil {
		syscall.Close(w.epoll)
		syscall.Close(w.fd)
		w.epoll, w.fd = -1, -1
	}
	w.dirs, w.moved = map[int32]string{}, map[uint32]event{}
	var err error
	if w.fd, err = syscall.InotifyInit1(syscall.IN_NONBLOCK | syscall.IN_CLOEXEC); err != nil {
		return watchFault(w.root, err)
	}
	if w.epoll, err = syscall.EpollCreate1(syscall.EPOLL_CLOEXEC); err == nil {
		err = syscall.EpollCtl(w.epoll, syscall.EPOLL_CTL_ADD, w.fd, &syscall.EpollEvent{Events: syscall.EPOLLIN, Fd: int32(w.fd)})
	}
	if err != nil {
		return faultOf(w.root, err)
	}
	return w.add(w.root, 0, false)
}

// scarce is the kind of fault that the host grants no more watches.
const scarce = "scarce"

func watchFault(path string, err error) *fault {
	if err == syscall.ENOSPC || err == syscall.EMFILE {
		return &fault{scarce, "the host allows no further inotify watches; watch less, or raise fs.inotify.max_user_watches and max_user_instances there"}
	}
	if err == syscall.ENAMETOOLONG {
		return &fault{protocol.FileOther, strconv.Quote(path[:min(len(path), 60)]) + "… has directories that are too deep to be named; watch one below, or without what is below"}
	}
	return faultOf(path, err)
}

// add watches a directory and, when that is asked for, all below it. It watches before it looks, so that nothing is missed;
// with scan it tells what it sees.
func (w *watcher) add(dir string, flags uint32, scan bool) *fault {
	wd, err := syscall.InotifyAddWatch(w.fd, dir, watchMask|flags)
	switch {
	case dir != w.root && (err == syscall.ENOENT || err == syscall.ENOTDIR || err == syscall.ELOOP):
		return nil // it is gone again
	case err != nil:
		return watchFault(dir, err)
	}
	w.dirs[int32(wd)] = dir
	if !w.recursive {
		return nil
	}
	names, _ := namesIn(dir)
	for _, name := range names {
		path := kernel.Join(dir, name)
		var st syscall.Stat_t
		if err := syscall.Lstat(path, &st); err == syscall.ENAMETOOLONG {
			return watchFault(path, err)
		} else if err != nil {
			continue
		}
		directory := st.Mode&syscall.S_IFMT == syscall.S_IFDIR
		if scan {
			w.announced[path] = struct{}{}
			w.send("created", path, "", directory)
		}
		if directory && path != "/proc" && path != "/sys" { // the kernel's: endless, and it tells nothing of them
			if problem := w.add(path, syscall.IN_DONT_FOLLOW, scan); problem != nil {
				return problem
			}
		}
	}
	return nil
}

func (w *watcher) send(kind, path, old string, directory bool) {
	mark := ""
	if directory {
		mark = "d"
	}
	w.output.add(protocol.FileEvent, kind, path, old, mark)
}

func (w *watcher) read(buf []byte) *fault {
	for len(buf) >= syscall.SizeofInotifyEvent && !w.done {
		raw := (*syscall.InotifyEvent)(unsafe.Pointer(&buf[0]))
		end := syscall.SizeofInotifyEvent + int(raw.Len)
		name := strings.TrimRight(string(buf[syscall.SizeofInotifyEvent:end]), "\x00")
		problem := w.handle(raw.Wd, raw.Mask, raw.Cookie, name)
		if raw.Mask&syscall.IN_Q_OVERFLOW != 0 {
			return problem // the rest is of watches that are no more
		}
		if problem != nil {
			return problem
		}
		buf = buf[end:]
	}
	return nil
}

func (w *watcher) handle(wd int32, mask, cookie uint32, name string) *fault {
	if mask&syscall.IN_Q_OVERFLOW != 0 {
		problem := w.begin()
		w.send("overflow", w.root, "", true)
		return problem
	}
	dir, known := w.dirs[wd]
	switch {
	case !known:
		return nil
	case name == "":
		w.self(wd, dir, mask)
		return nil
	case w.only != "" && name != w.only && mask&(syscall.IN_MOVED_FROM|syscall.IN_MOVED_TO) == 0:
		return nil
	}
	e := event{kernel.Join(dir, name), mask&syscall.IN_ISDIR != 0}
	switch {
	case mask&syscall.IN_MOVED_FROM != 0:
		w.moved[cookie] = e
	case mask&syscall.IN_MOVED_TO != 0:
		return w.arrived(e, cookie)
	case mask&syscall.IN_CREATE != 0:
		return w.created(e)
	case mask&syscall.IN_DELETE != 0:
		w.send("removed", e.path, "", e.directory)
	case mask&syscall.IN_CLOSE_WRITE != 0:
		w.send("modified", e.path, "", false)
	case mask&syscall.IN_ATTRIB != 0:
		w.send("attributes", e.path, "", e.directory)
	}
	return nil
}

// self is of the directory itself; but for the root, the directory above tells the same.
func (w *watcher) self(wd int32, dir string, mask uint32) {
	switch {
	case mask&syscall.IN_IGNORED != 0:
		delete(w.dirs, wd)
	case dir != w.root:
	case mask&(syscall.IN_DELETE_SELF|syscall.IN_MOVE_SELF|syscall.IN_UNMOUNT) != 0:
		w.unpaired()
		w.send("removed", kernel.Join(w.root, w.only), "", w.only == "")
		w.done = true
	case mask&syscall.IN_ATTRIB != 0 && w.only == "":
		var st syscall.Stat_t
		if syscall.Lstat(dir, &st) == nil { // else it is being removed
			w.send("attributes", dir, "", true)
		}
	}
}

func (w *watcher) created(e event) *fault {
	_, announced := w.announced[e.path]
	if delete(w.announced, e.path); announced {
		return nil
	}
	w.send("created", e.path, "", e.directory)
	if w.recursive && e.directory {
		return w.add(e.path, syscall.IN_DONT_FOLLOW, true)
	}
	return nil
}

// arrived is the second half of a rename, or something from outside.
func (w *watcher) arrived(e event, cookie uint32) *fault {
	from, paired := w.moved[cookie]
	delete(w.moved, cookie)
	name := func(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }
	switch {
	case w.only != "" && name(e.path) != w.only:
		if paired && name(from.path) == w.only {
			w.send("removed", from.path, "", from.directory)
		}
		return nil
	case !paired || w.only != "":
		return w.created(e)
	}
	w.send("renamed", e.path, from.path, e.directory)
	if !e.directory || !w.recursive {
		return nil
	}
	watched := false
	for wd, dir := range w.dirs {
		if paths.Within(dir, from.path) {
			w.dirs[wd] = e.path + dir[len(from.path):]
			watched = watched || dir == from.path
		}
	}
	if !watched { // it had its new name before it could be watched under the old one
		return w.add(e.path, syscall.IN_DONT_FOLLOW, true)
	}
	return nil
}

// unpaired: what has left, and did not come back under another name.
func (w *watcher) unpaired() {
	for cookie, e := range w.moved {
		delete(w.moved, cookie)
		if w.only != "" && e.path != kernel.Join(w.root, w.only) {
			continue
		}
		w.send("removed", e.path, "", e.directory)
		for wd, dir := range w.dirs {
			if e.directory && paths.Within(dir, e.path) {
				syscall.InotifyRmWatch(w.fd, uint32(wd))
				delete(w.dirs, wd)
			}
		}
	}
}
