package pid1

import (
	"sync"
	"syscall"
	"unsafe"

	"github.com/agbox-dev/agbox/guest/kernel"
)

// pump copies the output of commands into their log files: one goroutine, one buffer, one epoll
// over the pipes of all commands.
//
// A command gets a pipe and not the log file itself. A program that opens /dev/stderr would
// truncate a regular file, and in a pipe the bytes pass a place where they can be counted, limited
// and shown to somebody else.
type pump struct {
	epoll   int
	wake    int // eventfd: drains is not empty
	timer   int // timerfd: something in indexes is due
	drained chan<- *execution
	ready   chan<- *execution
	// headroom is how many bytes of the disk stay free of output.
	headroom uint64
	reserved int      // written since the disk has less
	indexes  []*index // those with something not written, in the order in which it is due

	mu      sync.Mutex
	streams map[int32]*stream
	typed   map[int32]*stream    // by the FIFO that is typed at its terminal
	starts  map[int32]*execution // by the descriptor that tells how the start went
	drains  []*execution
	final   chan struct{} // non-nil: empty all pipes, then close it
}

// stream is one pipe, or the master of a terminal, and its log file. The pump closes both at the end of the pipe, which is when
// the last process that holds it has gone, not when the command has ended.
type stream struct {
	in, out int
	limit   uint64 // of written, 0: none
	written uint64
	lost    uint64 // could not be written
	dropped uint64 // beyond the limit
	open    bool
	keys    *keys // of a terminal
	index   *index
	second  bool // of the index's streams
}

// pumpBuffer is also what a busy pipe is grown to, so that one wakeup moves that much.
const pumpBuffer = 256 << 10

func newPump(drained, ready chan<- *execution) (*pump, error) {
	p := &pump{drained: drained, ready: ready, starts: map[int32]*execution{}, streams: map[int32]*stream{}, typed: map[int32]*stream{}}
	var err error
	if p.epoll, err = syscall.EpollCreate1(syscall.EPOLL_CLOEXEC); err != nil {
		return nil, err
	}
	fd, _, errno := syscall.RawSyscall(syscall.SYS_EVENTFD2, 0, syscall.O_CLOEXEC|syscall.O_NONBLOCK, 0)
	if errno != 0 {
		return nil, errno
	}
	p.wake = int(fd)
	if p.timer, err = newTimer(); err != nil {
		return nil, err
	}
	for _, fd := range []int{p.wake, p.timer} {
		event := syscall.EpollEvent{Events: syscall.EPOLLIN, Fd: int32(fd)}
		if err := syscall.EpollCtl(p.epoll, syscall.EPOLL_CTL_ADD, fd, &event); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// attach makes a pipe that ends in out, which is the pump's from then on, also after an error, and
// which gets at most limit bytes, 0: all. The write end is returned: owned by the user, so that
// /dev/stdout can be opened by name.
func (p *pump) attach(out int, limit uint64, uid, gid uint32) (*stream, int, error) {
	var ends [2]int
	if err := syscall.Pipe2(ends[:], syscall.O_CLOEXEC); err != nil {
		syscall.Close(out)
		return nil, -1, err
	}
	s := &stream{in: ends[0], out: out, limit: limit, open: true}
	if syscall.Fchown(ends[1], int(uid), int(gid)) != nil {
		syscall.Fchmod(ends[1], 0o666)
	}
	err := syscall.SetNonblock(s.in, true)
	p.mu.Lock()
	p.streams[int32(s.in)] = s
	p.mu.Unlock()
	if err == nil {
		event := syscall.EpollEvent{Events: syscall.EPOLLIN, Fd: int32(s.in)}
		err = syscall.EpollCtl(p.epoll, syscall.EPOLL_CTL_ADD, s.in, &event)
	}
	if err != nil {
		syscall.Close(ends[1])
		p.drop(s)
		return nil, -1, err
	}
	return s, ends[1], nil
}

// awaitStart has e come out of the ready channel once there is something to read from fd; now and then it comes in vain.
func (p *pump) awaitStart(e *execution, fd int) {
	p.mu.Lock()
	p.starts[int32(fd)] = e
	p.mu.Unlock()
	const once = 1 << 30 // EPOLLONESHOT
	event := syscall.EpollEvent{Events: syscall.EPOLLIN | once, Fd: int32(fd)}
	if err := syscall.EpollCtl(p.epoll, syscall.EPOLL_CTL_ADD, fd, &event); err != nil {
		kernel.Warn("a start is not seen before its end: " + err.Error())
	}
}

func (p *pump) forgetStart(fd int) {
	syscall.EpollCtl(p.epoll, syscall.EPOLL_CTL_DEL, fd, nil)
	p.mu.Lock()
	delete(p.starts, int32(fd))
	p.mu.Unlock()
}

// drain has what is in the pipes of e at this moment written before e comes out of the drained
// channel. What background processes write later does not hold it up.
func (p *pump) drain(e *execution) {
	p.mu.Lock()
	p.drains = append(p.drains, e)
	p.mu.Unlock()
	p.poke()
}

// finish empties all pipes; the channel is closed when that is done.
func (p *pump) finish() <-chan struct{} {
	done := make(chan struct{})
	p.mu.Lock()
	p.final = done
	p.mu.Unlock()
	p.poke()
	return done
}

func (p *pump) poke() {
	one := [8]byte{1}
	syscall.Write(p.wake, one[:])
}

func (p *pump) run() {
	var events [64]syscall.EpollEvent
	buf := make([]byte, pumpBuffer)
	for {
		n, err := syscall.EpollWait(p.epoll, events[:], -1)
		if err != nil && err != syscall.EINTR {
			panic("epoll_wait: " + err.Error())
		}
		for _, event := range events[:max(n, 0)] {
			if int(event.Fd) == p.wake {
				syscall.Read(p.wake, buf[:8])
				p.serve(buf)
				continue
			}
			if int(event.Fd) == p.timer {
				syscall.Read(p.timer, buf[:8])
				p.flushDue()
				continue
			}
			p.mu.Lock()
			s, typed, started := p.streams[event.Fd], p.typed[event.Fd], p.starts[event.Fd]
			p.mu.Unlock()
			if started != nil {
				p.ready <- started
				continue
			}
			if typed != nil {
				p.takeKeys(typed)
				continue
			}
			if s == nil {
				continue
			}
			if s.keys != nil && event.Events&syscall.EPOLLOUT != 0 {
				p.typeKeys(s)
			}
			if n := p.move(s, buf); n == defaultPipe {
				// Full: make room for more at once. Refused when the user has too many.
				syscall.RawSyscall(syscall.SYS_FCNTL, uintptr(s.in), syscall.F_SETPIPE_SZ, pumpBuffer)
			}
		}
	}
}

const defaultPipe = 64 << 10

// serve does what was asked for by drain and finish.
func (p *pump) serve(buf []byte) {
	p.mu.Lock()
	drains, final := p.drains, p.final
	p.drains, p.final = nil, nil
	var all []*stream
	if final != nil {
		for _, s := range p.streams {
			all = append(all, s)
		}
	}
	p.mu.Unlock()
	for _, e := range drains {
		for i, s := range e.streams {
			if s == nil {
				continue
			}
			if s.open {
				p.moveAtMost(s, buf, s.pending())
			}
			e.written[i] = s.written
			e.lost += s.lost
			e.dropped += s.dropped
			p.flush(s.index)
		}
		p.drained <- e
	}
	for _, s := range all {
		if s.open {
			p.moveAtMost(s, buf, s.pending())
		}
	}
	if final != nil {
		for len(p.indexes) > 0 {
			p.flush(p.indexes[0])
		}
		close(final)
	}
}

func (p *pump) moveAtMost(s *stream, buf []byte, rest int) {
	for rest > 0 && s.open {
		n := p.move(s, buf[:min(rest, len(buf))])
		if n <= 0 {
			return
		}
		rest -= n
	}
}

// move does one read and writes it out; it returns the bytes read, 0 when the pipe was empty.
func (p *pump) move(s *stream, buf []byte) int {
	n, err := syscall.Read(s.in, buf)
	for err == syscall.EINTR {
		n, err = syscall.Read(s.in, buf)
	}
	switch {
	case err == syscall.EAGAIN:
		return 0
	case err != nil || n == 0:
		p.drop(s)
		return 0
	}
	before := s.written
	for rest := s.keep(buf[:n]); len(rest) > 0; {
		if s.index != nil {
			s.index.begin()
		}
		if p.short(s.out, len(rest)) {
			s.lost += uint64(len(rest))
			break
		}
		w, err := syscall.Write(s.out, rest)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || w == 0 {
			// A full disk must neither end the command nor stop it.
			s.lost += uint64(len(rest))
			break
		}
		s.written += uint64(w)
		rest = rest[w:]
	}
	p.moved(s, s.written-before)
	return n
}

// reserve is what a sandbox may write of the headroom once the disk is short, so that one that fills the disk does not take
// the little that others say.
const reserve = 1 << 20

// short reports whether n bytes of output are more than may go to the disk that the file is on.
func (p *pump) short(file, n int) bool {
	if p.headroom == 0 {
		return false
	}
	var disk syscall.Statfs_t
	if syscall.Fstatfs(file, &disk) != nil || disk.Bavail*uint64(disk.Bsize) >= p.headroom {
		p.reserved = 0
		return false
	}
	if p.reserved+n > reserve {
		return true
	}
	p.reserved += n
	return false
}

// keep returns the part of b that the limit leaves room for. What a full disk swallows takes room, too.
func (s *stream) keep(b []byte) []byte {
	room := s.limit - s.written - s.lost
	if s.limit == 0 || uint64(len(b)) <= room {
		return b
	}
	s.dropped += uint64(len(b)) - room
	return b[:room]
}

func (p *pump) drop(s *stream) {
	s.open = false
	if s.keys != nil {
		p.endKeys(s)
	}
	p.leaveIndex(s)
	p.mu.Lock()
	delete(p.streams, int32(s.in))
	p.mu.Unlock()
	syscall.Close(s.in)
	syscall.Close(s.out)
}

// pending is the number of bytes in the pipe. A terminal does not tell all of what it holds, which is
// less than the number returned.
func (s *stream) pending() int {
	if s.keys != nil {
		return pumpBuffer
	}
	var n int32
	syscall.RawSyscall(syscall.SYS_IOCTL, uintptr(s.in), syscall.TIOCINQ, uintptr(unsafe.Pointer(&n)))
	return int(n)
}
