package checker

import (
	"strconv"
	"sync"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// Operation is what a client can ask of a sandbox as a whole.
type Operation string

const (
	Create Operation = "create"
	Stop   Operation = "stop"
	Resume Operation = "resume"
	Delete Operation = "delete"

	Pause   Operation = "pause"
	Unpause Operation = "unpause"
	Drain   Operation = "drain"
)

// Record is what clients asked for and what they were told, kept by the clients. Something is noted as asked
// before it is sent, because it may happen without an answer, and as accepted once the daemon said so. Methods may
// be called from any goroutine.
type Record struct {
	mu        sync.Mutex
	sandboxes map[string]*sandbox
	snapshots map[string]*snapshot
}

type sandbox struct {
	id              string
	asked, accepted map[Operation]int
	// killed: its primary container was killed from outside.
	killed bool
	// ends: nobody holds its lease, so it is deleted by itself.
	ends    bool
	execs   map[string]*exec
	streams []*Stream
	// settled: it was found DELETED and in order, with this newest sequence; its details are let go.
	settled bool
	newest  uint64
}

type exec struct {
	want                  Want
	accepted, cancelAsked bool
}

// Want is what a command was told to do.
type Want struct {
	ExitCode       int32
	Stdout, Stderr Lines
}

// Lines is output that counts from 1 up to it, a number a line, as seq prints it.
type Lines int

func (l Lines) String() string {
	text := make([]byte, 0, 7*max(int(l), 0))
	for i := 1; i <= int(l); i++ {
		text = append(strconv.AppendInt(text, int64(i), 10), '\n')
	}
	return string(text)
}

// NewRecord returns an empty one.
func NewRecord() *Record {
	return &Record{sandboxes: map[string]*sandbox{}, snapshots: map[string]*snapshot{}}
}

func (r *Record) sandbox(id string) *sandbox {
	s := r.sandboxes[id]
	if s == nil {
		s = &sandbox{id: id, asked: map[Operation]int{}, accepted: map[Operation]int{}, execs: map[string]*exec{}}
		r.sandboxes[id] = s
	}
	return s
}

// Ask notes that the operation is about to be asked for.
func (r *Record) Ask(sandboxID string, op Operation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sandbox(sandboxID).asked[op]++
}

// Accepted notes that the daemon accepted it.
func (r *Record) Accepted(sandboxID string, op Operation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sandbox(sandboxID).accepted[op]++
}

// AskExec notes that a command with a new id is about to be asked for.
func (r *Record) AskExec(sandboxID, execID string, want Want) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sandbox(sandboxID).execs[execID] = &exec{want: want}
}

// AcceptedExec notes that the daemon accepted the command.
func (r *Record) AcceptedExec(sandboxID, execID string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sandbox(sandboxID).execs[execID].accepted = true
}

// AskCancel notes that the command's cancellation is about to be asked for.
func (r *Record) AskCancel(sandboxID, execID string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sandbox(sandboxID).execs[execID].cancelAsked = true
}

// Killed notes that the sandbox's primary container is about to be killed, which is no fault of the daemon's.
func (r *Record) Killed(sandboxID string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sandbox(sandboxID).killed = true
}

// Ends notes that a sandbox that is about to be asked for is deleted by itself, as nobody holds its lease.
func (r *Record) Ends(sandboxID string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sandbox(sandboxID)
	s.ends = true
	s.asked[Delete]++
}

func (r *Record) ends(sandboxID string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sandbox(sandboxID).ends
}

// Stream is what one subscription brought.
type Stream struct {
	record *Record
	from   uint64
	events []*agboxv1.SandboxEvent
}

// Stream notes a subscription to the events after from.
func (r *Record) Stream(sandboxID string, from uint64) *Stream {
	r.mu.Lock()
	defer r.mu.Unlock()
	stream := &Stream{record: r, from: from}
	s := r.sandbox(sandboxID)
	s.streams = append(s.streams, stream)
	return stream
}

// Add notes an event as it arrived. Snapshots do not count.
func (s *Stream) Add(event *agboxv1.SandboxEvent) {
	s.record.mu.Lock()
	defer s.record.mu.Unlock()
	s.events = append(s.events, event)
}

// active returns the ids of the sandboxes that are not settled.
func (r *Record) active() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var ids []string
	for id, s := range r.sandboxes {
		if !s.settled {
			ids = append(ids, id)
		}
	}
	return ids
}

func (s *sandbox) settle(newest uint64) {
	s.settled, s.newest, s.execs, s.streams = true, newest, nil, nil
}
