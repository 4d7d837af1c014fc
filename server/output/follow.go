package output

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/agbox-dev/agbox/execlog"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// tail is one client's way through one file that grows.
type tail struct {
	path     string
	log      *execlog.Log
	watch    *execlog.Watch // while it is followed, unless there is no directory: then there is no file, and none will come
	offset   int64          // of the next byte to send
	size     int64          // of the file as it was looked at last
	moves    bool           // another file may come to its path: then notices of the neighbours are no waste
	send     func(offset int64, data []byte) error
	announce func(offset, length int64) error // in place of send, where set; but for an empty chunk
}

func newTail(path string, send func(offset int64, data []byte) error) *tail {
	return &tail{path: path, log: execlog.New(path), send: send}
}

// beforeEnd begins so many bytes before the file's present end.
func (t *tail) beforeEnd(bytes uint64) error {
	size, err := t.log.Size()
	if err != nil {
		return err
	}
	t.offset = size - int64(min(bytes, uint64(size)))
	return nil
}

func (t *tail) observe(notices *execlog.Notices) error {
	watch, err := notices.Watch(t.path)
	if err == nil {
		t.watch = watch
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (t *tail) narrow() error {
	if t.watch == nil || t.moves || !t.log.Opened() {
		return nil
	}
	return t.watch.Narrow()
}

// close may be called more than once.
func (t *tail) close() {
	if t.watch != nil {
		t.watch.Close()
		t.watch = nil
	}
	_ = t.log.Close() // it was only read
}

// follower sends what a command writes until the command has ended and all is sent. It belongs to one goroutine, which
// also sends. Whoever makes it closes the tails.
type follower struct {
	reader *Reader
	ctx    context.Context // of the client
	owner  string          // the sandbox, whose changes may be the end of what writes
	what   string          // the files, as in "the output of exec X"
	// state tells that what writes has ended, after it has written all. FINISHED: its files must be there.
	state func() (agboxv1.ExecState, error)
	tails []*tail // two at most
	// between is called before each chunk, and after each wake; an error from it ends the following. Both may be nil.
	between func() error
	wake    <-chan struct{}
}

// follow learns of the end first and reads what there is then.
func (f *follower) follow() error {
	for _, t := range f.tails {
		if err := t.observe(f.reader.notices); err != nil {
			return err
		}
	}
	for {
		changed := f.reader.log.Changed(f.owner)
		state, err := f.state()
		if err != nil {
			return err
		}
		for same := true; same; {
			if err := f.send(state); err != nil {
				return err
			}
			if state != agboxv1.ExecState_EXEC_STATE_RUNNING {
				return nil
			}
			for _, t := range f.tails {
				if err := t.narrow(); err != nil {
					return err
				}
			}
			select {
			case <-f.grown(0):
			case <-f.grown(1):
			case <-f.wake:
			case <-changed:
				same = false
			case <-f.ctx.Done():
				return f.ctx.Err()
			}
		}
	}
}

// grown yields never for a file that is not followed.
func (f *follower) grown(i int) <-chan struct{} {
	if i >= len(f.tails) || f.tails[i].watch == nil {
		return nil
	}
	return f.tails[i].watch.Grown()
}

// send sends up to the present ends of the files, a chunk of each in turn. A command that ran to its end must have them.
func (f *follower) send(state agboxv1.ExecState) error {
	for _, t := range f.tails {
		var err error
		if t.size, err = t.log.Size(); err != nil {
			return err
		}
		if !t.log.Opened() && state == agboxv1.ExecState_EXEC_STATE_FINISHED {
			return fmt.Errorf("%s was removed from the disk", f.what)
		}
	}
	for more := true; more; {
		more = false
		if f.between != nil {
			if err := f.between(); err != nil {
				return err
			}
		}
		for _, t := range f.tails {
			if err := f.chunk(t); err != nil {
				return err
			}
			more = more || t.offset < t.size
		}
	}
	return nil
}

// chunk sends one, if there is any.
func (f *follower) chunk(t *tail) error {
	if f.ctx.Err() != nil {
		return f.ctx.Err()
	}
	if t.offset >= t.size {
		return nil
	}
	if t.announce != nil {
		length := min(t.size-t.offset, maxTold)
		if err := t.announce(t.offset, length); err != nil {
			return err
		}
		t.offset += length
		return nil
	}
	data := make([]byte, min(t.size-t.offset, MaxChunk))
	n, err := t.log.Read(data, t.offset)
	if err != nil {
		return err
	}
	if n == 0 { // the command has cut it short meanwhile
		t.size = t.offset
		return nil
	}
	if err := t.send(t.offset, data[:n]); err != nil {
		return err
	}
	t.offset += int64(n)
	return nil
}
