package server_test

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/agbox-dev/agbox/actors/actorstest"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/servertest"
)

type dialStream = grpc.BidiStreamingClient[agboxv1.DialPortRequest, agboxv1.DialPortResponse]

// echo answers each connection with what it says, in its order and once it has said all.
func echo(t *testing.T) (port uint32) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				io.Copy(conn, conn)
			}()
		}
	}()
	return uint32(l.Addr().(*net.TCPAddr).Port)
}

func dial(t *testing.T, d *servertest.Daemon, id string, port uint32) (dialStream, error) {
	t.Helper()
	stream, err := d.DialPort(t.Context())
	if err == nil {
		err = stream.Send(&agboxv1.DialPortRequest{SandboxId: id, Port: port})
	}
	if err == nil {
		_, err = stream.Recv()
	}
	return stream, err
}

func say(t *testing.T, stream dialStream, word string) {
	t.Helper()
	if err := stream.Send(&agboxv1.DialPortRequest{Data: []byte(word)}); err != nil {
		t.Fatal(err)
	}
	var heard string
	for len(heard) < len(word) {
		m, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		heard += string(m.Data)
	}
	if heard != word {
		t.Errorf("it answered %q, want %q", heard, word)
	}
}

// TestDialPort: bytes go both ways, each end is told by itself, and what cannot be is refused.
func TestDialPort(t *testing.T) {
	t.Parallel()
	d := servertest.Instant(t, actorstest.New())
	id := d.Create(&agboxv1.CreateSpec{})
	d.Await(id, agboxv1.EventType_SANDBOX_READY)
	stream, err := dial(t, d, id, echo(t))
	if err != nil {
		t.Fatal(err)
	}
	say(t, stream, "hello")
	if err := stream.Send(&agboxv1.DialPortRequest{End: true}); err != nil {
		t.Fatal(err)
	}
	if m, err := stream.Recv(); err != nil || !m.End {
		t.Errorf("after our end comes %v, %v", m, err)
	}
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("after both ends comes %v", err)
	}

	_, err = dial(t, d, "nobody", 80)
	servertest.Refused(t, err, codes.NotFound, "SANDBOX_NOT_FOUND", "", "there is no sandbox nobody")
	for _, port := range []uint32{0, 65536} {
		_, err = dial(t, d, id, port)
		servertest.Refused(t, err, codes.InvalidArgument, "PORT_INVALID", "port", "from 1 to 65535")
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := uint32(free.Addr().(*net.TCPAddr).Port)
	silent := make(chan net.Conn, 1)
	go func() {
		conn, err := free.Accept()
		if err == nil {
			silent <- conn
		}
	}()
	stream, err = dial(t, d, id, port)
	if err != nil {
		t.Fatal(err)
	}
	conn := (<-silent).(*net.TCPConn)
	conn.SetLinger(0) // its close is a reset
	conn.Close()
	_, err = stream.Recv()
	servertest.Refused(t, err, codes.Aborted, "PORT_RESET", "", "connect again")
	free.Close()
	_, err = dial(t, d, id, port)
	servertest.Refused(t, err, codes.FailedPrecondition, "PORT_CLOSED", "port", "nothing listens on port")
}

// TestDialPortEndsWithSandbox: a connection is kept by a pause, and broken by a stop.
func TestDialPortEndsWithSandbox(t *testing.T) {
	t.Parallel()
	d := servertest.Instant(t, actorstest.New())
	id := d.Create(&agboxv1.CreateSpec{})
	d.Await(id, agboxv1.EventType_SANDBOX_READY)
	port := echo(t)
	stream, err := dial(t, d, id, port)
	if err != nil {
		t.Fatal(err)
	}
	pause(t, d, id)
	_, err = dial(t, d, id, port)
	servertest.Refused(t, err, codes.FailedPrecondition, "SANDBOX_NOT_READY", "", "PAUSED", "its ports are reached while it is READY")
	unpause(t, d, id)
	say(t, stream, "still here")
	halt(t, d, id)
	_, err = stream.Recv()
	servertest.Refused(t, err, codes.FailedPrecondition, "SANDBOX_NOT_READY", "", "connect again once it runs")
}

// TestDialPortWakes: a sandbox that says so goes on for a connection, paused or stopped; while that lasts it is not idle.
func TestDialPortWakes(t *testing.T) {
	t.Parallel()
	d := servertest.Instant(t, actorstest.New())
	id := d.Create(&agboxv1.CreateSpec{Wake: "traffic", IdleTtl: durationpb.New(time.Hour)})
	d.Await(id, agboxv1.EventType_SANDBOX_READY)
	port := echo(t)
	for _, sleep := range []func(*testing.T, *servertest.Daemon, string){pause, halt} {
		sleep(t, d, id)
		stream, err := dial(t, d, id, port)
		if err != nil {
			t.Fatal(err)
		}
		say(t, stream, "awake")
		if got, err := d.GetSandbox(t.Context(), &agboxv1.GetSandboxRequest{SandboxId: id}); err != nil || got.Sandbox.IdleAt != nil {
			t.Errorf("while somebody is connected it is idle at %v (%v)", got.GetSandbox().GetIdleAt(), err)
		}
		stream.CloseSend()
	}
}

// change asks for it, and waits until the sandbox is in that state.
func change(t *testing.T, d *servertest.Daemon, id string, ask func() error, state agboxv1.SandboxState) {
	t.Helper()
	if err := ask(); err != nil {
		t.Fatal(err)
	}
	wait, err := d.WaitSandbox(t.Context(), &agboxv1.WaitSandboxRequest{SandboxId: id, States: []agboxv1.SandboxState{state}})
	if err != nil || !wait.Reached {
		t.Fatal(wait, err)
	}
}

func pause(t *testing.T, d *servertest.Daemon, id string) {
	t.Helper()
	change(t, d, id, func() error {
		_, err := d.PauseSandbox(t.Context(), &agboxv1.PauseSandboxRequest{SandboxId: id})
		return err
	}, agboxv1.SandboxState_SANDBOX_STATE_PAUSED)
}

func unpause(t *testing.T, d *servertest.Daemon, id string) {
	t.Helper()
	change(t, d, id, func() error {
		_, err := d.UnpauseSandbox(t.Context(), &agboxv1.UnpauseSandboxRequest{SandboxId: id})
		return err
	}, agboxv1.SandboxState_SANDBOX_STATE_READY)
}

func halt(t *testing.T, d *servertest.Daemon, id string) {
	t.Helper()
	change(t, d, id, func() error {
		_, err := d.StopSandbox(t.Context(), &agboxv1.StopSandboxRequest{SandboxId: id})
		return err
	}, agboxv1.SandboxState_SANDBOX_STATE_STOPPED)
}
