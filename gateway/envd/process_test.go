package envd_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/agbox-dev/agbox/gateway/envd"
	"github.com/agbox-dev/agbox/gateway/envd/proto/filesystem"
	"github.com/agbox-dev/agbox/gateway/envd/proto/process"
	"github.com/agbox-dev/agbox/sdk"
)

// events is a stream of a process.
type events interface {
	Receive() bool
	Err() error
	Close() error
}

// eventOf is what the stream has received.
func eventOf(s events) *process.ProcessEvent {
	switch s := s.(type) {
	case *connect.ServerStreamForClient[process.StartResponse]:
		return s.Msg().GetEvent()
	case *connect.ServerStreamForClient[process.ConnectResponse]:
		return s.Msg().GetEvent()
	}
	return nil
}

// told collects a stream to its end: "out=… err=… end", the latter as the client has it.
func told(s events) string {
	var out, errs strings.Builder
	end := ""
	for s.Receive() {
		switch e := eventOf(s).GetEvent().(type) {
		case *process.ProcessEvent_Data:
			out.Write(e.Data.GetStdout())
			out.Write(e.Data.GetPty())
			errs.Write(e.Data.GetStderr())
		case *process.ProcessEvent_End:
			end = fmt.Sprintf("%d %v %q %q", e.End.ExitCode, e.End.Exited, e.End.Status, e.End.GetError())
		}
	}
	if err := s.Err(); err != nil {
		end = connect.CodeOf(err).String()
	}
	return fmt.Sprintf("out=%q err=%q %s", out.String(), errs.String(), end)
}

func sh(script string) *process.StartRequest {
	no := false
	return &process.StartRequest{Process: &process.ProcessConfig{Cmd: "/bin/sh", Args: []string{"-c", script}}, Stdin: &no}
}

// begin starts a command and returns its pid, which comes first.
func (p *plane) begin(ctx context.Context, request *process.StartRequest) (uint32, *connect.ServerStreamForClient[process.StartResponse]) {
	p.t.Helper()
	stream, err := p.process.Start(ctx, connect.NewRequest(request))
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { stream.Close() })
	if !stream.Receive() || stream.Msg().GetEvent().GetStart() == nil {
		p.t.Fatalf("the first event is %v, %v, want the start", stream.Msg(), stream.Err())
	}
	return stream.Msg().GetEvent().GetStart().GetPid(), stream
}

// TestCommands: what a command writes arrives, and how it ends is told in the words that clients know.
func TestCommands(t *testing.T) {
	t.Parallel()
	p := start(t)
	for script, want := range map[string]string{
		`printf 'a b'; printf c >&2`: `out="a b" err="c" 0 true "exit status 0" ""`,
		`exit 3`:                     `out="" err="" 3 true "exit status 3" "exit status 3"`,
		`kill -KILL $$`:              `out="" err="" -1 false "signal: killed" "signal: killed"`,
		`cat`:                        `out="" err="" 0 true "exit status 0" ""`, // its input is empty
	} {
		pid, stream := p.begin(t.Context(), sh(script))
		if got := told(stream); got != want || pid == 0 {
			t.Errorf("%s: pid %d, %s, want %s", script, pid, got, want)
		}
	}
	env := sh(`printf "$A $B"`)
	env.Process.Envs = map[string]string{"A": "1", "B": "two words"}
	if _, stream := p.begin(t.Context(), env); told(stream) != `out="1 two words" err="" 0 true "exit status 0" ""` {
		t.Error("the request's environment is not the command's")
	}
	missing := &process.StartRequest{Process: &process.ProcessConfig{Cmd: "no-such-program"}}
	if _, stream := p.begin(t.Context(), missing); !strings.HasSuffix(told(stream), `127 true "exit status 127" "exit status 127"`) {
		t.Error("a program that is not there does not end as a shell has it")
	}
	refused := func(request *process.StartRequest, user string) error {
		r := connect.NewRequest(request)
		if user != "" {
			r = as(request, user)
		}
		stream, err := p.process.Start(t.Context(), r)
		if err != nil {
			return err
		}
		defer stream.Close()
		for stream.Receive() {
			t.Errorf("%v: told of %v", request, stream.Msg())
		}
		return stream.Err()
	}
	cwd, other := "/no/such/place", "~other/x"
	wantCode(t, "an unknown user", refused(sh("true"), "stranger"), connect.CodeUnauthenticated)
	wantCode(t, "no program", refused(&process.StartRequest{}, ""), connect.CodeInvalidArgument)
	wantCode(t, "a directory that is not there", refused(&process.StartRequest{Process: &process.ProcessConfig{Cmd: "true", Cwd: &cwd}}, ""), connect.CodeInvalidArgument)
	wantCode(t, "another's home", refused(&process.StartRequest{Process: &process.ProcessConfig{Cmd: "true", Cwd: &other}}, ""), connect.CodeInvalidArgument)
}

func pid(n uint32) *process.ProcessSelector {
	return &process.ProcessSelector{Selector: &process.ProcessSelector_Pid{Pid: n}}
}

func typed(text string) *process.ProcessInput {
	return &process.ProcessInput{Input: &process.ProcessInput_Stdin{Stdin: []byte(text)}}
}

// TestInput: a command that waits for input is listed, gets what is sent to it, is connected to by its pid and its tag, and ends when its input
// does; a client that leaves ends nothing.
func TestInput(t *testing.T) {
	t.Parallel()
	p := start(t)
	ctx, leave := context.WithCancel(t.Context())
	tag := "mine"
	request := sh(`while read line; do echo "got $line"; done; echo over`)
	request.Stdin, request.Tag = nil, &tag
	n, first := p.begin(ctx, request)
	list, err := p.process.List(t.Context(), connect.NewRequest(&process.ListRequest{}))
	if err != nil || len(list.Msg.Processes) != 1 || list.Msg.Processes[0].Pid != n || list.Msg.Processes[0].Config.Cmd != "/bin/sh" || list.Msg.Processes[0].GetTag() != tag {
		t.Errorf("list: %v, %v", list, err)
	}
	send := func(s *process.ProcessSelector, in *process.ProcessInput) error {
		_, err := p.process.SendInput(t.Context(), connect.NewRequest(&process.SendInputRequest{Process: s, Input: in}))
		return err
	}
	if err := send(pid(n), typed("one\n")); err != nil {
		t.Fatal(err)
	}
	for first.Receive() && string(first.Msg().GetEvent().GetData().GetStdout()) != "got one\n" {
	}
	leave()
	second, err := p.process.Connect(t.Context(), connect.NewRequest(&process.ConnectRequest{Process: &process.ProcessSelector{Selector: &process.ProcessSelector_Tag{Tag: tag}}}))
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	if !second.Receive() || second.Msg().GetEvent().GetStart().GetPid() != n {
		t.Errorf("connected to %v, %v, want pid %d", second.Msg(), second.Err(), n)
	}
	stream := p.process.StreamInput(t.Context())
	for _, m := range []*process.StreamInputRequest{
		{Event: &process.StreamInputRequest_Start{Start: &process.StreamInputRequest_StartEvent{Process: pid(n)}}},
		{Event: &process.StreamInputRequest_Keepalive{Keepalive: &process.StreamInputRequest_KeepAlive{}}},
		{Event: &process.StreamInputRequest_Data{Data: &process.StreamInputRequest_DataEvent{Input: typed("two\n")}}},
	} {
		if err := stream.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := stream.CloseAndReceive(); err != nil {
		t.Error(err)
	}
	wantCode(t, "pty input for a pipe", send(pid(n), &process.ProcessInput{Input: &process.ProcessInput_Pty{Pty: []byte("x")}}), connect.CodeInternal)
	for range 2 { // the second does nothing more
		if _, err := p.process.CloseStdin(t.Context(), connect.NewRequest(&process.CloseStdinRequest{Process: pid(n)})); err != nil && connect.CodeOf(err) != connect.CodeNotFound {
			t.Error(err)
		}
	}
	if got := told(second); got != `out="got two\nover\n" err="" 0 true "exit status 0" ""` {
		t.Error(got)
	}
	wantCode(t, "input for what has ended", send(pid(n), typed("x")), connect.CodeNotFound)
	third, err := p.process.Connect(t.Context(), connect.NewRequest(&process.ConnectRequest{Process: pid(n)}))
	if err != nil {
		t.Fatal(err)
	}
	defer third.Close()
	if got := told(third); got != `out="" err="" 0 true "exit status 0" ""` {
		t.Errorf("of a command that has just ended: %s", got)
	}
	wantCode(t, "no selector", send(nil, typed("x")), connect.CodeUnimplemented)
}

// TestSignals: a command is killed, by its client, its deadline, or with its sandbox; then the connection breaks.
func TestSignals(t *testing.T) {
	t.Parallel()
	p := start(t)
	signal := func(n uint32, s process.Signal) error {
		_, err := p.process.SendSignal(t.Context(), connect.NewRequest(&process.SendSignalRequest{Process: pid(n), Signal: s}))
		return err
	}
	n, stream := p.begin(t.Context(), sh("exec sleep 1000"))
	if err := signal(n, process.Signal_SIGNAL_SIGKILL); err != nil {
		t.Error(err)
	}
	if got := told(stream); got != `out="" err="" -1 false "signal: killed" "signal: killed"` {
		t.Error(got)
	}
	wantCode(t, "a second time", signal(n, process.Signal_SIGNAL_SIGKILL), connect.CodeNotFound)
	wantCode(t, "another signal", signal(n, process.Signal_SIGNAL_UNSPECIFIED), connect.CodeUnimplemented)
	size := &process.PTY{Size: &process.PTY_Size{Cols: 80, Rows: 24}}
	n, stream = p.begin(t.Context(), sh("exec sleep 1000"))
	_, err := p.process.Update(t.Context(), connect.NewRequest(&process.UpdateRequest{Process: pid(n), Pty: size}))
	wantCode(t, "a size for what has no terminal", err, connect.CodeInternal)
	if err := p.client.Delete(t.Context(), p.id, sdk.WithWait(false)); err != nil {
		t.Fatal(err)
	}
	if stream.Receive() {
		t.Errorf("of a sandbox that is killed: %v", stream.Msg())
	}
	if err := stream.Err(); err == nil || !strings.Contains(err.Error(), "EOF") {
		t.Errorf("the stream of a sandbox that is killed ends with %v, want a broken connection", err)
	}
	if status, _, body := p.do("GET", "/health", nil, nil); status != 502 || !strings.Contains(body, `"code":502`) || !strings.Contains(body, `"sandboxId":"`+p.id) {
		t.Errorf("health: %d %s", status, body)
	}
}

// TestTerminal: a command with a terminal is told its size, and its output is the terminal's.
func TestTerminal(t *testing.T) {
	t.Parallel()
	p := start(t)
	size := &process.PTY{Size: &process.PTY_Size{Cols: 80, Rows: 24}}
	request := sh("read line; echo $line")
	request.Stdin, request.Pty = nil, size
	n, stream := p.begin(t.Context(), request)
	if _, err := p.process.Update(t.Context(), connect.NewRequest(&process.UpdateRequest{Process: pid(n), Pty: size})); err != nil {
		t.Error(err)
	}
	_, err := p.process.CloseStdin(t.Context(), connect.NewRequest(&process.CloseStdinRequest{Process: pid(n)}))
	wantCode(t, "the end of a terminal's input", err, connect.CodeUnknown)
	_, err = p.process.SendInput(t.Context(), connect.NewRequest(&process.SendInputRequest{Process: pid(n), Input: typed("x")}))
	wantCode(t, "stdin for a terminal", err, connect.CodeInternal)
	keys := &process.ProcessInput{Input: &process.ProcessInput_Pty{Pty: []byte("typed\n")}}
	if _, err := p.process.SendInput(t.Context(), connect.NewRequest(&process.SendInputRequest{Process: pid(n), Input: keys})); err != nil {
		t.Error(err)
	}
	if got := told(stream); got != `out="typed\n" err="" 0 true "exit status 0" ""` {
		t.Error(got)
	}
}

// TestStreamsAreBounded: a sandbox with as many streams as may be gets no more, and no command that nobody follows; then it does again.
func TestStreamsAreBounded(t *testing.T) {
	t.Parallel()
	p := start(t)
	release := envd.Fill(p.plane, p.id)
	stream, err := p.process.Start(t.Context(), connect.NewRequest(sh("true")))
	if err == nil {
		for stream.Receive() {
			t.Errorf("told of %v", stream.Msg())
		}
		err = stream.Err()
		stream.Close()
	}
	wantCode(t, "a command too many", err, connect.CodeResourceExhausted)
	_, err = p.files.CreateWatcher(t.Context(), connect.NewRequest(&filesystem.CreateWatcherRequest{Path: "/"}))
	wantCode(t, "a watcher too many", err, connect.CodeResourceExhausted)
	if status, _, body := p.do("GET", "/files?path=/etc/hostname", nil, nil); status != http.StatusTooManyRequests {
		t.Errorf("a file too many: %d %s", status, body)
	}
	release()
	if _, stream := p.begin(t.Context(), sh("exit 3")); !strings.Contains(told(stream), " 3 ") {
		t.Error("a command does not run when there is room again")
	}
}
