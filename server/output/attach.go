package output

import (
	"cmp"
	"errors"
	"io"
	"math"
	"sync"

	"google.golang.org/grpc"

	"github.com/agbox-dev/agbox/persist"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/server/spec"
)

const (
	// reasonAttachMessage: the first message is not start, or a later one is nothing that can be sent.
	reasonAttachMessage = "ATTACH_MESSAGE_INVALID"
	// reasonStdinNotOpen: the command was started without an input, or this client has closed it.
	reasonStdinNotOpen = "STDIN_NOT_OPEN"
	// reasonNoTerminal: the command was started without one.
	reasonNoTerminal = "NO_TERMINAL"
)

type attachStream = grpc.BidiStreamingServer[agboxv1.AttachExecRequest, agboxv1.AttachExecResponse]

// received is a message of the client, or what ended them.
type received struct {
	message *agboxv1.AttachExecRequest
	err     error // io.EOF: the client sends no more
}

// Attach is the call AttachExec. It follows the command's files as ReadExecLog does, and beside that passes on what the client sends, one message
// at a time: a client that sends more than the command takes is held up by gRPC's flow control. After attached comes a
// chunk of each stream, which may be empty: from it a client knows where its output begins.
func (r *Reader) Attach(stream attachStream) error {
	messages := make(chan received)
	r.receivers.Go(func() { receive(stream, messages) })
	start, err := r.attachStart(stream, messages)
	if err != nil {
		return err
	}
	exec, err := r.Exec(start.ExecId)
	if err != nil {
		return err
	}
	owner := exec.Request.SandboxId
	a := &attachment{reader: r, stream: stream, input: newInput(stream.Context(), r, owner, exec.Request), started: make(chan uint32, 1)}
	a.follower = r.followExec(stream, owner, start.ExecId)
	a.follower.wake, a.follower.between = a.input.wake, a.between
	defer a.close()
	defer a.input.cancel()
	if err := a.begin(start, exec); err != nil {
		return err
	}
	return a.serve(messages)
}

// receive reads what the client sends, until the stream ends.
func receive(stream attachStream, messages chan<- received) {
	for {
		message, err := stream.Recv()
		select {
		case messages <- received{message, err}:
		case <-stream.Context().Done():
			return
		}
		if err != nil {
			return
		}
	}
}

func (r *Reader) attachStart(stream attachStream, messages <-chan received) (*agboxv1.AttachExecStart, error) {
	var first received
	select {
	case first = <-messages:
	case <-stream.Context().Done():
		return nil, stream.Context().Err()
	}
	if start := first.message.GetStart(); start != nil {
		return start, nil
	}
	if first.err != nil && !errors.Is(first.err, io.EOF) {
		return nil, first.err
	}
	return nil, &spec.Error{Reason: reasonAttachMessage, Field: "start", Message: "the first message must be this one, with the exec's id"}
}

// attachment is one client of one exec. It belongs to the goroutine that serves the call.
type attachment struct {
	reader    *Reader
	stream    attachStream
	follower  *follower
	input     *input
	told      bool   // the client reads the files itself
	sentTaken uint64 // how much of the input the client knows to be taken
	closed    bool   // the client knows that its input is closed
	started   chan uint32
}

// begin sends the exec's state, and where the output begins.
func (a *attachment) begin(start *agboxv1.AttachExecStart, exec persist.Exec) error {
	if !start.NoOutput {
		// Who falls back from it attaches anew, where input that is on its way may be sent twice.
		a.told = start.OffsetsOnly && !a.input.takes
		stdout, stderr := a.reader.files.ExecLogs(exec.Request.SandboxId, exec.Request.ExecId)
		if err := a.read(stdout, start.StdoutOffset, func(chunk *agboxv1.ExecLogChunk) *agboxv1.AttachExecResponse {
			return &agboxv1.AttachExecResponse{Message: &agboxv1.AttachExecResponse_Stdout{Stdout: chunk}}
		}); err != nil {
			return err
		}
		if exec.Request.Tty == nil {
			if err := a.read(stderr, start.StderrOffset, func(chunk *agboxv1.ExecLogChunk) *agboxv1.AttachExecResponse {
				return &agboxv1.AttachExecResponse{Message: &agboxv1.AttachExecResponse_Stderr{Stderr: chunk}}
			}); err != nil {
				return err
			}
		}
	}
	if err := a.stream.Send(&agboxv1.AttachExecResponse{
		Message: &agboxv1.AttachExecResponse_Attached{Attached: a.reader.Status(exec)}}); err != nil {
		return err
	}
	for _, t := range a.follower.tails {
		if err := t.send(t.offset, nil); err != nil {
			return err
		}
	}
	return nil
}

// read adds a stream to what is followed, from offset on, or from its present end.
func (a *attachment) read(path string, offset *uint64, response func(*agboxv1.ExecLogChunk) *agboxv1.AttachExecResponse) error {
	t := newTail(path, func(offset int64, data []byte) error {
		return a.stream.Send(response(&agboxv1.ExecLogChunk{Offset: uint64(offset), Data: data}))
	})
	if a.told {
		t.announce = func(offset, length int64) error {
			return a.stream.Send(response(&agboxv1.ExecLogChunk{Offset: uint64(offset), Length: uint64(length)}))
		}
	}
	a.follower.tails = append(a.follower.tails, t)
	if offset != nil {
		t.offset = int64(min(*offset, math.MaxInt64))
		return nil
	}
	if err := t.beforeEnd(0); err != nil {
		return err
	}
	return nil
}

func (a *attachment) close() {
	for _, t := range a.follower.tails {
		t.close()
	}
}

// serve returns when the command has ended and all is sent, when the client has left or was refused, or when the daemon
// ends; then the client still learns what was taken of its input, as far as it listens.
func (a *attachment) serve(messages <-chan received) error {
	var writer sync.WaitGroup
	writer.Go(func() { a.input.serve(messages) })
	writer.Go(a.awaitStart)
	err := a.follower.follow()
	a.input.stop()
	writer.Wait()
	if failure := a.sendTaken(); err != nil || failure != nil {
		return cmp.Or(err, failure)
	}
	exec, err := a.reader.log.Exec(a.input.sandboxID, a.input.execID)
	if err != nil {
		return err
	}
	return a.stream.Send(&agboxv1.AttachExecResponse{Message: &agboxv1.AttachExecResponse_Ended{Ended: a.reader.Status(exec)}})
}

// awaitStart has the client told once the command runs. It ends with the input.
func (a *attachment) awaitStart() {
	pid, err := a.reader.files.AwaitExec(a.input.ctx, a.input.execID)
	if err == nil {
		a.started <- uint32(pid)
		a.input.notify(a.input.wake)
	}
}

// between sends that the command runs and how much of the input was taken, where that is news, and returns why the input was refused.
func (a *attachment) between() error {
	a.input.sign()
	select {
	case pid := <-a.started:
		started := &agboxv1.AttachExecResponse_Started{Started: &agboxv1.ExecStarted{Pid: pid}}
		if err := a.stream.Send(&agboxv1.AttachExecResponse{Message: started}); err != nil {
			return err
		}
	default:
	}
	if err := a.sendTaken(); err != nil {
		return err
	}
	_, _, refusal := a.input.report()
	return refusal
}

func (a *attachment) sendTaken() error {
	taken, closed, _ := a.input.report()
	if taken != a.sentTaken || closed != a.closed {
		a.sentTaken, a.closed = taken, closed
		return a.stream.Send(&agboxv1.AttachExecResponse{Message: &agboxv1.AttachExecResponse_StdinTaken{StdinTaken: taken}})
	}
	return nil
}
