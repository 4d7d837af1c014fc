package relay

import (
	"context"
	"io"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agbox-dev/agbox/guest/protocol"
)

const (
	// inputChunk and fifoRoom, in bytes, keep what is under way to a command small: all of it fits into the engine's buffers
	// when the forwarder stands still with the sandbox.
	inputChunk = 16 << 10
	fifoRoom   = 64 << 10
)

// input is the FIFO that clients write to.
type input struct {
	id      string
	file    *os.File
	keeper  *os.File
	turn    chan struct{} // one token, for whoever reads
	credits chan struct{} // one for each chunk that may be under way
	over    atomic.Bool   // it has come to its end
}

func newInput(id string, file *os.File) *input {
	in := &input{id: id, file: file, turn: make(chan struct{}, 1), credits: make(chan struct{}, protocol.DataWindow)}
	for range protocol.DataWindow {
		in.credits <- struct{}{}
	}
	return in
}

func (in *input) close() {
	in.over.Store(true)
	in.file.Close()
	in.closeKeeper()
}

func (in *input) closeKeeper() { in.keeper.Close() }

// rest returns what is in the FIFO, which holds little. The caller has the turn, and the session has ended.
func (in *input) rest() (list [][]byte) {
	raw, err := in.file.SyscallConn()
	for err == nil {
		buf, n := make([]byte, inputChunk), 0
		err = raw.Control(func(fd uintptr) { n, _ = unix.Read(int(fd), buf) }) // it does not wait
		if n <= 0 {
			break
		}
		list = append(list, buf[:n])
	}
	return list
}

// carryInput sends on what clients write, as far as there is credit, and then its end.
func (s *session) carryInput(in *input) {
	select {
	case in.turn <- struct{}{}:
	case <-s.ctx.Done():
		return
	}
	defer func() { <-in.turn }()
	if s.ctx.Err() != nil {
		return
	}
	in.file.SetReadDeadline(time.Time{})
	defer s.afterEnd(in.file.SetReadDeadline)()
	buf := make([]byte, inputChunk)
	for {
		select {
		case <-in.credits:
		case <-s.ctx.Done():
			return
		}
		n, err := in.file.Read(buf)
		if n > 0 {
			s.send(&protocol.Data{ID: in.id, Bytes: buf[:n]})
			continue
		}
		select {
		case in.credits <- struct{}{}:
		default: // the forwarder has confirmed what was not sent
		}
		if err == io.EOF {
			in.over.Store(true)
			s.send(&protocol.CloseStdin{ID: in.id})
		}
		return
	}
}

// pipe is one that the daemon itself reads.
type pipe struct {
	file  *os.File
	turn  chan struct{}
	queue chan []byte // has room for all that may be under way
}

func newPipe(file *os.File) *pipe {
	return &pipe{file: file, turn: make(chan struct{}, 1), queue: make(chan []byte, protocol.DataWindow)}
}

// carryPipe writes what comes out of the sandbox, and confirms it, until its end or that of the session.
func (s *session) carryPipe(id string, pipe *pipe) {
	select {
	case pipe.turn <- struct{}{}:
	case <-s.ctx.Done():
		return
	}
	defer pipe.file.Close()
	defer s.afterEnd(pipe.file.SetWriteDeadline)()
	for {
		select {
		case data := <-pipe.queue:
			if len(data) == 0 {
				return
			}
			pipe.file.Write(data) // the reader may be gone, and has the command ended then
			s.send(&protocol.Credit{ID: id})
		case <-s.ctx.Done():
			return
		}
	}
}

// afterEnd has reads or writes that wait given up when the session ends; the function that it returns takes that back.
func (s *session) afterEnd(setDeadline func(time.Time) error) func() bool {
	return context.AfterFunc(s.ctx, func() { setDeadline(time.Unix(1, 0)) })
}
