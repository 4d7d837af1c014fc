package server_test

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"

	"github.com/agbox-dev/agbox/actors/actorstest"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk/raw"
	"github.com/agbox-dev/agbox/test/servertest"
)

// TestSubscribe: whatever the anchor, and whatever happens meanwhile, there is no gap, no duplicate, and replay
// marks exactly what was there before.
func TestSubscribe(t *testing.T) {
	t.Parallel()
	d := servertest.Instant(t, actorstest.New())
	ctx := t.Context()
	id := d.Create(&agboxv1.CreateSpec{})
	const before, during = 20, 40
	for range before {
		d.Exec(id, "true")
	}
	newest := uint64(3 + 2*before)
	var subscribers sync.WaitGroup
	for from := uint64(0); from <= newest; from += 7 {
		stream, err := d.SubscribeSandboxEvents(ctx, &agboxv1.SubscribeSandboxEventsRequest{SandboxId: id, FromSequence: from})
		if err != nil {
			t.Fatal(err)
		}
		first, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		subscribers.Go(func() {
			defer stream.Close()
			last, event := from, first
			for {
				if event.Sequence != last+1 || event.Snapshot || event.Replay != (event.Sequence <= newest) || event.SandboxState != agboxv1.SandboxState_SANDBOX_STATE_READY && event.Sequence > 2 {
					t.Errorf("after %d from %d comes %v", last, from, event)
					return
				}
				if last = event.Sequence; last == newest+2*during {
					return
				}
				if event, err = stream.Recv(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	var execs sync.WaitGroup
	for range during {
		execs.Go(func() {
			if _, err := d.CreateExec(ctx, &agboxv1.CreateExecRequest{SandboxId: id, Command: []string{"true"}}); err != nil {
				t.Error(err)
			}
		})
	}
	execs.Wait()
	subscribers.Wait()
}

func TestSnapshot(t *testing.T) {
	t.Parallel()
	fake := actorstest.New()
	fake.Run = fake.UntilCancelled
	d := servertest.Instant(t, fake)
	id := d.Create(&agboxv1.CreateSpec{})
	exec, err := d.CreateExec(t.Context(), &agboxv1.CreateExecRequest{SandboxId: id, Command: []string{"sleep", "100"}})
	if err != nil {
		t.Fatal(err)
	}
	stream, err := d.SubscribeSandboxEvents(t.Context(), &agboxv1.SubscribeSandboxEventsRequest{SandboxId: id, FromSequence: 3, IncludeCurrentSnapshot: true})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	for i, want := range []struct {
		kind     agboxv1.EventType
		snapshot bool
		exec     string
	}{
		{agboxv1.EventType_SANDBOX_READY, true, ""},
		{agboxv1.EventType_EXEC_STARTED, true, exec.ExecId},
		{agboxv1.EventType_EXEC_STARTED, false, exec.ExecId},
	} {
		event, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if event.EventType != want.kind || event.Snapshot != want.snapshot || event.GetExec().GetExecId() != want.exec || event.Sequence != 4 {
			t.Errorf("event %d is %v", i, event)
		}
	}
	list, err := d.ListActiveExecs(t.Context(), &agboxv1.ListActiveExecsRequest{SandboxId: &id})
	if err != nil || len(list.Execs) != 1 || list.Execs[0].ExecId != exec.ExecId || list.Execs[0].LastEventSequence != 4 {
		t.Errorf("active execs are %v, %v", list, err)
	}
}

// TestShutdownWithSubscribers: the daemon ends although they stay, and tells them to come back.
func TestShutdownWithSubscribers(t *testing.T) {
	t.Parallel()
	d := servertest.Instant(t, actorstest.New())
	id := d.Create(&agboxv1.CreateSpec{})
	var streams []*raw.Stream
	for range 50 {
		stream, err := d.SubscribeSandboxEvents(t.Context(), &agboxv1.SubscribeSandboxEventsRequest{SandboxId: id, FromSequence: 2})
		if err != nil {
			t.Fatal(err)
		}
		defer stream.Close()
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
		streams = append(streams, stream)
	}
	d.Stop()
	for _, stream := range streams {
		_, err := stream.Recv()
		servertest.Refused(t, err, codes.Unavailable, "DAEMON_SHUTTING_DOWN", "")
	}
	d.Restart()
}

func TestHealthReflectionAndModes(t *testing.T) {
	t.Parallel()
	d := servertest.Instant(t, actorstest.New())
	for path, want := range map[string]os.FileMode{d.Socket(): 0o600 | os.ModeSocket, filepath.Dir(d.Socket()): 0o700 | os.ModeDir} {
		if info, err := os.Stat(path); err != nil || info.Mode() != want {
			t.Errorf("%s has mode %v, %v; want %v", path, info.Mode(), err, want)
		}
	}
	conn, err := grpc.NewClient("unix://"+d.Socket(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	health, err := healthv1.NewHealthClient(conn).Check(t.Context(), &healthv1.HealthCheckRequest{Service: "agbox.v1.SandboxService"})
	if err != nil || health.Status != healthv1.HealthCheckResponse_SERVING {
		t.Errorf("health is %v, %v", health, err)
	}
	stream, err := reflectionv1.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	request := &reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: "agbox.v1.SandboxService"}}
	if err := stream.Send(request); err != nil {
		t.Fatal(err)
	}
	if response, err := stream.Recv(); err != nil || response.GetFileDescriptorResponse() == nil {
		t.Errorf("reflection says %v, %v", response, err)
	}
}
