package raw_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk/raw"
	"github.com/agbox-dev/agbox/sdk/sdktest"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/asynkron/protoactor-go/actor.NewDeadLetter.NewThrottle.func4.1"))
}

func dial(t *testing.T, socket string) *raw.Client {
	t.Helper()
	c, err := raw.Dial(raw.WithSocket(socket))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestEveryReasonIsTyped(t *testing.T) {
	tests := []struct {
		reason string
		code   codes.Code
		want   error
	}{
		{"SANDBOX_ID_ALREADY_EXISTS", codes.AlreadyExists, raw.ErrSandboxIDAlreadyExists},
		{"EXEC_ID_ALREADY_EXISTS", codes.AlreadyExists, raw.ErrExecIDAlreadyExists},
		{"SANDBOX_CONFLICT", codes.AlreadyExists, raw.ErrSandboxConflict},
		{"SANDBOX_NOT_FOUND", codes.NotFound, raw.ErrSandboxNotFound},
		{"EXEC_NOT_FOUND", codes.NotFound, raw.ErrExecNotFound},
		{"SANDBOX_NOT_READY", codes.FailedPrecondition, raw.ErrSandboxNotReady},
		{"SANDBOX_INVALID_STATE", codes.FailedPrecondition, raw.ErrSandboxInvalidState},
		{"EXEC_ALREADY_TERMINAL", codes.FailedPrecondition, raw.ErrExecAlreadyTerminal},
		{"EXEC_NOT_RUNNING", codes.FailedPrecondition, raw.ErrExecNotRunning},
		{"SANDBOX_EVENT_SEQUENCE_EXPIRED", codes.OutOfRange, raw.ErrSandboxEventSequenceExpired},
		{"MOUNT_SOURCE_RELATIVE", codes.InvalidArgument, raw.ErrInvalidArgument},
		{"SOMETHING_NEW", codes.ResourceExhausted, nil},
	}
	d, socket := sdktest.Start(t)
	c := dial(t, socket)
	for _, tt := range tests {
		t.Run(tt.reason, func(t *testing.T) {
			d.OnCall(func(string, proto.Message) error {
				return sdktest.Refusal(tt.code, tt.reason, "what to do", "field", "f[2]")
			})
			_, err := c.GetSandbox(t.Context(), &agboxv1.GetSandboxRequest{SandboxId: "x"})
			var e *raw.Error
			if !errors.As(err, &e) {
				t.Fatalf("%T is not *raw.Error", err)
			}
			if e.Code != tt.code || e.Reason != tt.reason || e.Message != "what to do" || e.Metadata["field"] != "f[2]" {
				t.Fatalf("got %+v", e)
			}
			if status.Code(err) != tt.code {
				t.Errorf("status.Code is %v", status.Code(err))
			}
			for _, other := range tests {
				if other.want != nil && errors.Is(err, other.want) != (other.want == tt.want) {
					t.Errorf("errors.Is(%v, %v) is %v", err, other.want, errors.Is(err, other.want))
				}
			}
		})
	}
}

func TestNoDaemon(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	_, err := dial(t, socket).Ping(t.Context(), &agboxv1.PingRequest{})
	if !errors.Is(err, raw.ErrUnavailable) {
		t.Fatalf("got %v", err)
	}
	for _, want := range []string{socket, "start agboxd", "not running"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
}

func TestContextErrors(t *testing.T) {
	_, socket := sdktest.Start(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := dial(t, socket).Ping(ctx, &agboxv1.PingRequest{}); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
}

func TestDialNeedsASocket(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", "/"+strings.Repeat("d", 100))
	if _, err := raw.Dial(); !errors.Is(err, raw.ErrSocketPath) {
		t.Fatalf("got %v", err)
	}
}
