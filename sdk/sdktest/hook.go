package sdktest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/agbox-dev/agbox/actors/actorstest"
	"github.com/agbox-dev/agbox/actors/runtime"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// CallHook is told of a call, such as "CreateSandbox", with its request, or the first one of a stream, before the daemon
// is. An error refuses it; see Refusal.
type CallHook func(rpc string, request proto.Message) error

// StepHook is told of a step, such as "create box-1", "stop box-1" or "prepare db in box-1", before it is done. An error
// fails it. It may block until ctx ends, for instance since the sandbox is deleted.
type StepHook func(ctx context.Context, step string) error

// CommandHook plays a command and returns its exit code. ctx ends when the command is cancelled, its time is over, or its
// sandbox ends; the daemon knows how it ended then, but for the exit code.
type CommandHook func(ctx context.Context, command *Command) (exitCode int)

// Command is an exec, or a sandbox's own command, with its request, its input and where its output goes.
type Command = actorstest.Command

// OnCall sets what is told of all further calls, nil for nobody.
func (d *Daemon) OnCall(f CallHook) { set(&d.call, f, f == nil) }

// OnStep sets what is told of all further steps, nil for nobody.
func (d *Daemon) OnStep(f StepHook) { set(&d.step, f, f == nil) }

// OnCommand sets what plays all further commands; with nil they are processes of this machine.
func (d *Daemon) OnCommand(f CommandHook) { set(&d.command, f, f == nil) }

func set[F any](to *atomic.Pointer[F], f F, none bool) {
	if none {
		to.Store(nil)
		return
	}
	to.Store(&f)
}

func (d *Daemon) before(ctx context.Context, step string) error {
	if hook := d.step.Load(); hook != nil {
		if err := (*hook)(ctx, step); err != nil {
			return err
		}
	}
	id, creates := strings.CutPrefix(step, "create ")
	switch image := d.runtime.Spec(id).GetImage(); {
	case creates && image == ImageBroken:
		return errors.New(`image "broken" does not start: choose another`)
	case creates && image == ImageHold:
		select {
		case <-d.released:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (d *Daemon) play(ctx context.Context, command *Command) runtime.ExecResult {
	if hook := d.command.Load(); hook != nil {
		return runtime.ExecResult{State: agboxv1.ExecState_EXEC_STATE_FINISHED, ExitCode: int32((*hook)(ctx, command))}
	}
	return d.runtime.Process(ctx, command)
}

func (d *Daemon) called(method string, request any) error {
	if hook := d.call.Load(); hook != nil {
		return (*hook)(path.Base(method), request.(proto.Message))
	}
	return nil
}

func (d *Daemon) intercept() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(func(ctx context.Context, request any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			if err := d.called(info.FullMethod, request); err != nil {
				return nil, err
			}
			return next(ctx, request)
		}),
		grpc.ChainStreamInterceptor(func(service any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			return next(service, &calling{ServerStream: stream, daemon: d, method: info.FullMethod})
		}),
	}
}

// calling is a stream whose first request is told of.
type calling struct {
	grpc.ServerStream
	daemon *Daemon
	method string
	told   bool
}

func (c *calling) RecvMsg(request any) error {
	err := c.ServerStream.RecvMsg(request)
	if err == nil && !c.told {
		c.told = true
		err = c.daemon.called(c.method, request)
	}
	return err
}

// Refusal is an error as the daemon would send it; metadata comes in pairs.
func Refusal(code codes.Code, reason, message string, metadata ...string) error {
	info := &errdetails.ErrorInfo{Domain: "agents-sandbox", Reason: reason, Metadata: map[string]string{}}
	for i := 0; i+1 < len(metadata); i += 2 {
		info.Metadata[metadata[i]] = metadata[i+1]
	}
	st, err := status.New(code, message).WithDetails(info)
	if err != nil {
		panic(fmt.Sprintf("sdktest: no refusal: %v", err))
	}
	return st.Err()
}

// Stub puts any implementation of the service on a socket until the test ends, for what no daemon can be brought to say. A
// program finds it where XDG_RUNTIME_DIR is dir.
func Stub(t testing.TB, service agboxv1.SandboxServiceServer) (dir, socket string) {
	t.Helper()
	dir = shortDir(t)
	socket = filepath.Join(dir, "agbox", "agboxd.sock")
	err := os.Mkdir(filepath.Dir(socket), 0o700)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	stub, served := grpc.NewServer(), make(chan struct{})
	agboxv1.RegisterSandboxServiceServer(stub, service)
	go func() {
		defer close(served)
		_ = stub.Serve(listener)
	}()
	t.Cleanup(func() { stub.Stop(); <-served })
	return dir, socket
}
