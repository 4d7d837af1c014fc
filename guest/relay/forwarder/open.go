package forwarder

import (
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/agbox-dev/agbox/guest/kernel"
	"github.com/agbox-dev/agbox/guest/protocol"
)

// A file of output has one writer, whose open file PID 1 gets. It is locked, so that a later relay can tell whether it is
// still open.

func (r *relay) path(id, what string) string {
	if what == protocol.KindStdout || what == protocol.KindStderr {
		return r.logs + "/" + id + "." + what + ".log"
	}
	return r.state + "/" + id + "." + what
}

// open makes what belongs to an exec, and the descriptors for PID 1. Those for an exec that it has begun already lead
// nowhere: it closes them.
func (r *relay) open(m *protocol.Open) (o opened) {
	e := r.execs[m.ID]
	if e == nil {
		e = &relayed{id: m.ID}
		r.execs[m.ID] = e
	}
	fresh := !m.Again && !r.known[m.ID]
	for _, kind := range m.Kinds {
		fd, err := r.openKind(e, m, kind, fresh, &o)
		if err != nil {
			kernel.CloseAll(o.fds)
			r.refuse(e, "the sandbox has no room for the "+kind+" of a command: "+err.Error())
			return opened{refused: true}
		}
		if !m.Again && fd < 0 {
			fd, _ = syscall.Open("/dev/null", syscall.O_RDWR|syscall.O_CLOEXEC, 0)
		}
		if !m.Again {
			o.fds = append(o.fds, fd)
		}
	}
	if fresh {
		r.known[m.ID] = true
	}
	return o
}

// openKind returns -1 where there is nothing to hand over.
func (r *relay) openKind(e *relayed, m *protocol.Open, kind string, fresh bool, o *opened) (int, error) {
	switch kind {
	case protocol.KindStdout:
		return r.openTail(e, protocol.StreamStdout, kind, m.Stdout, fresh)
	case protocol.KindStderr:
		return r.openTail(e, protocol.StreamStderr, kind, m.Stderr, fresh)
	case protocol.KindIndex:
		return r.openTail(e, protocol.StreamIndex, kind, m.Index, fresh)
	case protocol.KindRecord:
		if fresh {
			return syscall.Open(r.path(e.id, kind), syscall.O_WRONLY|syscall.O_CREAT|syscall.O_TRUNC|syscall.O_CLOEXEC, 0o600)
		}
	case protocol.KindInput:
		return r.openInput(e, fresh, o)
	case protocol.KindKeeper:
		if fresh {
			return syscall.Open(r.path(e.id, protocol.KindInput), syscall.O_WRONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
		}
	case protocol.KindPipe:
		if fresh {
			var ends [2]int
			if err := syscall.Pipe2(ends[:], syscall.O_CLOEXEC); err != nil {
				return -1, err
			}
			o.pipe = os.NewFile(uintptr(ends[0]), kind)
			return ends[1], nil
		}
	}
	return -1, nil
}

// openTail follows a file from offset on. What is written to it goes to the same place as in the daemon's, which may hold
// the output of an earlier life.
func (r *relay) openTail(e *relayed, stream int, kind string, offset uint64, fresh bool) (fd int, err error) {
	fd = -1
	path := r.path(e.id, kind)
	if fresh {
		if fd, err = syscall.Open(path, syscall.O_WRONLY|syscall.O_CREAT|syscall.O_NOFOLLOW|syscall.O_CLOEXEC, 0o644); err != nil {
			return -1, err
		}
		syscall.Flock(fd, syscall.LOCK_SH)
		if end, _ := syscall.Seek(fd, 0, 2); end < int64(offset) {
			syscall.Seek(fd, int64(offset), 0)
		}
	}
	i := slices.IndexFunc(e.tails, func(t *tail) bool { return t.stream == stream })
	if i < 0 {
		t := &tail{of: e, stream: stream, sent: offset, watch: -1}
		if t.fd, err = syscall.Open(path, syscall.O_RDONLY|syscall.O_CREAT|syscall.O_NOFOLLOW|syscall.O_CLOEXEC, 0o644); err != nil {
			kernel.CloseAll([]int{fd})
			return -1, err
		}
		if r.inotify >= 0 {
			w, err := syscall.InotifyAddWatch(r.inotify, path, syscall.IN_MODIFY|syscall.IN_CLOSE_WRITE)
			if err == nil {
				t.watch = int32(w)
				r.watched[t.watch] = t
			}
		}
		t.open = t.isOpen()
		i, e.tails = len(e.tails), append(e.tails, t)
	}
	e.tails[i].open = e.tails[i].open || fresh
	r.mark(e.tails[i])
	return fd, nil
}

// isOpen tells whether somebody may write to the file.
func (t *tail) isOpen() bool {
	if syscall.Flock(t.fd, syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		return true
	}
	syscall.Flock(t.fd, syscall.LOCK_UN)
	return false
}

func (t *tail) size() uint64 {
	var st syscall.Stat_t
	syscall.Fstat(t.fd, &st)
	return uint64(st.Size)
}

func (r *relay) openInput(e *relayed, fresh bool, o *opened) (fd int, err error) {
	fd = -1
	path := r.path(e.id, protocol.KindInput)
	if fresh {
		if err := syscall.Mkfifo(path, 0o666); err != nil && err != syscall.EEXIST {
			return -1, err
		}
		syscall.Chmod(path, 0o666) // the command's user may open /dev/stdin by name
		if fd, err = syscall.Open(path, syscall.O_RDONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0); err != nil {
			return -1, err
		}
		syscall.SetNonblock(fd, false)
	}
	if e.input != nil {
		return fd, nil
	}
	e.input = r.newInput(e.id)
	o.input = e.input
	return fd, nil
}

// refuse answers for PID 1, which never hears of the exec.
func (r *relay) refuse(e *relayed, reason string) {
	if e.id == protocol.CommandID {
		kernel.Warn(reason)
		r.write(&protocol.Booted{Status: protocol.BootStatus{State: protocol.BootExited, ExitCode: 126}})
		return
	}
	now := time.Now()
	r.write(&protocol.Result{ID: e.id, Started: now, Ended: now, ExitCode: 126, ErrorCode: protocol.CodeStartFailed, ErrorMessage: "exec: " + reason})
}

func (r *relay) remove(e *relayed) {
	for _, t := range e.tails {
		if t.watch >= 0 {
			syscall.InotifyRmWatch(r.inotify, uint32(t.watch))
			delete(r.watched, t.watch)
		}
		syscall.Close(t.fd)
	}
	e.removed = true
	delete(r.execs, e.id)
	delete(r.known, e.id)
	for _, what := range []string{protocol.KindStdout, protocol.KindStderr, protocol.KindIndex, protocol.KindRecord, protocol.KindInput, "rest"} {
		syscall.Unlink(r.path(e.id, what))
	}
}
