package sdk_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
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

func TestRunRefusesWhatIsNoFile(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, _, _ := start(t)
	box := ready(t, c)
	for name, trick := range map[string]string{
		"link": "ln -sf " + secret + " $0",
		"fifo": "rm $0; mkfifo $0",
		"gone": "rm $0",
	} {
		t.Run(name, func(t *testing.T) {
			id := "exec-" + name
			r, err := c.Run(t.Context(), box.ID, []string{"sh", "-c", trick, id + ".stdout.log"}, sdk.WithExecID(id))
			if !errors.Is(err, sdk.ErrLogFile) || len(r.Stdout) != 0 || r.ExitCode != 0 {
				t.Errorf("got %q, %d, %v", r.Stdout, r.ExitCode, err)
			}
		})
	}
}

func TestCreateExec(t *testing.T) {
	c, _, _ := start(t)
	box := ready(t, c)
	exec, err := c.CreateExec(t.Context(), box.ID, sh("exec sleep 300"), sdk.WithExecID("exec-a"))
	if err != nil || exec.State != sdk.ExecRunning || exec.StdoutPath == "" {
		t.Fatalf("got %+v, %v", exec, err)
	}
	for sandbox, want := range map[string]int{"": 1, box.ID: 1, "other": 0} {
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

// listener is a daemon that keeps what it was asked to run.
type listener struct {
	agboxv1.UnimplementedSandboxServiceServer
	asked chan *agboxv1.CreateExecRequest
}

func (l listener) CreateExec(_ context.Context, req *agboxv1.CreateExecRequest) (*agboxv1.CreateExecResponse, error) {
	l.asked <- req
	return &agboxv1.CreateExecResponse{ExecId: req.GetExecId()}, nil
}

func TestExecTravelsWhole(t *testing.T) {
	dir, err := os.MkdirTemp("", "agbox") // t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	server, l := grpc.NewServer(), listener{asked: make(chan *agboxv1.CreateExecRequest, 1)}
	agboxv1.RegisterSandboxServiceServer(server, l)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(socket) })
	t.Cleanup(func() { server.Stop(); serving.Wait() })
	c, err := sdk.New(sdk.WithSocket(socket.Addr().String()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if _, err := c.CreateExec(t.Context(), "box1", sh("id"), sdk.WithExecID("exec-a"), sdk.WithCwd("/srv"),
		sdk.WithEnv(map[string]string{"K": "v"}), sdk.WithUser("www-data:adm")); err != nil {
		t.Fatal(err)
	}
	want := &agboxv1.CreateExecRequest{SandboxId: "box1", Command: sh("id"), ExecId: "exec-a", Cwd: "/srv",
		EnvOverrides: map[string]string{"K": "v"}, User: "www-data:adm"}
	if got := <-l.asked; !proto.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

func TestStopEndsAWaitForAnExec(t *testing.T) {
	c, d, _ := start(t)
	box := ready(t, c)
	stopped := make(chan error, 1)
	d.OnSubscribe(func(id string) {
		d.OnSubscribe(nil)
		go func() { stopped <- c.Stop(t.Context(), id) }()
	})
	_, err := c.Run(t.Context(), box.ID, sh("exec sleep 300"))
	if e := (*sdk.ExecFailedError)(nil); !errors.As(err, &e) || e.State != sdk.ExecCancelled {
		t.Errorf("got %v", err)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}
