// Package forwarder is the end of the relay that runs in the sandbox: agbox-init in its mode "relay".
package forwarder

import (
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"

	"github.com/agbox-dev/agbox/guest/kernel"
	"github.com/agbox-dev/agbox/guest/protocol"
)

// relay is the mode "relay": it stands between PID 1 and a daemon with whom PID 1 can share no socket. It listens where
// PID 1 dials, and speaks to the daemon over its own standard input and output, which the engine carries. PID 1 writes to
// files, which outlive the daemon, and which the forwarder sends on.
//
// There is one at a time, for one connection of PID 1: it ends with that, with its input, and when a newer one comes. All
// that it knows is in PID 1, in the files and with the daemon.
//
// Goroutines: the reader of the daemon; the accepter; the reader of PID 1; the forwarder, who owns execs and
// writes to the daemon; the one that waits for inotify; and one for each input and pipe.
type relay struct {
	socket string
	logs   string // where output is, which everybody in the sandbox may read
	state  string // where the rest is, which only root may

	ready     chan struct{} // closed once the daemon has repeated its Opens
	connected chan int      // PID 1's connection
	init      int           // the same, guarded by sending
	next      []int         // from the last Open, for the message that follows it
	refused   bool          // and whether that one is not for PID 1
	sending   sync.Mutex    // to PID 1

	mu     sync.Mutex
	inputs map[string]*relayInput
	pipes  map[string]chan struct{} // a token for each chunk that may be under way

	once    sync.Once
	leaving chan struct{} // closed when the relay ends

	forwarder
}

// Main is the mode; it ends the process.
func Main(args []string) {
	r := &relay{
		ready: make(chan struct{}), connected: make(chan int, 1), leaving: make(chan struct{}), init: -1,
		inputs: map[string]*relayInput{}, pipes: map[string]chan struct{}{},
	}
	for _, arg := range args {
		switch name, value, _ := strings.Cut(arg, "="); name {
		case "--socket":
			r.socket = value
		case "--logs":
			r.logs = value
		case "--state":
			r.state = value
		}
	}
	if r.socket == "" || r.logs == "" || r.state == "" {
		kernel.Warn("relay: is for the daemon, who says --socket=PATH, --logs=DIRECTORY and --state=DIRECTORY")
		os.Exit(2)
	}
	runtime.GOMAXPROCS(2)
	debug.SetGCPercent(20)
	syscall.RawSyscall(syscall.SYS_PRCTL, syscall.PR_SET_DUMPABLE, 0, 0)
	syscall.Umask(0o022)
	// PID 1 sends TERM to everybody when the sandbox stops, and has results to tell after that.
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE)
	listener, err := r.listen()
	if err != nil {
		kernel.Warn("relay: cannot listen on " + r.socket + ": " + err.Error())
		os.Exit(1)
	}
	r.prepare()
	go r.accept(listener)
	go r.readDaemon()
	r.carry()
}

// listen takes the place of an older relay, which leaves when somebody other than PID 1 connects.
func (r *relay) listen() (int, error) {
	if fd, err := kernel.Dial(r.socket); err == nil {
		syscall.Shutdown(fd, syscall.SHUT_WR) // says nothing, which PID 1 would
		for {
			if n, err := syscall.Read(fd, make([]byte, 1)); err != syscall.EINTR && n <= 0 {
				break
			}
		}
		syscall.Close(fd)
	}
	if err := syscall.Unlink(r.socket); err != nil && err != syscall.ENOENT {
		return -1, err
	}
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if err = syscall.Bind(fd, &syscall.SockaddrUnix{Name: r.socket}); err == nil {
		err = syscall.Chmod(r.socket, 0o600)
	}
	if err == nil {
		err = syscall.Listen(fd, 4)
	}
	return fd, err
}

// accept lets PID 1 in. Only root gets to the socket. gVisor names this process as the peer, whoever that is.
func (r *relay) accept(listener int) {
	for first := true; ; {
		fd, _, err := syscall.Accept4(listener, syscall.SOCK_CLOEXEC)
		if err == syscall.EINTR || err == syscall.ECONNABORTED {
			continue
		}
		if err != nil {
			kernel.Warn("relay: " + err.Error())
			os.Exit(1)
		}
		peer, err := syscall.GetsockoptUcred(fd, syscall.SOL_SOCKET, syscall.SO_PEERCRED)
		if err != nil || peer.Pid != 1 && peer.Pid != int32(os.Getpid()) || !first {
			r.leave()
		}
		first = false
		r.connected <- fd
		go r.readInit(fd)
	}
}

func (r *relay) readInit(fd int) {
	r.read(fd, func(m protocol.Message) {
		<-r.ready
		r.fromInit <- m
	})
	os.Exit(0)
}

func (r *relay) readDaemon() {
	r.read(0, r.hear)
	r.leave()
}

// read passes on messages until there are no more.
func (r *relay) read(fd int, take func(protocol.Message)) {
	var decoder protocol.Decoder
	buf := make([]byte, protocol.MaxData)
	for {
		n, err := syscall.Read(fd, buf)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || n <= 0 {
			return
		}
		decoder.Feed(buf[:n], nil)
		for {
			m, _, err := decoder.Next()
			if err != nil {
				kernel.Warn("relay: got what is not of this protocol: " + err.Error())
				return
			}
			if m == nil {
				break
			}
			take(m)
		}
	}
}

// hear does what the daemon says, and passes on what is for PID 1. It never waits for a command.
func (r *relay) hear(m protocol.Message) {
	switch m := m.(type) {
	case *protocol.Open:
		answer := make(chan opened, 1)
		r.opens <- openRequest{m, answer}
		o := <-answer
		r.next = o.fds
		if o.input != nil {
			r.addInput(o.input)
		}
		if o.pipe != nil {
			r.startPipe(m.ID, o.pipe)
		}
		r.refused = o.refused
	case *protocol.Ready:
		close(r.ready)
	case *protocol.Data:
		if in := r.input(m.ID); in != nil {
			in.add(m.Bytes)
		}
	case *protocol.Credit:
		r.mu.Lock()
		tokens := r.pipes[m.ID]
		r.mu.Unlock()
		if tokens != nil {
			tokens <- struct{}{}
		}
	case *protocol.CloseStdin:
		in := r.input(m.ID)
		if _, err := os.Stat(r.path(m.ID, "rest")); in == nil && err == nil {
			in = r.newInput(m.ID)
			r.addInput(in)
		}
		if in == nil {
			r.forward(m, nil)
		} else {
			in.close()
		}
	case *protocol.Ack:
		r.mu.Lock()
		delete(r.inputs, m.ID)
		r.mu.Unlock()
		r.forward(m, nil)
		r.acks <- m.ID
	case *protocol.Exec, *protocol.Boot:
		fds := r.next
		r.next = nil
		if !r.refused {
			r.forward(m, fds)
		}
		r.refused = false
	default:
		r.forward(m, nil)
	}
}

// forward sends to PID 1, who always reads, and closes the descriptors. The daemon has nothing to say before it has heard PID 1.
func (r *relay) forward(m protocol.Message, fds []int) {
	defer kernel.CloseAll(fds)
	r.sending.Lock()
	defer r.sending.Unlock()
	if r.init < 0 {
		r.init = <-r.connected
	}
	frame, err := protocol.Encode(m, len(fds))
	if err != nil {
		kernel.Warn("relay: " + err.Error())
		return
	}
	var oob []byte
	if len(fds) > 0 {
		oob = syscall.UnixRights(fds...)
	}
	for len(frame) > 0 {
		n, err := syscall.SendmsgN(r.init, frame, oob, nil, syscall.MSG_NOSIGNAL)
		if err != nil && err != syscall.EINTR {
			os.Exit(0) // as PID 1 has
		}
		if n > 0 {
			frame, oob = frame[n:], nil
		}
	}
}

// startPipe sends on what comes out of a pipe, as far as the daemon has room.
func (r *relay) startPipe(id string, from *os.File) {
	tokens := make(chan struct{}, protocol.DataWindow)
	for range protocol.DataWindow {
		tokens <- struct{}{}
	}
	r.mu.Lock()
	r.pipes[id] = tokens
	r.mu.Unlock()
	go func() {
		defer from.Close()
		for {
			<-tokens
			data := make([]byte, protocol.MaxData)
			n, _ := from.Read(data)
			if n == 0 {
				r.mu.Lock()
				delete(r.pipes, id)
				r.mu.Unlock()
			}
			r.say <- &protocol.Data{ID: id, Stream: protocol.StreamPipe, Bytes: data[:max(n, 0)]}
			if n == 0 {
				return
			}
		}
	}()
}
