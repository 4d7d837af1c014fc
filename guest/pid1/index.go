package pid1

import (
	"slices"
	"syscall"
	"time"
	"unsafe"

	"github.com/agbox-dev/agbox/guest/protocol"
)

// index tells in which order the output of a command was written to its two files. It belongs to the pump.
//
// What was moved waits in memory for indexDelay, in which time it becomes one run as long as the stream
// stays the same: a command that writes a lot costs a hundred small writes more in a second, not one
// for each of its own. What cannot be written, as on a full disk, waits on. When that is too much for
// buf, the order within it is given up, but no byte: the index stays right about all that comes later.
type index struct {
	fd      int  // -1 once all streams have ended
	open    int  // streams
	begun   bool // the version is on the disk
	waiting bool // in pump.indexes
	due     time.Time
	buf     []byte // not written yet
	last    uint64 // µs, of the newest run in buf

	// The run that goes on. Both have a length only where buf is full.
	length [2]uint64
	at     uint64
}

const (
	// indexDelay is what a reader of the index is behind the output at most.
	indexDelay = 10 * time.Millisecond
	// indexBuffer takes 128 usual runs.
	indexBuffer = 512
)

// keepIndex has the output of both streams told of in fd, which is the pump's from then on. Nothing
// may have been written to them yet.
func (p *pump) keepIndex(streams [2]*stream, fd int) {
	x := &index{fd: fd, open: len(streams)}
	p.mu.Lock()
	for _, s := range streams {
		s.index = x
	}
	streams[1].second = true
	p.mu.Unlock()
}

// begin puts the version on the disk: from then on a reader of the output knows that the index will
// tell of it.
func (x *index) begin() {
	if x.begun {
		return
	}
	if x.buf == nil {
		x.buf = append(make([]byte, 0, indexBuffer), protocol.IndexVersion)
	}
	x.write()
}

// moved notes that n bytes of s were written.
func (p *pump) moved(s *stream, n uint64) {
	if s.index == nil || n == 0 {
		return
	}
	x, now, which := s.index, time.Now(), 0
	if s.second {
		which = 1
	}
	if x.length[1-which] > 0 {
		x.endRun()
	}
	if x.length[0]+x.length[1] == 0 {
		x.at = uint64(now.UnixMicro())
	}
	x.length[which] += n
	if !x.waiting {
		x.waiting, x.due = true, now.Add(indexDelay)
		if p.indexes = append(p.indexes, x); len(p.indexes) == 1 {
			p.arm(indexDelay)
		}
	}
}

// endRun moves the run that goes on to buf, if there is room.
func (x *index) endRun() {
	if len(x.buf)+2*protocol.MaxRun > indexBuffer {
		x.write()
	}
	if len(x.buf)+2*protocol.MaxRun > indexBuffer {
		return
	}
	for i, n := range x.length {
		if n > 0 {
			at := max(x.at, x.last) // a clock may be set back
			x.buf = protocol.AppendRun(x.buf, i == 1, n, at-x.last)
			x.last, x.length[i] = at, 0
		}
	}
}

// write writes as much of buf as the disk takes.
func (x *index) write() {
	for len(x.buf) > 0 {
		n, err := syscall.Write(x.fd, x.buf)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || n == 0 {
			return
		}
		x.begun = true
		x.buf = x.buf[:copy(x.buf, x.buf[n:])]
	}
}

// flush writes what waits.
func (p *pump) flush(x *index) {
	if x == nil || !x.waiting {
		return
	}
	x.endRun()
	x.write()
	x.waiting = false
	i := slices.Index(p.indexes, x)
	p.indexes = slices.Delete(p.indexes, i, i+1)
}

// flushDue writes what has waited long enough. All wait for the same time, so the first is due first.
func (p *pump) flushDue() {
	now := time.Now()
	for len(p.indexes) > 0 && !p.indexes[0].due.After(now) {
		p.flush(p.indexes[0])
	}
	if len(p.indexes) > 0 {
		p.arm(p.indexes[0].due.Sub(now))
	}
}

// A timeout of epoll_wait would set the processor's timer at each wait, which costs a busy command a third of its pace
// where that timer is a hypervisor's.
func newTimer() (int, error) {
	fd, _, errno := syscall.RawSyscall(syscall.SYS_TIMERFD_CREATE, clockMonotonic, syscall.O_CLOEXEC|syscall.O_NONBLOCK, 0)
	if errno != 0 {
		return -1, errno
	}
	return int(fd), nil
}

const clockMonotonic = 1

// arm has flushDue called after d, in place of what it was set to.
func (p *pump) arm(d time.Duration) {
	once := struct{ interval, value syscall.Timespec }{value: syscall.NsecToTimespec(int64(d))}
	syscall.RawSyscall6(syscall.SYS_TIMERFD_SETTIME, uintptr(p.timer), 0, uintptr(unsafe.Pointer(&once)), 0, 0, 0)
}

// leaveIndex is for a stream that has ended; after the last one nothing is told any more.
func (p *pump) leaveIndex(s *stream) {
	x := s.index
	if x == nil {
		return
	}
	if x.open--; x.open == 0 {
		p.flush(x)
		syscall.Close(x.fd)
		*x = index{fd: -1}
	}
}
