// Package sdktest is an agboxd without Docker, for tests of its clients: the whole service on a real
// socket, with an event log that outlives a Shutdown as the real one does. Execs are processes of
// the machine that the test runs on.
package sdktest

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// Images with a story; every other image becomes READY at once.
const (
	ImageHold   = "hold"   // stays PENDING until Append says otherwise
	ImageBroken = "broken" // ends FAILED
)

// Daemon holds the state; Serve and Shutdown put it on a socket and take it off, as often as wanted.
type Daemon struct {
	agboxv1.UnimplementedSandboxServiceServer
	// Clock gives the time of events; time.Now unless set before Serve.
	Clock func() time.Time

	dir string

	mu        sync.Mutex
	changed   chan struct{} // closed and replaced by every append
	sandboxes map[string]*sandbox
	order     []string // sandbox ids, oldest first
	execs     map[string]*process
	refusals  map[string]error
	created   *agboxv1.CreateSandboxRequest
	joined    func(id string)

	trees   trees
	changes []MountChanges
	work    sync.WaitGroup // what goes on after a reply
	server  *grpc.Server
	served  chan struct{}
}

type sandbox struct {
	handle *agboxv1.SandboxHandle
	events []*agboxv1.SandboxEvent
}

// New returns a daemon that keeps exec logs under dir. Close must follow.
func New(dir string) *Daemon {
	return &Daemon{
		Clock:     time.Now,
		dir:       dir,
		changed:   make(chan struct{}),
		sandboxes: map[string]*sandbox{},
		execs:     map[string]*process{},
		refusals:  map[string]error{},
	}
}

// Start serves a daemon on a socket of its own until the test ends.
func Start(t testing.TB) (*Daemon, string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "agbox") // t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	d, socket := New(filepath.Join(dir, "logs")), filepath.Join(dir, "s")
	if err := d.Serve(socket); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		d.Close()
		os.RemoveAll(dir)
	})
	return d, socket
}

// Serve listens on the socket and returns; a file that a daemon before left there is replaced.
func (d *Daemon) Serve(socket string) error {
	if err := os.MkdirAll(filepath.Dir(socket), 0o700); err != nil {
		return err
	}
	if err := os.RemoveAll(socket); err != nil {
		return err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	server, served := grpc.NewServer(), make(chan struct{})
	agboxv1.RegisterSandboxServiceServer(server, d)
	d.server, d.served = server, served
	go func() {
		defer close(served)
		_ = server.Serve(listener)
	}()
	return nil
}

// Shutdown drops every connection at once, as a killed daemon does. State and processes stay.
func (d *Daemon) Shutdown() {
	if d.server == nil {
		return
	}
	d.server.Stop()
	<-d.served
	d.server = nil
}

// Close shuts down, kills what still runs and waits for it.
func (d *Daemon) Close() {
	d.Shutdown()
	d.mu.Lock()
	for _, p := range d.execs {
		p.kill()
	}
	d.mu.Unlock()
	d.work.Wait()
}

// Refuse makes every call of the RPC fail with err; nil lets them through again.
func (d *Daemon) Refuse(rpc string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.refusals[rpc] = err
}

// OnSubscribe has f called at the start of each subscription, before the daemon reads the log for it.
func (d *Daemon) OnSubscribe(f func(id string)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.joined = f
}

// Created returns the newest CreateSandbox request, nil before the first.
func (d *Daemon) Created() *agboxv1.CreateSandboxRequest {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.created
}

// Append records an event, filling in what is common to all. It changes the sandbox's state as the
// event's type says. The sandbox must exist.
func (d *Daemon) Append(id string, event *agboxv1.SandboxEvent) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.append(d.sandboxes[id], event)
}

var states = map[agboxv1.EventType]agboxv1.SandboxState{
	agboxv1.EventType_SANDBOX_ACCEPTED:         agboxv1.SandboxState_SANDBOX_STATE_PENDING,
	agboxv1.EventType_SANDBOX_READY:            agboxv1.SandboxState_SANDBOX_STATE_READY,
	agboxv1.EventType_SANDBOX_FAILED:           agboxv1.SandboxState_SANDBOX_STATE_FAILED,
	agboxv1.EventType_SANDBOX_STOPPED:          agboxv1.SandboxState_SANDBOX_STATE_STOPPED,
	agboxv1.EventType_SANDBOX_DELETE_REQUESTED: agboxv1.SandboxState_SANDBOX_STATE_DELETING,
	agboxv1.EventType_SANDBOX_DELETED:          agboxv1.SandboxState_SANDBOX_STATE_DELETED,
}

// append wants d.mu held.
func (d *Daemon) append(s *sandbox, event *agboxv1.SandboxEvent) {
	h, now := s.handle, timestamppb.New(d.Clock())
	if state, ok := states[event.GetEventType()]; ok {
		h.State, h.StateChangedAt = state, now
		h.ErrorCode = event.GetSandboxPhase().GetErrorCode()
		h.ErrorMessage = event.GetSandboxPhase().GetErrorMessage()
	}
	h.LastEventSequence++
	event.Sequence, event.SandboxId, event.SandboxState = h.LastEventSequence, h.SandboxId, h.State
	event.EventId = fmt.Sprintf("%s/%d", h.SandboxId, event.Sequence)
	event.OccurredAt = now
	s.events = append(s.events, event)
	close(d.changed)
	d.changed = make(chan struct{})
}

func phase(event agboxv1.EventType, p *agboxv1.SandboxPhaseDetails) *agboxv1.SandboxEvent {
	return &agboxv1.SandboxEvent{EventType: event, Details: &agboxv1.SandboxEvent_SandboxPhase{SandboxPhase: p}}
}

// Refusal is an error as the contract wants it; metadata comes in pairs.
func Refusal(code codes.Code, reason, message string, metadata ...string) error {
	info := &errdetails.ErrorInfo{Domain: "agents-sandbox", Reason: reason, Metadata: map[string]string{}}
	for i := 0; i+1 < len(metadata); i += 2 {
		info.Metadata[metadata[i]] = metadata[i+1]
	}
	st, err := status.New(code, message).WithDetails(info)
	if err != nil {
		return err
	}
	return st.Err()
}
