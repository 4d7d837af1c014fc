package actorstest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"github.com/agbox-dev/agbox/actors/runtime"
)

var _ runtime.Input = (*Runtime)(nil)

// inputs are the standard inputs of commands, each a pipe. The zero value is ready.
type inputs struct {
	mu    sync.Mutex
	pipes map[string]*input
}

type input struct {
	read, write *os.File
	closed      bool
	writers     map[*os.File]struct{}
}

// input returns the exec's pipe, making it when it is asked for first.
func (r *Runtime) input(execID string) (*input, error) {
	if in := r.inputs.pipes[execID]; in != nil {
		return in, nil
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	in := &input{read: read, write: write, writers: map[*os.File]struct{}{}}
	if r.inputs.pipes == nil {
		r.inputs.pipes = map[string]*input{}
	}
	r.inputs.pipes[execID] = in
	return in, nil
}

// Stdin is what the command reads, for use in Run: it ends after CloseStdin. Every exec has one, asked for or not.
func (r *Runtime) Stdin(execID string) (*os.File, error) {
	r.inputs.mu.Lock()
	defer r.inputs.mu.Unlock()
	in, err := r.input(execID)
	if err != nil {
		return nil, err
	}
	return in.read, nil
}

// EndStdin is the end of the command: its input takes no more.
func (r *Runtime) EndStdin(execID string) error {
	r.inputs.mu.Lock()
	defer r.inputs.mu.Unlock()
	in, err := r.input(execID)
	if err != nil {
		return err
	}
	return errors.Join(in.end(), in.read.Close())
}

func (in *input) end() error {
	if in.closed {
		return nil
	}
	in.closed = true
	err := in.write.Close()
	for writer := range in.writers {
		err = errors.Join(err, writer.Close())
	}
	return err
}

// OpenStdin implements runtime.Input.
func (r *Runtime) OpenStdin(_, execID string) (runtime.Stdin, error) {
	r.inputs.mu.Lock()
	defer r.inputs.mu.Unlock()
	in, err := r.input(execID)
	if err != nil {
		return nil, err
	}
	if in.closed {
		return nil, fmt.Errorf("%w: %s", runtime.ErrStdinClosed, execID)
	}
	writer, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", in.write.Fd()), os.O_WRONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	in.writers[writer] = struct{}{}
	return &stdin{File: writer, inputs: &r.inputs, input: in}, nil
}

// CloseStdin implements runtime.Input.
func (r *Runtime) CloseStdin(_ context.Context, _, execID string) error {
	r.inputs.mu.Lock()
	defer r.inputs.mu.Unlock()
	in, err := r.input(execID)
	if err != nil {
		return err
	}
	return in.end()
}

// ResizeExec implements runtime.Input.
func (r *Runtime) ResizeExec(_ context.Context, sandboxID, execID string, rows, columns uint16) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, fmt.Sprintf("resize %s in %s to %dx%d", execID, sandboxID, rows, columns))
	return nil
}

type stdin struct {
	*os.File
	inputs *inputs
	input  *input
	left   bool
}

func (s *stdin) Write(data []byte) (int, error) {
	n, err := s.File.Write(data)
	s.inputs.mu.Lock()
	defer s.inputs.mu.Unlock()
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, os.ErrClosed) && !s.left {
		err = runtime.ErrStdinClosed
	}
	return n, err
}

func (s *stdin) Close() error {
	s.inputs.mu.Lock()
	defer s.inputs.mu.Unlock()
	if s.left {
		return nil
	}
	s.left = true
	delete(s.input.writers, s.File)
	if s.input.closed {
		return nil
	}
	return s.File.Close()
}
