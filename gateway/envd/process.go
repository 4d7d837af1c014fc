package envd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/agbox-dev/agbox/gateway/envd/proto/process"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// processes serves the commands of a sandbox.
type processes struct{ *Handler }

const (
	// keepalive is how often a stream says that it is alive whose client does not say how often; least is as often as it may.
	keepalive      = 90 * time.Second
	leastKeepalive = time.Second
	// memory is how long after its end a command can be connected to.
	memory = 30 * time.Second
	// execCodeLost, and what follows, are the daemon's words for commands that were not run to an end of their own.
	codeNotFound      = "EXEC_COMMAND_NOT_FOUND"
	codeNotExecutable = "EXEC_COMMAND_NOT_EXECUTABLE"
	codeUserUnknown   = "EXEC_USER_UNKNOWN"
	codeLost          = "EXEC_RESULT_LOST"
)

func keepaliveOf(header http.Header) time.Duration {
	seconds, err := strconv.ParseUint(header.Get("Keepalive-Ping-Interval"), 10, 31)
	if err != nil || seconds == 0 {
		return keepalive
	}
	return max(time.Duration(seconds)*time.Second, leastKeepalive)
}

// Start implements processconnect.ProcessHandler. The command's life is the call's deadline; a client that leaves ends nothing.
func (p *processes) Start(ctx context.Context, req *connect.Request[process.StartRequest], stream *connect.ServerStream[process.StartResponse]) error {
	b, user, err := p.rpcUser(ctx, req.Header())
	if err != nil {
		return err
	}
	release, err := p.open(b)
	if err != nil {
		return err
	}
	defer release()
	config := req.Msg.GetProcess()
	if config.GetCmd() == "" {
		return invalid("process.cmd is empty: name a program")
	}
	cwd, err := fromHome(config.GetCwd())
	if err != nil {
		return err
	}
	create := &agboxv1.CreateExecRequest{
		SandboxId: b.id, ExecId: uuid.NewString(), Command: append([]string{config.GetCmd()}, config.GetArgs()...), EnvOverrides: config.GetEnvs(),
		Cwd: cwd, CwdFromHome: true, User: user, Tag: req.Msg.GetTag(), Stdin: req.Msg.Stdin == nil || req.Msg.GetStdin(),
	}
	if req.Msg.Pty != nil {
		size := req.Msg.Pty.GetSize()
		create.Tty, create.Stdin = &agboxv1.TerminalSize{Rows: max(size.GetRows(), 1), Columns: max(size.GetCols(), 1)}, false
	}
	if deadline, bounded := ctx.Deadline(); bounded {
		create.Timeout = durationpb.New(max(time.Until(deadline), time.Millisecond))
	}
	if _, err := b.client.CreateExec(ctx, create); err != nil {
		return rpcError(err)
	}
	var zero uint64
	attach := &agboxv1.AttachExecStart{ExecId: create.ExecId, StdoutOffset: &zero, StderrOffset: &zero}
	return p.carry(ctx, b, attach, keepaliveOf(req.Header()), func(e *process.ProcessEvent) error {
		return stream.Send(&process.StartResponse{Event: e})
	})
}

// Connect implements processconnect.ProcessHandler: what comes from now on.
func (p *processes) Connect(ctx context.Context, req *connect.Request[process.ConnectRequest], stream *connect.ServerStream[process.ConnectResponse]) error {
	b := boxOf(ctx)
	exec, err := b.find(ctx, req.Msg.GetProcess(), true)
	if err != nil {
		return err
	}
	release, err := p.open(b)
	if err != nil {
		return err
	}
	defer release()
	return p.carry(ctx, b, &agboxv1.AttachExecStart{ExecId: exec.ExecId}, keepaliveOf(req.Header()), func(e *process.ProcessEvent) error {
		return stream.Send(&process.ConnectResponse{Event: e})
	})
}

// fromHome reads a directory as the wire has it: "~" is the user's home, where relative ones begin, too.
func fromHome(dir string) (string, error) {
	first, rest, _ := strings.Cut(dir, "/")
	switch {
	case first == "~":
		return rest, nil
	case strings.HasPrefix(first, "~"):
		return "", invalid("cwd %q begins in another user's home: name the path from / on", dir)
	}
	return dir, nil
}

// attached is one command as a client of the wire follows it.
type attached struct {
	b        *box
	send     func(*process.ProcessEvent) error
	started  bool
	terminal bool
	early    []*process.ProcessEvent // output from before the start was told
}

// carry sends a command's events until its end.
func (h *Handler) carry(ctx context.Context, b *box, start *agboxv1.AttachExecStart, interval time.Duration, send func(*process.ProcessEvent) error) error {
	gone, leave := h.follow(b)
	defer leave()
	under, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := b.client.AttachExec(under)
	if err != nil {
		return rpcError(err)
	}
	if err := stream.Send(&agboxv1.AttachExecRequest{Message: &agboxv1.AttachExecRequest_Start{Start: start}}); err != nil && err != io.EOF {
		return rpcError(err)
	}
	type next struct {
		message *agboxv1.AttachExecResponse
		err     error
	}
	messages := make(chan next)
	received := make(chan struct{})
	go func() { // ends with under
		defer close(received)
		for {
			message, err := stream.Recv()
			select {
			case messages <- next{message, err}:
			case <-under.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	defer func() { cancel(); <-received }()
	a := &attached{b: b, send: send}
	quiet := time.NewTimer(interval)
	defer quiet.Stop()
	for {
		select {
		case m := <-messages:
			if m.err != nil {
				return h.broken(ctx, b, m.err)
			}
			quiet.Reset(interval)
			if over, err := a.handle(ctx, m.message); over || err != nil {
				return err
			}
		case <-quiet.C:
			quiet.Reset(interval)
			if a.started {
				if err := send(&process.ProcessEvent{Event: &process.ProcessEvent_Keepalive{Keepalive: &process.ProcessEvent_KeepAlive{}}}); err != nil {
					return err
				}
			}
		case <-gone:
			panic(http.ErrAbortHandler)
		case <-ctx.Done():
			return rpcError(ctx.Err())
		}
	}
}

// broken ends a stream whose command cannot be followed any more: with the connection, so that the client asks whether the sandbox runs.
func (h *Handler) broken(ctx context.Context, b *box, err error) error {
	if ctx.Err() != nil {
		return rpcError(ctx.Err())
	}
	if r := refusalOf(err); r.reason == "EXEC_NOT_FOUND" {
		return rpcError(err)
	}
	h.config.Log.Warn("a command cannot be followed any more", "sandbox_id", b.id, "error", err)
	panic(http.ErrAbortHandler)
}

func (a *attached) handle(ctx context.Context, message *agboxv1.AttachExecResponse) (over bool, err error) {
	switch m := message.Message.(type) {
	case *agboxv1.AttachExecResponse_Attached:
		a.terminal = m.Attached.Tty
		if m.Attached.Pid != 0 {
			return false, a.start(m.Attached.Pid)
		}
	case *agboxv1.AttachExecResponse_Started:
		return false, a.start(m.Started.Pid)
	case *agboxv1.AttachExecResponse_Stdout:
		data := &process.ProcessEvent_DataEvent{Output: &process.ProcessEvent_DataEvent_Stdout{Stdout: m.Stdout.Data}}
		if a.terminal {
			data.Output = &process.ProcessEvent_DataEvent_Pty{Pty: m.Stdout.Data}
		}
		return false, a.data(len(m.Stdout.Data), data)
	case *agboxv1.AttachExecResponse_Stderr:
		return false, a.data(len(m.Stderr.Data), &process.ProcessEvent_DataEvent{Output: &process.ProcessEvent_DataEvent_Stderr{Stderr: m.Stderr.Data}})
	case *agboxv1.AttachExecResponse_Ended:
		if a.torn(ctx, m.Ended) {
			panic(http.ErrAbortHandler)
		}
		return true, a.end(m.Ended)
	}
	return false, nil
}

// torn reports whether a command ended because its sandbox did, which is no end that a client is told.
func (a *attached) torn(ctx context.Context, exec *agboxv1.ExecStatus) bool {
	if exec.State != agboxv1.ExecState_EXEC_STATE_CANCELLED && exec.Signal == 0 {
		return false
	}
	resp, err := a.b.client.GetSandbox(ctx, &agboxv1.GetSandboxRequest{SandboxId: a.b.id})
	return err == nil && !usable(resp.GetSandbox().GetState()) || refusalOf(err).reason == "SANDBOX_NOT_FOUND"
}

// start is told first, and once.
func (a *attached) start(pid uint32) error {
	if a.started {
		return nil
	}
	a.started = true
	if err := a.send(&process.ProcessEvent{Event: &process.ProcessEvent_Start{Start: &process.ProcessEvent_StartEvent{Pid: pid}}}); err != nil {
		return err
	}
	for _, event := range a.early {
		if err := a.send(event); err != nil {
			return err
		}
	}
	a.early = nil
	return nil
}

// maxEarly bounds the output that waits for the start to be told, in pieces; a command that writes more has started.
const maxEarly = 64

func (a *attached) data(size int, data *process.ProcessEvent_DataEvent) error {
	if size == 0 {
		return nil
	}
	event := &process.ProcessEvent{Event: &process.ProcessEvent_Data{Data: data}}
	if a.started {
		return a.send(event)
	}
	if a.early = append(a.early, event); len(a.early) == maxEarly {
		return a.start(0)
	}
	return nil
}

// end tells how a command ended, or why it was not run.
func (a *attached) end(exec *agboxv1.ExecStatus) error {
	if exec.State == agboxv1.ExecState_EXEC_STATE_FAILED && !a.started {
		switch exec.ErrorCode {
		case codeNotFound, codeNotExecutable:
			return a.missing(exec)
		case codeUserUnknown:
			return connect.NewError(connect.CodeUnauthenticated, fmt.Errorf("invalid username: %s", exec.Error))
		case codeLost:
			panic(http.ErrAbortHandler)
		case "EXEC_CWD_INVALID":
			return invalid("cwd '%s' does not exist: %s", exec.Cwd, exec.Error)
		}
		return invalid("the command was not started: %s", exec.Error)
	}
	if exec.State == agboxv1.ExecState_EXEC_STATE_FAILED {
		panic(http.ErrAbortHandler) // nobody knows how it ended
	}
	if err := a.start(exec.Pid); err != nil {
		return err
	}
	if exec.GetResources().GetTimedOut() {
		return connect.NewError(connect.CodeDeadlineExceeded, errors.New("the command ran longer than it was given"))
	}
	return a.send(ended(exec))
}

// missing is how a shell tells of a program that is not there, which is what starts commands in E2B.
func (a *attached) missing(exec *agboxv1.ExecStatus) error {
	if err := a.start(exec.Pid); err != nil {
		return err
	}
	text := &process.ProcessEvent_DataEvent{Output: &process.ProcessEvent_DataEvent_Stderr{Stderr: []byte(exec.Error + "\n")}}
	if a.terminal {
		text.Output = &process.ProcessEvent_DataEvent_Pty{Pty: []byte(exec.Error + "\r\n")}
	}
	if err := a.data(1, text); err != nil {
		return err
	}
	code := int32(127)
	if exec.ErrorCode == codeNotExecutable {
		code = 126
	}
	return a.send(ended(&agboxv1.ExecStatus{ExitCode: code}))
}

// ended is the end as Go tells of a process, whose words clients know.
func ended(exec *agboxv1.ExecStatus) *process.ProcessEvent {
	end := &process.ProcessEvent_EndEvent{ExitCode: exec.ExitCode, Exited: true, Status: fmt.Sprintf("exit status %d", exec.ExitCode)}
	signal := syscall.Signal(exec.Signal)
	if signal == 0 && exec.State == agboxv1.ExecState_EXEC_STATE_CANCELLED {
		signal = syscall.SIGTERM
	}
	if signal != 0 {
		end.ExitCode, end.Exited, end.Status = -1, false, "signal: "+signal.String()
	}
	if end.ExitCode != 0 {
		end.Error = &end.Status
	}
	return &process.ProcessEvent{Event: &process.ProcessEvent_End{End: end}}
}
