package envd

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/agbox-dev/agbox/gateway/envd/proto/process"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

const (
	// idleInput is how long one stays open that nobody uses.
	idleInput = time.Minute
	// inputPart is how many bytes of input one message has.
	inputPart = 256 << 10
)

var (
	errSelector   = errors.New("the selector names neither a pid nor a tag")
	errSignal     = errors.New("only SIGNAL_SIGTERM and SIGNAL_SIGKILL are sent")
	errIdle       = errors.New("envd: the input was given up")
	errInputEnded = errors.New("the process has ended, or takes no more input")
)

// inputs are the ways to the inputs and terminals of commands, one for each: what one client sends after another arrives after it. The zero
// value is ready.
type inputs struct {
	mu  sync.Mutex
	all map[string]*input // by exec
}

// input is one stream. It belongs to who holds its token but for what mu guards; stream is there once attached is.
type input struct {
	token  chan struct{}
	stream agboxv1.SandboxService_AttachExecClient
	stop   context.CancelFunc
	idle   *time.Timer

	mu       sync.Mutex
	attached *agboxv1.ExecStatus
	taken    uint64
	answers  int // messages that tell what was taken
	err      error
	changed  chan struct{}

	sent   uint64
	closed bool
}

// input returns the way to a command's input, held by the caller, who calls release.
func (h *Handler) input(ctx context.Context, b *box, execID string) (in *input, release func(), err error) {
	for {
		in, release, err = h.takeInput(ctx, b, execID)
		if !errors.Is(err, errIdle) { // else it was given up in the moment that it was wanted
			return in, release, err
		}
	}
}

func (h *Handler) takeInput(ctx context.Context, b *box, execID string) (in *input, release func(), err error) {
	h.inputs.mu.Lock()
	in = h.inputs.all[execID]
	if in == nil {
		if in, err = h.openInput(b, execID); err != nil {
			h.inputs.mu.Unlock()
			return nil, nil, err
		}
	}
	h.inputs.mu.Unlock()
	select {
	case in.token <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, rpcError(ctx.Err())
	}
	in.idle.Stop()
	release = func() {
		in.idle.Reset(idleInput)
		<-in.token
	}
	if err = in.await(ctx, func() bool { return in.attached != nil }); err != nil {
		release()
		return nil, nil, err
	}
	return in, release, nil
}

// openInput is called with the lock held; it does not wait for the daemon. Who awaits that it is attached may use its stream.
func (h *Handler) openInput(b *box, execID string) (*input, error) {
	release, err := h.open(b)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(h.closing)
	in := &input{token: make(chan struct{}, 1), stop: stop, changed: make(chan struct{})}
	in.idle = time.AfterFunc(idleInput, stop)
	if h.inputs.all == nil {
		h.inputs.all = map[string]*input{}
	}
	h.inputs.all[execID] = in
	h.work.Go(func() {
		defer release()
		defer stop()
		err := in.receive(ctx, b, execID)
		if ctx.Err() != nil && h.closing.Err() == nil {
			err = errIdle
		}
		h.inputs.mu.Lock()
		if h.inputs.all[execID] == in {
			delete(h.inputs.all, execID)
		}
		h.inputs.mu.Unlock()
		in.change(func() { in.err = err })
	})
	return in, nil
}

// receive opens the stream, and returns why there is no more to receive.
func (in *input) receive(ctx context.Context, b *box, execID string) error {
	stream, err := b.client.AttachExec(ctx)
	if err == nil {
		err = stream.Send(&agboxv1.AttachExecRequest{Message: &agboxv1.AttachExecRequest_Start{Start: &agboxv1.AttachExecStart{ExecId: execID, NoOutput: true}}})
	}
	if err != nil && err != io.EOF {
		return rpcError(err)
	}
	in.stream = stream
	for {
		message, err := stream.Recv()
		if err != nil {
			if refusalOf(err).reason == "" {
				return connect.NewError(connect.CodeNotFound, errInputEnded)
			}
			return rpcError(err)
		}
		switch m := message.Message.(type) {
		case *agboxv1.AttachExecResponse_Attached:
			in.change(func() { in.attached = m.Attached })
		case *agboxv1.AttachExecResponse_StdinTaken:
			in.change(func() { in.taken, in.answers = m.StdinTaken, in.answers+1 })
		case *agboxv1.AttachExecResponse_Ended:
			return connect.NewError(connect.CodeNotFound, errInputEnded)
		}
	}
}

func (in *input) change(do func()) {
	in.mu.Lock()
	defer in.mu.Unlock()
	do()
	close(in.changed)
	in.changed = make(chan struct{})
}

// await returns when it is so, or why it will not be.
func (in *input) await(ctx context.Context, so func() bool) error {
	for {
		in.mu.Lock()
		done, err, changed := so(), in.err, in.changed
		in.mu.Unlock()
		if done || err != nil {
			if done {
				return nil
			}
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return rpcError(ctx.Err())
		}
	}
}

// write returns when all is in the input.
func (in *input) write(ctx context.Context, data []byte) error {
	for len(data) > 0 {
		part := data[:min(len(data), inputPart)]
		if err := in.stream.Send(&agboxv1.AttachExecRequest{Message: &agboxv1.AttachExecRequest_Stdin{Stdin: part}}); err != nil {
			return in.await(ctx, func() bool { return false })
		}
		in.sent += uint64(len(part))
		data = data[len(part):]
		if err := in.await(ctx, func() bool { return in.taken >= in.sent }); err != nil {
			return err
		}
	}
	return nil
}

// SendInput implements processconnect.ProcessHandler.
func (p *processes) SendInput(ctx context.Context, req *connect.Request[process.SendInputRequest]) (*connect.Response[process.SendInputResponse], error) {
	b := boxOf(ctx)
	exec, err := b.find(ctx, req.Msg.GetProcess(), false)
	if err != nil {
		return nil, err
	}
	if err := p.send(ctx, b, exec, req.Msg.GetInput()); err != nil {
		return nil, err
	}
	return connect.NewResponse(&process.SendInputResponse{}), nil
}

func (h *Handler) send(ctx context.Context, b *box, exec *agboxv1.ExecStatus, given *process.ProcessInput) error {
	var data []byte
	switch m := given.GetInput().(type) {
	case *process.ProcessInput_Stdin:
		if exec.Tty {
			return internal("process %d has a terminal: send pty input", exec.Pid)
		}
		data = m.Stdin
	case *process.ProcessInput_Pty:
		if !exec.Tty {
			return internal("process %d has no terminal: send stdin input", exec.Pid)
		}
		data = m.Pty
	default:
		return connect.NewError(connect.CodeUnimplemented, errors.New("the input is neither stdin nor pty"))
	}
	if !exec.Tty && !exec.Stdin {
		return internal("the stdin of process %d is not open: start it with stdin", exec.Pid)
	}
	in, release, err := h.input(ctx, b, exec.ExecId)
	if err != nil {
		return err
	}
	defer release()
	if in.closed {
		return internal("the stdin of process %d was closed", exec.Pid)
	}
	return in.write(ctx, data)
}

// StreamInput implements processconnect.ProcessHandler.
func (p *processes) StreamInput(ctx context.Context, stream *connect.ClientStream[process.StreamInputRequest]) (*connect.Response[process.StreamInputResponse], error) {
	b := boxOf(ctx)
	var exec *agboxv1.ExecStatus
	for stream.Receive() {
		var err error
		switch e := stream.Msg().GetEvent().(type) {
		case *process.StreamInputRequest_Start:
			exec, err = b.find(ctx, e.Start.GetProcess(), false)
		case *process.StreamInputRequest_Data:
			if exec == nil {
				return nil, invalid("the first message names no process: begin with start")
			}
			err = p.send(ctx, b, exec, e.Data.GetInput())
		}
		if err != nil {
			return nil, err
		}
	}
	if err := stream.Err(); err != nil {
		return nil, err
	}
	return connect.NewResponse(&process.StreamInputResponse{}), nil
}

// CloseStdin implements processconnect.ProcessHandler.
func (p *processes) CloseStdin(ctx context.Context, req *connect.Request[process.CloseStdinRequest]) (*connect.Response[process.CloseStdinResponse], error) {
	b := boxOf(ctx)
	exec, err := b.find(ctx, req.Msg.GetProcess(), false)
	switch {
	case err != nil:
		return nil, err
	case exec.Tty:
		return nil, connect.NewError(connect.CodeUnknown, errors.New("a terminal's input is not closed: type what ends its program"))
	case !exec.Stdin:
		return connect.NewResponse(&process.CloseStdinResponse{}), nil
	}
	in, release, err := p.input(ctx, b, exec.ExecId)
	if err != nil {
		return nil, err
	}
	defer release()
	if in.closed {
		return connect.NewResponse(&process.CloseStdinResponse{}), nil
	}
	in.mu.Lock()
	before := in.answers
	in.mu.Unlock()
	if err = in.stream.Send(&agboxv1.AttachExecRequest{Message: &agboxv1.AttachExecRequest_CloseStdin{CloseStdin: true}}); err == nil {
		err = in.await(ctx, func() bool { return in.answers > before })
	}
	in.closed = true
	if err != nil && err != io.EOF && connect.CodeOf(err) != connect.CodeNotFound {
		return nil, rpcError(err)
	}
	return connect.NewResponse(&process.CloseStdinResponse{}), nil // one that has ended has none either
}

// Update implements processconnect.ProcessHandler.
func (p *processes) Update(ctx context.Context, req *connect.Request[process.UpdateRequest]) (*connect.Response[process.UpdateResponse], error) {
	b := boxOf(ctx)
	exec, err := b.find(ctx, req.Msg.GetProcess(), false)
	if err != nil {
		return nil, err
	}
	if size := req.Msg.GetPty().GetSize(); req.Msg.Pty != nil {
		if !exec.Tty {
			return nil, internal("process %d has no terminal", exec.Pid)
		}
		if size.GetRows() < 1 || size.GetRows() > 65535 || size.GetCols() < 1 || size.GetCols() > 65535 {
			return nil, invalid("pty.size is %d by %d: give 1 to 65535 for each", size.GetCols(), size.GetRows())
		}
		in, release, err := p.input(ctx, b, exec.ExecId)
		if err != nil {
			return nil, err
		}
		defer release()
		resize := &agboxv1.TerminalSize{Rows: size.GetRows(), Columns: size.GetCols()}
		if err := in.stream.Send(&agboxv1.AttachExecRequest{Message: &agboxv1.AttachExecRequest_Resize{Resize: resize}}); err != nil {
			return nil, connect.NewError(connect.CodeNotFound, errInputEnded)
		}
	}
	return connect.NewResponse(&process.UpdateResponse{}), nil
}

// SendSignal implements processconnect.ProcessHandler. Of KILL it returns when the process is gone.
func (p *processes) SendSignal(ctx context.Context, req *connect.Request[process.SendSignalRequest]) (*connect.Response[process.SendSignalResponse], error) {
	signal := map[process.Signal]string{process.Signal_SIGNAL_SIGTERM: "TERM", process.Signal_SIGNAL_SIGKILL: "KILL"}[req.Msg.GetSignal()]
	if signal == "" {
		return nil, connect.NewError(connect.CodeUnimplemented, errSignal)
	}
	b := boxOf(ctx)
	exec, err := b.find(ctx, req.Msg.GetProcess(), false)
	if err != nil {
		return nil, err
	}
	if _, err := b.client.SignalExec(ctx, &agboxv1.SignalExecRequest{ExecId: exec.ExecId, Signal: signal}); err != nil {
		return nil, rpcError(err)
	}
	if signal == "KILL" {
		if _, err := b.client.WaitExec(ctx, &agboxv1.WaitExecRequest{ExecId: exec.ExecId, Timeout: durationpb.New(killed)}); err != nil {
			return nil, rpcError(err)
		}
	}
	return connect.NewResponse(&process.SendSignalResponse{}), nil
}
