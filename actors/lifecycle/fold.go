package lifecycle

import (
	"maps"

	"google.golang.org/protobuf/reflect/protoreflect"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// Fold returns the state after events. It accepts any that Decide made for s, and does not change them, but keeps parts of them.
func Fold(s State, events ...*event) State {
	s = s.copy()
	for _, e := range events {
		s.fold(e)
	}
	return s
}

// copy shares maps and messages with s, which nobody changes.
func (s State) copy() State {
	next := New(s.SandboxID, nil)
	s.ProtoReflect().Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		next.ProtoReflect().Set(field, value)
		return true
	})
	return next
}

func (s *State) fold(e *event) {
	at := e.OccurredAt
	s.SandboxID = e.SandboxId
	s.Sequence = e.Sequence
	if s.Phase != e.SandboxState {
		s.Phase, s.ChangedAt = e.SandboxState, at
	}
	switch e.EventType {
	case agboxv1.EventType_SANDBOX_ACCEPTED:
		s.Operation = Resuming
		if s.CreatedAt == nil {
			s.CreatedAt, s.Lazy = at, s.Phase == Dormant
			s.Operation = Creating
		} else if s.Lazy {
			s.Operation = Creating
		}
		if s.Phase == Dormant {
			s.Operation = NoOperation
		}
		s.ErrorCode, s.ErrorMessage, s.Restarts = "", "", 0
		s.serviceAgain()
	case agboxv1.EventType_SANDBOX_RECOVERED:
		s.Recovered, s.CreatedAt, s.ActiveAt = true, at, at
		if created := e.GetSandboxPhase().GetCreatedAt(); created != nil {
			s.CreatedAt = created
		}
		s.ErrorCode, s.ErrorMessage = e.GetSandboxPhase().GetErrorCode(), e.GetSandboxPhase().GetErrorMessage()
		s.Ports = e.GetSandboxPhase().GetPorts()
	case agboxv1.EventType_SANDBOX_DORMANT:
		s.Operation = NoOperation
		s.ErrorCode, s.ErrorMessage = e.GetSandboxPhase().GetErrorCode(), e.GetSandboxPhase().GetErrorMessage()
	case agboxv1.EventType_SANDBOX_RESTARTING:
		s.Operation = Restarting
		s.Restarts, s.RestartAt = e.GetSandboxPhase().GetRestarts(), e.GetSandboxPhase().GetRestartAt()
		s.serviceAgain()
	case agboxv1.EventType_SANDBOX_DETACHED:
		s.Detached = true
	case agboxv1.EventType_SANDBOX_READY:
		s.Operation, s.ActiveAt, s.Lazy = NoOperation, at, false
		s.Ports, s.CommandEnded = e.GetSandboxPhase().GetPorts(), false
	case agboxv1.EventType_SANDBOX_SERVICE_READY:
		s.Services = put(s.Services, e.GetService().GetServiceName(), ServiceReady)
	case agboxv1.EventType_SANDBOX_SERVICE_FAILED:
		s.Services = put(s.Services, e.GetService().GetServiceName(), ServiceFailed)
	case agboxv1.EventType_SANDBOX_COMMAND_ENDED:
		s.CommandEnded, s.ActiveAt = true, at
	case agboxv1.EventType_SANDBOX_STOP_REQUESTED:
		s.Operation, s.Reason = Stopping, e.GetSandboxPhase().GetReason()
		if e.GetSandboxPhase().GetForce() {
			s.Operation = Killing
		}
		s.Grace = e.GetSandboxPhase().GetGrace()
	case agboxv1.EventType_SANDBOX_PAUSE_REQUESTED:
		s.Operation, s.Reason = Pausing, e.GetSandboxPhase().GetReason()
	case agboxv1.EventType_SANDBOX_UNPAUSE_REQUESTED:
		s.Operation = Unpausing
	case agboxv1.EventType_SANDBOX_PAUSED, agboxv1.EventType_SANDBOX_UNPAUSED:
		s.Operation, s.ActiveAt = NoOperation, at
	case agboxv1.EventType_SANDBOX_DRAIN_REQUESTED:
		s.DrainUntil = e.GetSandboxPhase().GetDrainUntil()
	case agboxv1.EventType_SANDBOX_EXTENDED:
		s.ActiveAt = at
		if expires := e.GetSandboxPhase().GetExpiresAt(); expires != nil {
			if s.Extended = true; expires.Seconds == 0 {
				expires = nil
			}
			s.ExpiresAt = expires
		}
		if ttl := e.GetSandboxPhase().GetIdleTtl(); ttl != nil {
			s.IdleTtl = ttl
		}
	case agboxv1.EventType_SANDBOX_DELETE_REQUESTED:
		s.Operation, s.Reason = Removing, e.GetSandboxPhase().GetReason()
		s.ErrorCode, s.ErrorMessage = "", ""
	case agboxv1.EventType_SANDBOX_STOPPED, agboxv1.EventType_SANDBOX_DELETED:
		s.Operation = NoOperation
	case agboxv1.EventType_SANDBOX_FAILED:
		s.Operation = NoOperation
		s.ErrorCode, s.ErrorMessage = e.GetSandboxPhase().GetErrorCode(), e.GetSandboxPhase().GetErrorMessage()
	case agboxv1.EventType_EXEC_STARTED:
		s.ActiveAt = at
		s.Running = put(s.Running, e.GetExec().GetExecId(), at)
	case agboxv1.EventType_EXEC_FINISHED, agboxv1.EventType_EXEC_FAILED, agboxv1.EventType_EXEC_CANCELLED:
		s.ActiveAt = at
		s.Running = without(s.Running, e.GetExec().GetExecId())
	case agboxv1.EventType_SANDBOX_SNAPSHOT_REQUESTED, agboxv1.EventType_SANDBOX_SNAPSHOT_MADE, agboxv1.EventType_SANDBOX_SNAPSHOT_FAILED:
		s.foldSnapshot(e)
	}
	if !s.Up() {
		s.Ports = nil
	}
}

// serviceAgain has the state of every service recorded once more.
func (s *State) serviceAgain() {
	for name := range s.Services {
		s.Services = put(s.Services, name, ServiceAgain)
	}
}

// put returns a copy of m that has the entry.
func put[V any](m map[string]V, key string, value V) map[string]V {
	next := make(map[string]V, len(m)+1)
	maps.Copy(next, m)
	next[key] = value
	return next
}

func without[V any](m map[string]V, key string) map[string]V {
	next := maps.Clone(m)
	delete(next, key)
	if len(next) == 0 {
		return nil
	}
	return next
}
