package protocol

import (
	"sync"
	"syscall"
)

// Outgoing is a message on its way, or several. Its descriptors belong to whoever has it.
type Outgoing struct {
	Message Message // nil where only the frame counts
	Frame   []byte  // without a message perhaps several, one after the other
	FDs     []int
	sent    chan bool
}

// Queue sends messages in their order from a goroutine of its own, so that whoever has something to say does not wait for who does
// not read. All methods may be called concurrently.
type Queue struct {
	send  func(Outgoing) error
	end   func()
	limit int

	mu     sync.Mutex
	queue  []Outgoing
	closed bool
	wake   chan struct{} // one token: the queue has something, or closed is set
}

// NewQueue makes a queue; Run has to follow. Send takes over the descriptors. End is called once, by whoever closes the queue, which
// is also done when send fails and when more than limit messages wait; it must not block, and has to end a send that does.
func NewQueue(limit int, send func(Outgoing) error, end func()) *Queue {
	return &Queue{send: send, end: end, limit: limit, wake: make(chan struct{}, 1)}
}

// Send queues a message, whose descriptors are taken over. It fails only with ErrTooBig; after the end of the queue it does nothing.
func (q *Queue) Send(m Message, fds ...int) error {
	frame, err := Encode(m, len(fds))
	if err != nil {
		closeAll(fds)
		return err
	}
	q.Add(Outgoing{Message: m, Frame: frame, FDs: fds})
	return nil
}

// Add queues what is encoded already.
func (q *Queue) Add(o Outgoing) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || len(q.queue) >= q.limit {
		q.closeLocked()
		o.drop()
		return
	}
	q.queue = append(q.queue, o)
	q.poke()
}

// Flush returns a channel that tells, once, whether all that was queued before was sent.
func (q *Queue) Flush() <-chan bool {
	o := Outgoing{sent: make(chan bool, 1)}
	q.Add(o)
	return o.sent
}

// Close ends the queue; what waits is given up.
func (q *Queue) Close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closeLocked()
}

func (q *Queue) closeLocked() {
	if !q.closed {
		q.closed = true
		q.end()
		q.poke()
	}
}

func (q *Queue) poke() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// join puts frames together that may go with one send.
func join(batch []Outgoing) []Outgoing {
	joined := batch[:0]
	for _, o := range batch {
		if n := len(joined); n > 0 && o.isFrame() && joined[n-1].isFrame() {
			last := &joined[n-1]
			last.Frame = append(last.Frame[:len(last.Frame):len(last.Frame)], o.Frame...)
			continue
		}
		joined = append(joined, o)
	}
	return joined
}

func (o *Outgoing) isFrame() bool { return o.Message == nil && len(o.FDs) == 0 && o.sent == nil }

// Run sends until the queue is closed.
func (q *Queue) Run() {
	for broken := false; ; {
		<-q.wake
		q.mu.Lock()
		batch, closed := q.queue, q.closed
		q.queue = nil
		q.mu.Unlock()
		for _, o := range join(batch) {
			switch {
			case closed || broken:
				o.drop()
			case o.sent != nil:
				o.sent <- true
			case q.send(o) != nil:
				broken = true
				q.Close()
			}
		}
		if closed {
			return
		}
	}
}

func (o Outgoing) drop() {
	closeAll(o.FDs)
	if o.sent != nil {
		o.sent <- false
	}
}

func closeAll(fds []int) {
	for _, fd := range fds {
		syscall.Close(fd)
	}
}
