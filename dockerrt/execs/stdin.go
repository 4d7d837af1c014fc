package execs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/agbox-dev/agbox/actors/runtime"
	"github.com/agbox-dev/agbox/guest/link"
	"github.com/agbox-dev/agbox/guest/protocol"
)

// The input of a command is a FIFO beside the file of its result. That it is gone although the result's file was made
// says that the input was closed for good, or has ended with the command; it is made before the other.

// inputRoom is what a FIFO holds, in bytes: four times Linux's default, as agbox-init's pipes for output that is much.
const inputRoom = 256 << 10

// inputs are those that clients write to, or whose commands run. The zero value is ready.
type inputs struct {
	mu  sync.Mutex
	all map[string]*input // by path
}

// input is one FIFO.
type input struct {
	inputs  *inputs
	path    string
	users   int           // guarded by inputs.mu
	begun   sync.Once     // closes started
	started chan struct{} // closed once the command is known to run, or the input is over

	mu      sync.Mutex // also orders what is done to the FIFO, all of which is brief
	over    bool       // closed for good, or the command has ended, or has none
	writers map[*stdin]struct{}
}

// use returns the input at path, which leave lets go of.
func (i *inputs) use(path string) *input {
	i.mu.Lock()
	defer i.mu.Unlock()
	in := i.all[path]
	if in == nil {
		in = &input{inputs: i, path: path, started: make(chan struct{}), writers: map[*stdin]struct{}{}}
		if i.all == nil {
			i.all = map[string]*input{}
		}
		i.all[path] = in
	}
	in.users++
	return in
}

func (in *input) leave() {
	in.inputs.mu.Lock()
	defer in.inputs.mu.Unlock()
	if in.users--; in.users == 0 {
		delete(in.inputs.all, in.path)
	}
}

func (in *input) begin() { in.begun.Do(func() { close(in.started) }) }

// end removes the FIFO and lets every writer go.
func (in *input) end() error {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.endLocked()
}

func (in *input) endLocked() error {
	err := unix.Unlink(in.path)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	in.over = true
	for writer := range in.writers {
		if writer.file != nil {
			writer.file.Close()
		}
	}
	in.begin()
	return err
}

// make sees to it that the FIFO is there, unless it is over. recorded: the result's file was made before.
func (in *input) make(recorded bool) error {
	info, err := os.Lstat(in.path)
	switch {
	case err == nil && info.Mode().Type() != fs.ModeNamedPipe:
		return fmt.Errorf("%s is %v and no named pipe: remove it", in.path, info.Mode().Type())
	case err == nil || !errors.Is(err, fs.ErrNotExist):
		return err
	case recorded:
		in.over = true
		in.begin()
		return nil
	}
	if err := unix.Mkfifo(in.path, 0o666); err != nil {
		return &fs.PathError{Op: "mkfifo", Path: in.path, Err: err}
	}
	// Whatever the umask: the command's user may open /dev/stdin by name. Nobody else gets into the directory.
	return os.Chmod(in.path, 0o666)
}

// ends opens both ends for agbox-init, both nil when the input is over.
func (in *input) ends() (ends [2]*os.File, err error) {
	if in.over {
		return ends, nil
	}
	// Without a writer the open would wait; the flag would become the command's.
	read, err := unix.Open(in.path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return ends, &fs.PathError{Op: "open", Path: in.path, Err: err}
	}
	ends[0] = os.NewFile(uintptr(read), in.path)
	if err = unix.SetNonblock(read, false); err == nil {
		ends[1], err = os.OpenFile(in.path, os.O_WRONLY|unix.O_NONBLOCK, 0)
	}
	if err != nil {
		ends[0].Close()
		return [2]*os.File{}, err
	}
	_, _ = unix.FcntlInt(uintptr(read), unix.F_SETPIPE_SZ, inputRoom) // refused to a user who has many
	return ends, nil
}

// stdin implements runtime.Stdin.
type stdin struct {
	*input
	once sync.Once
	left chan struct{} // closed by Close
	file *os.File      // guarded by input.mu; nil before the first Write
}

func (s *stdin) Write(data []byte) (int, error) {
	file, err := s.open()
	if err != nil {
		return 0, err
	}
	n, err := file.Write(data)
	if err != nil {
		err = s.explain(err)
	}
	return n, err
}

func (s *stdin) open() (*os.File, error) {
	select {
	case <-s.started:
	case <-s.left:
		return nil, os.ErrClosed
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	switch {
	case s.over:
		return nil, runtime.ErrStdinClosed
	case s.gone():
		return nil, os.ErrClosed
	case s.file == nil:
		s.file, err = os.OpenFile(s.path, os.O_WRONLY|unix.O_NONBLOCK, 0)
		if errors.Is(err, unix.ENXIO) || errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w: the command reads it no more", runtime.ErrStdinClosed)
		}
	}
	return s.file, err
}

func (s *stdin) gone() bool {
	select {
	case <-s.left:
		return true
	default:
		return false
	}
}

func (s *stdin) explain(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case errors.Is(err, unix.EPIPE):
		return fmt.Errorf("%w: the command reads it no more", runtime.ErrStdinClosed)
	case errors.Is(err, os.ErrClosed) && s.gone():
		return os.ErrClosed
	case errors.Is(err, os.ErrClosed):
		return runtime.ErrStdinClosed
	}
	return err
}

func (s *stdin) Close() error {
	s.once.Do(func() {
		s.mu.Lock()
		close(s.left)
		delete(s.writers, s)
		if s.file != nil && !s.over {
			s.file.Close()
		}
		s.mu.Unlock()
		s.leave()
	})
	return nil
}

// OpenStdin implements runtime.Input.
func (es *Execs) OpenStdin(sandboxID, execID string) (runtime.Stdin, error) {
	in := es.inputs.use(es.layout.Stdin(sandboxID, execID))
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.over || es.inputOver(sandboxID, execID) {
		in.leave()
		return nil, fmt.Errorf("%w: %s", runtime.ErrStdinClosed, execID)
	}
	s := &stdin{input: in, left: make(chan struct{})}
	in.writers[s] = struct{}{}
	return s, nil
}

// inputOver tells from the files whether a command's input has ended; one that was not started yet may still get one.
func (es *Execs) inputOver(sandboxID, execID string) bool {
	if _, ended := es.record(sandboxID, execID); ended {
		return true
	}
	_, err := os.Lstat(es.layout.Stdin(sandboxID, execID))
	return errors.Is(err, fs.ErrNotExist) && es.layout.Recorded(sandboxID, execID)
}

// CloseStdin implements runtime.Input.
func (es *Execs) CloseStdin(_ context.Context, sandboxID, execID string) error {
	in := es.inputs.use(es.layout.Stdin(sandboxID, execID))
	defer in.leave()
	if err := es.closeInput(in, sandboxID, execID); err != nil {
		return fmt.Errorf("cannot close the input of exec %s: %w", execID, err)
	}
	guest := es.links.Find(sandboxID)
	if guest == nil {
		return nil // Exec says it when there is one
	}
	if err := guest.CloseStdin(execID); !errors.Is(err, link.ErrClosed) {
		return err
	}
	return nil
}

// closeInput leaves the mark on the disk first.
func (es *Execs) closeInput(in *input, sandboxID, execID string) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if !es.layout.Recorded(sandboxID, execID) {
		record, err := es.layout.OpenRecord(sandboxID, execID)
		if err == nil {
			record.Close()
		} else if !errors.Is(err, fs.ErrNotExist) { // as it is once the sandbox is forgotten
			return err
		}
	}
	return in.endLocked()
}

// ResizeExec implements runtime.Input.
func (es *Execs) ResizeExec(ctx context.Context, sandboxID, execID string, rows, columns uint16) error {
	guest, err := es.links.Running(sandboxID)
	if err != nil {
		return err
	}
	err = guest.Resize(ctx, execID, protocol.Size{Rows: rows, Columns: columns})
	if errors.Is(err, link.ErrNoTerminal) {
		return fmt.Errorf("%w: %s", runtime.ErrNoTerminal, execID)
	}
	return notRunning(err, execID)
}
