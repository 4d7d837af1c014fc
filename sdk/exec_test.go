package sdk_test

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/protobuf/proto"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk"
	"github.com/agbox-dev/agbox/sdk/sdktest"
)

func sh(script string) []string { return []string{"sh", "-c", script} }

func TestRun(t *testing.T) {
	c, _, _ := start(t)
	box := ready(t, c)
	tests := []struct {
		name           string
		command        []string
		opts           []sdk.ExecOption
		exit, signal   int
		stdout, stderr string
	}{
		{"output", sh("printf out; printf err >&2"), nil, 0, 0, "out", "err"},
		{"exit code", sh("exit 3"), nil, 3, 0, "", ""},
		{"signal", sh("kill -9 $$"), nil, 137, 9, "", ""},
		{"env and cwd", sh("printf %s $PWD$K"), []sdk.ExecOption{sdk.WithCwd("/"), sdk.WithEnv(map[string]string{"K": "v"})}, 0, 0, "/v", ""},
		{"at the limit", sh("printf 12345"), []sdk.ExecOption{sdk.WithMaxOutput(5)}, 0, 0, "12345", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, err := c.Run(t.Context(), box.ID, tt.command, tt.opts...)
			if err != nil {
				t.Fatal(err)
			}
			if r.ExitCode != tt.exit || r.Signal != tt.signal || string(r.Stdout) != tt.stdout || string(r.Stderr) != tt.stderr {
				t.Errorf("got %d, %d, %q, %q", r.ExitCode, r.Signal, r.Stdout, r.Stderr)
			}
			if r.Exec.State != sdk.ExecFinished || r.Exec.StartedAt.IsZero() || r.Exec.EndedAt.IsZero() {
				t.Errorf("got %+v", r.Exec)
			}
		})
	}
}

func TestRunErrors(t *testing.T) {
	c, d, _ := start(t)
	box := ready(t, c)
	_, err := c.Run(t.Context(), box.ID, []string{"/no/such/command"})
	if e := (*sdk.ExecFailedError)(nil); !errors.As(err, &e) || e.Code != "EXEC_COMMAND_NOT_FOUND" || e.State != sdk.ExecFailed || e.Message == "" {
		t.Errorf("not found: %v", err)
	}
	r, err := c.Run(t.Context(), box.ID, sh("printf 123456"), sdk.WithMaxOutput(5))
	if !errors.Is(err, sdk.ErrOutputLimit) || string(r.Stdout) != "12345" || r.Exec.State != sdk.ExecFinished {
		t.Errorf("too much: %v, %q", err, r.Stdout)
	}
	if err := c.Stop(t.Context(), box.ID); err != nil {
		t.Fatal(err)
	}
	if _, err = c.Run(t.Context(), box.ID, sh("true")); !errors.Is(err, sdk.ErrSandboxNotReady) {
		t.Errorf("stopped: %v", err)
	}
	d.Shutdown()
	if _, err = c.Run(t.Context(), box.ID, sh("true")); !errors.Is(err, sdk.ErrUnavailable) {
		t.Errorf("no daemon: %v", err)
	}
}

func TestCreateExec(t *testing.T) {
	c, _, _ := start(t)
	box := ready(t, c)
	exec, err := c.CreateExec(t.Context(), box.ID, sh("exec sleep 300"), sdk.WithExecID("exec-a"))
	if err != nil || exec.State != sdk.ExecRunning || exec.StdoutPath == "" {
		t.Fatalf("got %+v, %v", exec, err)
	}
	for sandbox, want := range map[string]int{"": 1, box.ID: 1, ready(t, c).ID: 0} {
		if execs, err := c.ListActiveExecs(t.Context(), sandbox); err != nil || len(execs) != want {
			t.Errorf("in %q: %+v, %v", sandbox, execs, err)
		}
	}
	if err := c.CancelExec(t.Context(), exec.ID); err != nil {
		t.Fatal(err)
	}
	got, err := c.GetExec(t.Context(), exec.ID)
	if err != nil || got.State != sdk.ExecCancelled || !got.Ended() {
		t.Errorf("got %+v, %v", got, err)
	}
	if err := c.CancelExec(t.Context(), exec.ID); !errors.Is(err, sdk.ErrExecAlreadyTerminal) {
		t.Errorf("second cancel: %v", err)
	}
	exec, err = c.CreateExec(t.Context(), box.ID, sh("exit 4"), sdk.WithWait(true))
	if err != nil || exec.State != sdk.ExecFinished || exec.ExitCode != 4 {
		t.Errorf("waited: %+v, %v", exec, err)
	}
}

// listener is a daemon that keeps what it was asked for.
type listener struct {
	agboxv1.UnimplementedSandboxServiceServer
	exec    *agboxv1.CreateExecRequest
	created *agboxv1.CreateSandboxRequest
}

func (l *listener) CreateExec(_ context.Context, req *agboxv1.CreateExecRequest) (*agboxv1.CreateExecResponse, error) {
	l.exec = req
	return &agboxv1.CreateExecResponse{ExecId: req.GetExecId()}, nil
}

func (l *listener) CreateSandbox(_ context.Context, req *agboxv1.CreateSandboxRequest) (*agboxv1.CreateSandboxResponse, error) {
	l.created = req
	return &agboxv1.CreateSandboxResponse{Sandbox: &agboxv1.SandboxHandle{SandboxId: "box1", State: agboxv1.SandboxState_SANDBOX_STATE_READY,
		RequiredServices: req.GetCreateSpec().GetRequiredServices(), OptionalServices: req.GetCreateSpec().GetOptionalServices()}}, nil
}

func listen(t *testing.T) (*sdk.Client, *listener) {
	t.Helper()
	l := &listener{}
	_, socket := sdktest.Stub(t, l)
	return newClient(t, socket), l
}

func TestExecTravelsWhole(t *testing.T) {
	c, l := listen(t)
	if _, err := c.CreateExec(t.Context(), "box1", sh("id"), sdk.WithExecID("exec-a"), sdk.WithCwd("/srv"),
		sdk.WithEnv(map[string]string{"K": "v"}), sdk.WithUser("www-data:adm")); err != nil {
		t.Fatal(err)
	}
	want := &agboxv1.CreateExecRequest{SandboxId: "box1", Command: sh("id"), ExecId: "exec-a", Cwd: "/srv",
		EnvOverrides: map[string]string{"K": "v"}, User: "www-data:adm"}
	if got := l.exec; !proto.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

func TestStopEndsAWaitForAnExec(t *testing.T) {
	c, d, _ := start(t)
	box := ready(t, c)
	stopped := make(chan error, 1)
	d.OnCommand(func(ctx context.Context, _ *sdktest.Command) int {
		go func() { stopped <- c.Stop(t.Context(), box.ID) }()
		<-ctx.Done()
		return 143
	})
	_, err := c.Run(t.Context(), box.ID, sh("exec sleep 300"))
	if e := (*sdk.ExecFailedError)(nil); !errors.As(err, &e) || e.State != sdk.ExecCancelled {
		t.Errorf("got %v", err)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}
