package inside

import (
	"slices"
	"syscall"
	"time"

	"github.com/agbox-dev/agbox/guest/kernel"
)

// Where the kernel grants no inotify instance or watch, which all sandboxes of a host share by user, a watch looks again and again, at
// intervals that grow while nothing changes. What is there for less than an interval is not seen.
const (
	lookFirst = 100 * time.Millisecond
	lookLast  = 5 * time.Second
	// lookMost files are remembered, some 20 MB; a larger tree is refused.
	lookMost = 1 << 17
)

// seen is what a change of a file shows in.
type seen struct {
	inode, mode     uint64
	size, sec, nsec int64
}

// look takes the place of inotify's events until the directory is gone. It says so once.
func (w *watcher) look() *fault {
	syscall.Close(w.epoll) // also of none
	syscall.Close(w.fd)
	before, problem := w.all()
	if problem != nil {
		return problem
	}
	w.send("looking", kernel.Join(w.root, w.only), "", w.only == "")
	w.flush()
	for wait := lookFirst; ; wait = min(wait*2, lookLast) {
		time.Sleep(wait)
		var root syscall.Stat_t
		if err := syscall.Stat(w.root, &root); err != nil || root.Mode&syscall.S_IFMT != syscall.S_IFDIR {
			w.send("removed", kernel.Join(w.root, w.only), "", w.only == "")
			return nil
		}
		now, problem := w.all()
		if problem != nil {
			return problem
		}
		if w.compare(before, now) {
			wait = lookFirst / 2
		}
		before = now
		w.flush()
	}
}

// compare tells what is different, and whether anything is.
func (w *watcher) compare(before, now map[string]seen) (different bool) {
	var names []string
	for path, is := range now {
		if was, known := before[path]; !known || was != is {
			names = append(names, path)
		}
	}
	for path := range before {
		if _, there := now[path]; !there {
			names = append(names, path)
		}
	}
	slices.Sort(names)
	for _, path := range names {
		was, known := before[path]
		is, there := now[path]
		directory := func(s seen) bool { return s.mode&syscall.S_IFMT == syscall.S_IFDIR }
		switch {
		case !there:
			w.send("removed", path, "", directory(was))
		case !known || was.inode != is.inode:
			w.send("created", path, "", directory(is))
		case !directory(is) && (was.size != is.size || was.sec != is.sec || was.nsec != is.nsec):
			w.send("modified", path, "", false)
		case was.mode != is.mode:
			w.send("attributes", path, "", directory(is))
		}
	}
	return len(names) > 0
}

// all looks at what is watched.
func (w *watcher) all() (map[string]seen, *fault) {
	found := map[string]seen{}
	problem := w.allIn(w.root, found)
	return found, problem
}

func (w *watcher) allIn(dir string, found map[string]seen) *fault {
	names, err := namesIn(dir)
	if err != nil && dir == w.root {
		return faultOf(dir, err)
	}
	for _, name := range names {
		if w.only != "" && name != w.only {
			continue
		}
		path := kernel.Join(dir, name)
		var st syscall.Stat_t
		if syscall.Lstat(path, &st) != nil {
			continue
		}
		if len(found) == lookMost {
			return watchFault(w.root, syscall.ENOSPC)
		}
		s := seen{st.Ino, uint64(st.Mode), st.Size, int64(st.Mtim.Sec), int64(st.Mtim.Nsec)}
		if s.mode&syscall.S_IFMT == syscall.S_IFDIR {
			s.size, s.sec, s.nsec = 0, 0, 0 // what is in it tells
		}
		found[path] = s
		if w.recursive && s.mode&syscall.S_IFMT == syscall.S_IFDIR {
			if problem := w.allIn(path, found); problem != nil {
				return problem
			}
		}
	}
	return nil
}
