package pid1

import "syscall"

// keys is what is typed at a terminal: it comes out of a FIFO, and waits in one small buffer while
// the terminal takes no more. Only one of the two is watched at a time. It belongs to the pump.
type keys struct {
	in      int    // the FIFO, -1 once that has ended
	buf     []byte // of keysBuffer
	pending []byte // of buf, or the end of file
	last    byte   // that was typed
	waiting bool   // for the terminal
}

// keysBuffer is what a terminal takes as one line, at most.
const keysBuffer = 4 << 10

// attachTerminal carries what the terminal shows to out, at most limit bytes, 0: all, and types what
// comes out of in, -1: the end of file. All three are the pump's from then on, also after an error.
func (p *pump) attachTerminal(master, out int, limit uint64, in int) (*stream, error) {
	k := &keys{in: in, buf: make([]byte, keysBuffer)}
	s := &stream{in: master, out: out, limit: limit, open: true, keys: k}
	terminal := syscall.EpollEvent{Events: syscall.EPOLLIN, Fd: int32(master)}
	var err error
	if in < 0 {
		k.pending, k.waiting = endOfFile(master, 0), true
		terminal.Events |= syscall.EPOLLOUT
	} else {
		err = syscall.SetNonblock(in, true)
	}
	p.mu.Lock()
	p.streams[int32(master)] = s
	if in >= 0 {
		p.typed[int32(in)] = s
	}
	p.mu.Unlock()
	if err == nil {
		err = syscall.EpollCtl(p.epoll, syscall.EPOLL_CTL_ADD, master, &terminal)
	}
	if err == nil && in >= 0 {
		event := syscall.EpollEvent{Events: syscall.EPOLLIN, Fd: int32(in)}
		err = syscall.EpollCtl(p.epoll, syscall.EPOLL_CTL_ADD, in, &event)
	}
	if err != nil {
		p.drop(s)
		return nil, err
	}
	return s, nil
}

// takeKeys reads what is to be typed, and types it.
func (p *pump) takeKeys(s *stream) {
	k := s.keys
	if k.in < 0 || k.waiting {
		return
	}
	n, err := syscall.Read(k.in, k.buf)
	switch {
	case err == syscall.EAGAIN || err == syscall.EINTR:
		return
	case err != nil || n == 0:
		p.endKeys(s)
		k.pending = endOfFile(s.in, k.last)
	default:
		k.pending = k.buf[:n]
	}
	p.typeKeys(s)
}

// typeKeys types what is pending, as far as the terminal takes it.
func (p *pump) typeKeys(s *stream) {
	k := s.keys
	for len(k.pending) > 0 {
		n, err := syscall.Write(s.in, k.pending)
		switch {
		case err == syscall.EINTR:
		case err == syscall.EAGAIN || err == nil && n == 0:
			p.watchKeys(s, true)
			return
		case err != nil: // hung up
			k.pending = nil
			p.endKeys(s)
		default:
			k.last, k.pending = k.pending[n-1], k.pending[n:]
		}
	}
	p.watchKeys(s, false)
}

// watchKeys has either the terminal's readiness waited for, or the FIFO's.
func (p *pump) watchKeys(s *stream, waiting bool) {
	k := s.keys
	if k.waiting == waiting {
		return
	}
	k.waiting = waiting
	terminal := syscall.EpollEvent{Events: syscall.EPOLLIN, Fd: int32(s.in)}
	fifo, operation := syscall.EpollEvent{Events: syscall.EPOLLIN, Fd: int32(k.in)}, syscall.EPOLL_CTL_ADD
	if waiting {
		terminal.Events |= syscall.EPOLLOUT
		operation = syscall.EPOLL_CTL_DEL
	}
	syscall.EpollCtl(p.epoll, syscall.EPOLL_CTL_MOD, s.in, &terminal)
	if k.in >= 0 {
		syscall.EpollCtl(p.epoll, operation, k.in, &fifo)
	}
}

// endKeys lets go of the FIFO, which ends its writers.
func (p *pump) endKeys(s *stream) {
	k := s.keys
	if k.in < 0 {
		return
	}
	p.mu.Lock()
	delete(p.typed, int32(k.in))
	p.mu.Unlock()
	syscall.Close(k.in)
	k.in = -1
}
