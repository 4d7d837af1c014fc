package checker

import (
	"slices"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// history is a sandbox's log and what follows from it: the whole of it, or what is kept after the oldest events were cut.
type history struct {
	id     string
	cut    uint64
	events []*agboxv1.SandboxEvent
	state  agboxv1.SandboxState
	// busy: an operation was announced whose end is not told yet.
	busy    bool
	running map[string]bool
	ends    map[string]*agboxv1.SandboxEvent
	counts  map[agboxv1.EventType]int
}

const none = agboxv1.SandboxState_SANDBOX_STATE_UNSPECIFIED

// step is what an event of a type may follow and what the sandbox is then; a state of none leaves it as it is.
type step struct {
	from []agboxv1.SandboxState
	to   agboxv1.SandboxState
	busy bool
}

const (
	pending  = agboxv1.SandboxState_SANDBOX_STATE_PENDING
	ready    = agboxv1.SandboxState_SANDBOX_STATE_READY
	failed   = agboxv1.SandboxState_SANDBOX_STATE_FAILED
	stopped  = agboxv1.SandboxState_SANDBOX_STATE_STOPPED
	deleting = agboxv1.SandboxState_SANDBOX_STATE_DELETING
	deleted  = agboxv1.SandboxState_SANDBOX_STATE_DELETED
	paused   = agboxv1.SandboxState_SANDBOX_STATE_PAUSED
	draining = agboxv1.SandboxState_SANDBOX_STATE_DRAINING
	dormant  = agboxv1.SandboxState_SANDBOX_STATE_DORMANT
)

// steps is the contract's order of events, as section 5 tells it, with what was added to it. A lazy sandbox is DORMANT once
// it is accepted; a PENDING one that is to be restarted can be stopped.
var steps = map[agboxv1.EventType]step{
	agboxv1.EventType_SANDBOX_ACCEPTED:         {[]agboxv1.SandboxState{none, stopped, failed, dormant}, pending, true},
	agboxv1.EventType_SANDBOX_PREPARING:        {[]agboxv1.SandboxState{pending}, pending, true},
	agboxv1.EventType_SANDBOX_READY:            {[]agboxv1.SandboxState{pending}, ready, false},
	agboxv1.EventType_SANDBOX_FAILED:           {[]agboxv1.SandboxState{pending, ready, paused, draining, deleting}, failed, false},
	agboxv1.EventType_SANDBOX_STOP_REQUESTED:   {[]agboxv1.SandboxState{ready, paused, draining, pending}, none, true},
	agboxv1.EventType_SANDBOX_STOPPED:          {[]agboxv1.SandboxState{ready, paused, draining, pending}, stopped, false},
	agboxv1.EventType_SANDBOX_DELETE_REQUESTED: {[]agboxv1.SandboxState{pending, ready, failed, stopped, paused, draining, dormant}, deleting, true},
	agboxv1.EventType_SANDBOX_DELETED:          {[]agboxv1.SandboxState{deleting}, deleted, false},

	agboxv1.EventType_SANDBOX_PAUSE_REQUESTED:   {[]agboxv1.SandboxState{ready}, none, true},
	agboxv1.EventType_SANDBOX_PAUSED:            {[]agboxv1.SandboxState{ready, paused}, paused, false},
	agboxv1.EventType_SANDBOX_UNPAUSE_REQUESTED: {[]agboxv1.SandboxState{paused}, none, true},
	agboxv1.EventType_SANDBOX_UNPAUSED:          {[]agboxv1.SandboxState{ready, paused}, ready, false},
	agboxv1.EventType_SANDBOX_DRAIN_REQUESTED:   {[]agboxv1.SandboxState{ready}, draining, true},
	agboxv1.EventType_SANDBOX_DORMANT:           {[]agboxv1.SandboxState{pending}, dormant, false},
	agboxv1.EventType_SANDBOX_LINK_LOST:         {[]agboxv1.SandboxState{ready, draining}, none, true},
	agboxv1.EventType_SANDBOX_RESTARTING:        {[]agboxv1.SandboxState{ready, pending}, pending, true},
}

// newHistory folds events by rules of its own, and reports where they break the contract.
func newHistory(id string, events []*agboxv1.SandboxEvent, report *Report) *history {
	h := &history{id: id, running: map[string]bool{}, ends: map[string]*agboxv1.SandboxEvent{}, counts: map[agboxv1.EventType]int{}}
	for _, event := range events {
		h.add(event, report)
	}
	return h
}

func (h *history) add(event *agboxv1.SandboxEvent, report *Report) {
	name := event.EventType.String()
	if len(h.events) == 0 && event.Sequence > 1 {
		h.cut, h.state = event.Sequence-1, event.SandboxState
		h.resume(event)
		return
	}
	if want := h.newest() + 1; event.Sequence > want {
		report.add(Gap, h.id, "the log has %d where %d belongs", event.Sequence, want)
	} else if event.Sequence < want {
		report.add(Duplicate, h.id, "the log has %d where %d belongs", event.Sequence, want)
	}
	if event.SandboxId != h.id || event.EventId == "" || event.OccurredAt == nil {
		report.add(BrokenLog, h.id, "event %d is not whole: %v", event.Sequence, event)
	}
	if h.state == deleted {
		report.add(BrokenLog, h.id, "%s follows SANDBOX_DELETED", name)
	}
	h.events = append(h.events, event)
	h.counts[event.EventType]++
	if step, known := steps[event.EventType]; known {
		if !slices.Contains(step.from, h.state) {
			report.add(BrokenLog, h.id, "event %d: %s in state %s", event.Sequence, name, h.state)
		}
		h.busy = step.busy
		switch {
		case h.state == none && event.SandboxState == dormant:
			h.state, h.busy = dormant, false
		case step.to != none:
			h.state = step.to
		}
		if (h.state == stopped || h.state == failed || h.state == deleted) && len(h.running) > 0 {
			report.add(BrokenLog, h.id, "event %d: %s while %d execs run", event.Sequence, name, len(h.running))
		}
	}
	h.addExec(event, report)
	if event.SandboxState != h.state {
		report.add(BrokenLog, h.id, "event %d: %s says %s, its log says %s", event.Sequence, name, event.SandboxState, h.state)
	}
}

func (h *history) addExec(event *agboxv1.SandboxEvent, report *Report) {
	exec := event.GetExec()
	if exec == nil {
		return
	}
	id := exec.ExecId
	_, ended := h.ends[id]
	if event.EventType == agboxv1.EventType_EXEC_STARTED {
		if h.state != ready || h.running[id] || ended {
			report.add(BrokenLog, id, "started at event %d of %s, which is %s, again or where it cannot", event.Sequence, h.id, h.state)
		}
		h.running[id] = true
		return
	}
	if !h.running[id] && h.cut == 0 {
		report.add(BrokenLog, id, "ended at event %d of %s and did not run", event.Sequence, h.id)
	}
	delete(h.running, id)
	h.ends[id] = event
}

// atRest: nothing will be added unless somebody asks for it.
func (h *history) atRest() bool { return !h.busy && len(h.running) == 0 && h.state != none }

// gaveUp: the sandbox's actor is not started again, so nothing becomes of the sandbox by itself.
func (h *history) gaveUp() bool {
	return h.state == failed && h.events[len(h.events)-1].GetSandboxPhase().GetErrorCode() == crashLoop
}

func (h *history) newest() uint64 { return h.cut + uint64(len(h.events)) }

// at returns the event with that sequence, nil for one that was cut or is not there yet.
func (h *history) at(sequence uint64) *agboxv1.SandboxEvent {
	if sequence <= h.cut || sequence > h.newest() {
		return nil
	}
	return h.events[sequence-h.cut-1]
}

// resume takes the oldest event that is kept for what was before it.
func (h *history) resume(event *agboxv1.SandboxEvent) {
	h.events = append(h.events, event)
	h.counts[event.EventType]++
	h.busy = steps[event.EventType].busy
	if exec := event.GetExec(); exec != nil && event.EventType == agboxv1.EventType_EXEC_STARTED {
		h.running[exec.ExecId] = true
	} else if exec != nil {
		h.ends[exec.ExecId] = event
	}
}
