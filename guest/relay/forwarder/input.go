package forwarder

import (
	"os"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/agbox-dev/agbox/guest/kernel"
	"github.com/agbox-dev/agbox/guest/protocol"
)

// relayInput writes to the FIFO of a command's input. What the command has not taken when the relay leaves waits for the next
// relay in a file. PID 1 hears that the input is closed when all of it is in the FIFO: until then it keeps the FIFO open.
type relayInput struct {
	id   string
	rest string   // the file's path
	file *os.File // nil when the command does not read

	mu      sync.Mutex
	queue   []inputChunk // the daemon bounds it
	closed  bool         // by the daemon
	over    bool         // nobody reads any more
	leaving bool
	wake    chan struct{} // one token: something above has changed
	done    chan struct{} // closed with run
}

type inputChunk struct {
	data    []byte
	awaited bool // the daemon waits for its Room
}

func (r *relay) newInput(id string) *relayInput {
	in := &relayInput{id: id, rest: r.path(id, "rest"), wake: make(chan struct{}, 1), done: make(chan struct{})}
	// Without a reader there is nobody to write for.
	path := r.path(id, protocol.KindInput)
	if w, err := syscall.Open(path, syscall.O_WRONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0); err == nil {
		in.file = os.NewFile(uintptr(w), path)
	}
	if data, err := os.ReadFile(in.rest); err == nil && len(data) > 0 {
		in.queue = []inputChunk{{data: data}}
		in.poke()
	}
	return in
}

func (in *relayInput) poke() {
	select {
	case in.wake <- struct{}{}:
	default:
	}
}

// change does something to the fields that are guarded.
func (in *relayInput) change(do func()) {
	in.mu.Lock()
	do()
	in.mu.Unlock()
	in.poke()
}

func (in *relayInput) add(data []byte) {
	in.change(func() { in.queue = append(in.queue, inputChunk{data, true}) })
}

func (in *relayInput) close() { in.change(func() { in.closed = true }) }

// end is for when the command has ended.
func (in *relayInput) end() {
	in.change(func() { in.over = true })
	in.file.Close() // also of none
}

// gone tells whether the command has closed its input, or ended.
func (in *relayInput) gone() bool {
	raw, err := in.file.SyscallConn()
	if err != nil {
		return false // it is closed already, and known to be
	}
	var broken bool
	raw.Control(func(fd uintptr) {
		asked := struct {
			fd           int32
			want, result int16
		}{fd: int32(fd)}
		var now syscall.Timespec
		n, _, _ := syscall.RawSyscall6(syscall.SYS_PPOLL, uintptr(unsafe.Pointer(&asked)), 1, uintptr(unsafe.Pointer(&now)), 0, 0, 0)
		broken = n == 1 && asked.result != 0
	})
	return broken
}

// run writes what comes until the input is closed or over, or the relay leaves.
func (in *relayInput) run(r *relay) {
	defer close(in.done)
	if in.file == nil {
		in.change(func() { in.over = true })
		r.sayUnlessLeaving(&protocol.InputClosed{ID: in.id})
	}
	for range in.wake {
		for in.step(r) {
		}
		in.mu.Lock()
		leaving, closed, left := in.leaving, in.closed || in.over, len(in.queue)
		in.mu.Unlock()
		switch {
		case leaving:
			return
		case closed && left == 0:
			in.file.Close()
			syscall.Unlink(in.rest)
			r.forward(&protocol.CloseStdin{ID: in.id}, nil)
			return
		}
	}
}

// step writes one chunk; false when there is nothing to do.
func (in *relayInput) step(r *relay) bool {
	in.mu.Lock()
	if in.over {
		in.queue = nil
	}
	if len(in.queue) == 0 || in.leaving {
		in.mu.Unlock()
		return false
	}
	chunk := in.queue[0]
	in.mu.Unlock()
	n, err := in.file.Write(chunk.data)
	in.mu.Lock()
	in.queue[0].data = chunk.data[n:]
	if len(in.queue[0].data) == 0 {
		in.queue = in.queue[1:]
	}
	deaf := err != nil && !in.leaving && !in.over
	in.over = in.over || deaf
	in.mu.Unlock()
	switch {
	case deaf:
		r.sayUnlessLeaving(&protocol.InputClosed{ID: in.id})
	case err == nil && chunk.awaited:
		r.sayUnlessLeaving(&protocol.Credit{ID: in.id})
	}
	return true
}

// leave returns when all that the command has not taken is on the disk.
func (in *relayInput) leave() {
	in.change(func() { in.leaving = true })
	in.file.SetWriteDeadline(time.Unix(1, 0))
	<-in.done
	var rest []byte
	for _, chunk := range in.queue {
		rest = append(rest, chunk.data...)
	}
	if len(rest) == 0 {
		syscall.Unlink(in.rest)
	} else if err := os.WriteFile(in.rest, rest, 0o600); err != nil {
		kernel.Warn("relay: input of exec " + in.id + " is lost: " + err.Error())
	}
}

func (r *relay) input(id string) *relayInput {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.inputs[id]
}

// addInput has an input carried, in place of an earlier one of the same exec, which has ended.
func (r *relay) addInput(in *relayInput) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inputs[in.id] = in
	go in.run(r)
}

func (r *relay) sayUnlessLeaving(m protocol.Message) {
	select {
	case r.say <- m:
	case <-r.leaving:
	}
}

// leave ends the relay, whose daemon is gone or has another.
func (r *relay) leave() {
	r.once.Do(func() {
		close(r.leaving)
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, in := range r.inputs {
			in.leave()
		}
	})
	os.Exit(0)
}
