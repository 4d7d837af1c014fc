package life_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/servertest"
)

// mixed is one of many clients of one sandbox, each on a connection of its own.
type mixed struct {
	agboxv1.SandboxServiceClient
	t       *testing.T
	ctx     context.Context
	box     string
	name    string
	rng     *rand.Rand
	counter int
}

// exec starts a command; "" when the sandbox was not READY.
func (m *mixed) exec(request *agboxv1.CreateExecRequest) string {
	m.counter++
	request.SandboxId, request.ExecId = m.box, fmt.Sprintf("%s-%d", m.name, m.counter)
	if _, err := m.CreateExec(m.ctx, request); m.allowed("CreateExec", err) != nil {
		return ""
	}
	return request.ExecId
}

// allowed fails the test when the error is none that a client of a busy sandbox can meet.
func (m *mixed) allowed(what string, err error) error {
	switch status.Code(err) {
	case codes.OK, codes.FailedPrecondition, codes.NotFound:
	case codes.Aborted, codes.AlreadyExists:
		m.t.Errorf("%s: %v", what, err)
	default:
		if !errors.Is(err, io.EOF) {
			m.t.Errorf("%s: %v", what, err)
		}
	}
	return err
}

// mixedCalls are what clients do, the frequent ones more than once.
var mixedCalls = []func(m *mixed){
	func(m *mixed) {
		if id := m.exec(&agboxv1.CreateExecRequest{Command: []string{"echo", m.name}}); id != "" {
			end, err := m.WaitExec(m.ctx, &agboxv1.WaitExecRequest{ExecId: id})
			if m.allowed("WaitExec", err) == nil && end.Exec.State == agboxv1.ExecState_EXEC_STATE_FINISHED {
				m.log(id, m.name+"\n")
			}
		}
	},
	func(m *mixed) {
		if id := m.exec(&agboxv1.CreateExecRequest{Command: []string{"sleep", "100"}}); id != "" {
			_, err := m.CancelExec(m.ctx, &agboxv1.CancelExecRequest{ExecId: id})
			m.allowed("CancelExec", err)
			_, err = m.WaitExec(m.ctx, &agboxv1.WaitExecRequest{ExecId: id})
			m.allowed("WaitExec", err)
		}
	},
	func(m *mixed) {
		if id := m.exec(&agboxv1.CreateExecRequest{Command: []string{"sleep", "100"}, Timeout: durationpb.New(1e8)}); id != "" {
			_, err := m.SignalExec(m.ctx, &agboxv1.SignalExecRequest{ExecId: id, Signal: "TERM"})
			m.allowed("SignalExec", err)
		}
	},
	func(m *mixed) { m.cat() },
	func(m *mixed) {
		_, err := m.GetSandbox(m.ctx, &agboxv1.GetSandboxRequest{SandboxId: m.box})
		m.allowed("GetSandbox", err)
		_, err = m.ListSandboxes(m.ctx, &agboxv1.ListSandboxesRequest{})
		m.allowed("ListSandboxes", err)
		_, err = m.ListActiveExecs(m.ctx, &agboxv1.ListActiveExecsRequest{SandboxId: &m.box})
		m.allowed("ListActiveExecs", err)
		_, err = m.ListExecs(m.ctx, &agboxv1.ListExecsRequest{SandboxId: m.box, Limit: 10})
		m.allowed("ListExecs", err)
		_, err = m.Info(m.ctx, &agboxv1.InfoRequest{})
		m.allowed("Info", err)
	},
	func(m *mixed) {
		_, err := m.GetStats(m.ctx, &agboxv1.GetStatsRequest{SandboxId: m.box})
		m.allowed("GetStats", err)
		_, err = m.ExtendSandbox(m.ctx, &agboxv1.ExtendSandboxRequest{SandboxId: m.box, Touch: true})
		m.allowed("ExtendSandbox", err)
	},
	func(m *mixed) { m.files() },
	func(m *mixed) { m.files() },
	func(m *mixed) {
		stream, err := m.ReadSandboxLog(m.ctx, &agboxv1.ReadSandboxLogRequest{SandboxId: m.box})
		for err == nil {
			_, err = stream.Recv()
		}
		m.allowed("ReadSandboxLog", err)
	},
	func(m *mixed) {
		ctx, cancel := context.WithCancel(m.ctx)
		defer cancel()
		stream, err := m.SubscribeSandboxEvents(ctx, &agboxv1.SubscribeSandboxEventsRequest{SandboxId: m.box})
		for last := uint64(0); m.allowed("SubscribeSandboxEvents", err) == nil && last < 5; last++ {
			var event *agboxv1.SandboxEvent
			if event, err = stream.Recv(); err == nil && event.Sequence != last+1 {
				m.t.Errorf("after event %d comes %v", last, event)
			}
		}
	},
	func(m *mixed) {
		_, err := m.PauseSandbox(m.ctx, &agboxv1.PauseSandboxRequest{SandboxId: m.box})
		if m.allowed("PauseSandbox", err) == nil {
			m.rest()
			_, err = m.UnpauseSandbox(m.ctx, &agboxv1.UnpauseSandboxRequest{SandboxId: m.box})
			m.allowed("UnpauseSandbox", err)
		}
		m.rest()
	},
}

// rest waits until no operation changes the sandbox.
func (m *mixed) rest() {
	_, err := m.WaitSandbox(m.ctx, &agboxv1.WaitSandboxRequest{SandboxId: m.box})
	m.allowed("WaitSandbox", err)
}

// log expects the exec's whole output.
func (m *mixed) log(id, want string) {
	stream, err := m.ReadExecLog(m.ctx, &agboxv1.ReadExecLogRequest{ExecId: id, Follow: true})
	var text bytes.Buffer
	for err == nil {
		var chunk *agboxv1.ExecLogChunk
		if chunk, err = stream.Recv(); err == nil {
			text.Write(chunk.Data)
		}
	}
	if m.allowed("ReadExecLog", err); text.String() != want {
		m.t.Errorf("exec %s wrote %q, want %q", id, text.String(), want)
	}
}

// cat sends input to a command and has it back.
func (m *mixed) cat() {
	id := m.exec(&agboxv1.CreateExecRequest{Command: []string{"cat"}, Stdin: true})
	if id == "" {
		return
	}
	stream, err := m.AttachExec(m.ctx)
	if m.allowed("AttachExec", err) != nil {
		return
	}
	begin := uint64(0)
	for _, message := range []*agboxv1.AttachExecRequest{
		{Message: &agboxv1.AttachExecRequest_Start{Start: &agboxv1.AttachExecStart{ExecId: id, StdoutOffset: &begin}}},
		{Message: &agboxv1.AttachExecRequest_Stdin{Stdin: []byte(m.name)}},
		{Message: &agboxv1.AttachExecRequest_CloseStdin{CloseStdin: true}},
	} {
		if err := stream.Send(message); err != nil && !errors.Is(err, io.EOF) {
			m.t.Errorf("AttachExec: %v", err)
		}
	}
	var text bytes.Buffer
	var ended *agboxv1.ExecStatus
	for err == nil {
		var message *agboxv1.AttachExecResponse
		if message, err = stream.Recv(); err == nil {
			text.Write(message.GetStdout().GetData())
			ended = message.GetEnded()
		}
	}
	if m.allowed("AttachExec", err); ended.GetState() == agboxv1.ExecState_EXEC_STATE_FINISHED && text.String() != m.name {
		m.t.Errorf("exec %s gave back %q: %v", id, text.String(), ended)
	}
}

// files puts a file in, looks at it, takes it out and removes it.
func (m *mixed) files() {
	m.counter++
	name := fmt.Sprintf("%s-%d.txt", m.name, m.counter)
	var packed bytes.Buffer
	w := tar.NewWriter(&packed)
	if err := errors.Join(w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(name))}),
		func() error { _, err := w.Write([]byte(name)); return err }(), w.Close()); err != nil {
		m.t.Error(err)
	}
	upload, err := m.UploadFiles(m.ctx)
	if err == nil {
		err = errors.Join(upload.Send(&agboxv1.UploadFilesRequest{Message: &agboxv1.UploadFilesRequest_Start{
			Start: &agboxv1.UploadFilesStart{SandboxId: m.box, Path: "/workspace/mixed"}}}),
			upload.Send(&agboxv1.UploadFilesRequest{Message: &agboxv1.UploadFilesRequest_Data{Data: packed.Bytes()}}))
		if err == nil || errors.Is(err, io.EOF) {
			_, err = upload.CloseAndRecv()
		}
	}
	if m.allowed("UploadFiles", err) != nil {
		return
	}
	path := "/workspace/mixed/" + name
	if found, err := m.StatFile(m.ctx, &agboxv1.StatFileRequest{SandboxId: m.box, Path: path}); m.allowed("StatFile", err) == nil && found.File.Size != uint64(len(name)) {
		m.t.Errorf("%s is %v", path, found.File)
	}
	_, err = m.ListFiles(m.ctx, &agboxv1.ListFilesRequest{SandboxId: m.box, Path: "/workspace/mixed"})
	m.allowed("ListFiles", err)
	download, err := m.DownloadFiles(m.ctx, &agboxv1.DownloadFilesRequest{SandboxId: m.box, Path: path})
	var got bytes.Buffer
	for err == nil {
		var chunk *agboxv1.DownloadFilesChunk
		if chunk, err = download.Recv(); err == nil {
			got.Write(chunk.Data)
		}
	}
	if m.allowed("DownloadFiles", err); errors.Is(err, io.EOF) && !bytes.Contains(got.Bytes(), []byte(name)) {
		m.t.Errorf("%s came back as %q", path, got.Bytes())
	}
	_, err = m.RemoveFile(m.ctx, &agboxv1.RemoveFileRequest{SandboxId: m.box, Path: path})
	m.allowed("RemoveFile", err)
}

// TestMixedClients: many clients do all that there is on one sandbox at once, and it is stopped and resumed under them.
// Each gets an answer that it can meet, the log is whole, and nothing is left.
func TestMixedClients(t *testing.T) {
	t.Parallel()
	mixedClients(t, 12)
}

func mixedClients(t *testing.T, clients int) {
	t.Helper()
	d := servertest.Start(t)
	id := d.Create(&agboxv1.CreateSpec{})
	const calls = 6
	var group sync.WaitGroup
	for n := range clients {
		group.Go(func() {
			conn, err := grpc.NewClient("unix://"+d.Socket(), grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			m := &mixed{SandboxServiceClient: agboxv1.NewSandboxServiceClient(conn), t: t, ctx: t.Context(), box: id,
				name: fmt.Sprintf("client-%d", n), rng: rand.New(rand.NewPCG(7, uint64(n)))}
			for range calls {
				mixedCalls[m.rng.IntN(len(mixedCalls))](m)
			}
			if n == 0 {
				_, err := m.StopSandbox(m.ctx, &agboxv1.StopSandboxRequest{SandboxId: id, Grace: durationpb.New(1e8)})
				m.allowed("StopSandbox", err)
				m.rest()
				_, err = m.ResumeSandbox(m.ctx, &agboxv1.ResumeSandboxRequest{SandboxId: id})
				m.allowed("ResumeSandbox", err)
			}
		})
	}
	group.Wait()
	last := uint64(0)
	running := map[string]bool{}
	for _, event := range d.Delete(id) {
		if event.Sequence != last+1 {
			t.Errorf("after event %d comes %v", last, event)
		}
		last = event.Sequence
		if exec := event.GetExec().GetExecId(); exec != "" {
			running[exec] = event.EventType == agboxv1.EventType_EXEC_STARTED
		}
	}
	for exec, runs := range running {
		if runs {
			t.Errorf("exec %s has no end", exec)
		}
	}
}
