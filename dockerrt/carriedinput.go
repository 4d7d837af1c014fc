package dockerrt

import (
	"context"
	"io"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agbox-dev/agbox/guest/protocol"
)

func (in *carriedInput) close() {
	in.over.Store(true)
	in.file.Close()
	in.closeKeeper()
}

func (in *carriedInput) closeKeeper() { in.keeper.Close() }

// rest returns what was not sent: up to what a FIFO holds. The caller has the turn, and the passage has ended.
func (in *carriedInput) rest() (list []protocol.Message) {
	if len(in.unsent) > 0 {
		list = append(list, &protocol.Data{ID: in.id, Bytes: in.unsent})
	}
	raw, err := in.file.SyscallConn()
	if err != nil {
		return list
	}
	for {
		buf, n := make([]byte, inputChunk), 0
		raw.Control(func(fd uintptr) { n, _ = unix.Read(int(fd), buf) }) // it does not wait
		if n <= 0 {
			return list
		}
		list = append(list, &protocol.Data{ID: in.id, Bytes: buf[:n]})
	}
}

// carryInput sends on what clients write, as far as the relay has room, and then its end.
func (p *passage) carryInput(in *carriedInput) {
	select {
	case in.turn <- struct{}{}:
	case <-p.ctx.Done():
		return
	}
	defer func() { <-in.turn }()
	if p.ctx.Err() != nil {
		return
	}
	in.file.SetReadDeadline(time.Time{})
	defer afterEnd(p, in.file.SetReadDeadline)()
	buf := make([]byte, inputChunk)
	for {
		select {
		case <-in.tokens:
		case <-p.ctx.Done():
			return
		}
		n, err := in.file.Read(buf)
		if n > 0 && p.send(&protocol.Data{ID: in.id, Bytes: buf[:n]}) {
			continue
		} else if n > 0 {
			in.unsent = buf[:n]
			return
		}
		select {
		case in.tokens <- struct{}{}:
		default: // the relay has confirmed what was not sent
		}
		if err == io.EOF {
			in.over.Store(true)
			p.send(&protocol.CloseStdin{ID: in.id})
		}
		return
	}
}

// carryPipe writes what comes out of the sandbox, and confirms it, until its end or that of the passage.
func (p *passage) carryPipe(id string, pipe *carriedPipe) {
	select {
	case pipe.turn <- struct{}{}:
	case <-p.ctx.Done():
		return
	}
	defer pipe.file.Close()
	defer afterEnd(p, pipe.file.SetWriteDeadline)()
	for {
		select {
		case data := <-pipe.queue:
			if len(data) == 0 {
				return
			}
			pipe.file.Write(data) // the reader may be gone, and has the command ended then
			p.send(&protocol.Room{ID: id})
		case <-p.ctx.Done():
			return
		}
	}
}

// afterEnd has reads or writes that wait given up when the passage ends; the function that it returns takes that back.
func afterEnd(p *passage, setDeadline func(time.Time) error) func() bool {
	return context.AfterFunc(p.ctx, func() { setDeadline(time.Unix(1, 0)) })
}
