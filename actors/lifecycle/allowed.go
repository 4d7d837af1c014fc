package lifecycle

import (
	"cmp"
	"slices"
	"time"
)

// rule is a line of the table: what becomes of a command in some phases and at some operations.
type rule struct {
	command    string // its name
	phases     []Phase
	operations []Operation
	then       outcome
}

// outcome emits the events that a command brings about, or refuses it.
type outcome func(*decision, Command) error

var (
	anyPhase     []Phase
	anyOperation []Operation
	atRest       = at(NoOperation)
	up           = in(Ready, Paused, Draining)
	upOrPending  = in(Pending, Ready, Paused, Draining)
	hasFiles     = in(Ready, Paused, Draining, Stopped, Failed)
	notEnding    = in(Pending, Ready, Paused, Draining, Stopped, Failed, Dormant)

	exists      = refused(ErrAlreadyExists, "")
	stopping    = refused(ErrInvalidState, "it is being stopped already: wait for SANDBOX_STOPPED")
	freezing    = refused(ErrInvalidState, "it is being paused or unpaused: try again in a moment")
	notRunning  = refused(ErrInvalidState, "only a sandbox that is READY, PAUSED or DRAINING can be stopped")
	isOrWillEnd = refused(ErrInvalidState, "it is or is being deleted")
)

// table says which command is allowed where, and what is said to those who ask for it elsewhere. Of a command's rules the first that
// fits holds; where none does, nothing happens.
var table = []rule{
	{"create", in(None), anyOperation, does((*decision).create)},
	{"create", anyPhase, anyOperation, exists},
	{"recover", in(None), anyOperation, does((*decision).recover)},
	{"recover", anyPhase, anyOperation, exists},
	{"recover exec", anyPhase, anyOperation, tries((*decision).recoverExec)},

	{"use", in(Dormant), anyOperation, does((*decision).make)},
	{"use", in(None), anyOperation, refused(ErrNotFound, "")},
	{"resume", in(Dormant), anyOperation, does((*decision).make)},
	{"resume", in(Stopped), anyOperation, tries((*decision).resume)},
	{"resume", anyPhase, anyOperation, refused(ErrInvalidState, "only a STOPPED sandbox can be resumed")},

	{"stop", upOrPending, at(NoOperation, Restarting), does((*decision).stop)},
	{"stop", upOrPending, at(Stopping, Killing), stopping},
	{"stop", up, at(Pausing, Unpausing), freezing},
	{"stop", anyPhase, anyOperation, notRunning},
	{"stop by force", upOrPending, at(NoOperation, Restarting, Stopping), does((*decision).stop)},
	{"stop by force", upOrPending, at(Killing), stopping},
	{"stop by force", up, at(Pausing, Unpausing), freezing},
	{"stop by force", anyPhase, anyOperation, notRunning},
	{"drain", in(Ready), atRest, does((*decision).drain)},
	{"drain", anyPhase, anyOperation, refused(ErrInvalidState, "only a READY sandbox can be drained")},
	{"pause", in(Ready), atRest, does((*decision).pause)},
	{"pause", anyPhase, anyOperation, refused(ErrInvalidState, "only a READY sandbox can be paused")},
	{"unpause", in(Paused), atRest, tries((*decision).unpause)},
	{"unpause", anyPhase, anyOperation, refused(ErrInvalidState, "only a PAUSED sandbox can be unpaused")},
	{"extend", notEnding, anyOperation, does((*decision).extend)},
	{"extend", anyPhase, anyOperation, isOrWillEnd},
	{"detach", notEnding, anyOperation, does((*decision).detach)},
	{"detach", anyPhase, anyOperation, isOrWillEnd},
	{"delete", notEnding, anyOperation, does((*decision).delete)},
	{"delete", in(None), anyOperation, refused(ErrNotFound, "")},

	{"start exec", in(Ready), atRest, tries((*decision).startExec)},
	{"start exec", anyPhase, anyOperation, func(d *decision, _ Command) error { return NotReady(d.state) }},
	{"cancel exec", anyPhase, anyOperation, tries((*decision).cancelExec)},
	{"exec ended", anyPhase, anyOperation, does((*decision).execEnded)},
	{"snapshot", hasFiles, anyOperation, tries((*decision).snapshot)},
	{"snapshot", in(Pending), anyOperation, refused(ErrInvalidState, "wait until it is READY")},
	{"snapshot", in(Dormant), anyOperation, refused(ErrInvalidState, "nothing of it was made yet, create another one from the same spec")},
	{"snapshot", anyPhase, anyOperation, refused(ErrInvalidState, "only one that is READY, PAUSED, DRAINING, STOPPED or FAILED has files to keep")},
	{"snapshot ended", anyPhase, anyOperation, does((*decision).snapshotEnded)},

	{"preparing", in(Pending), anyOperation, does((*decision).preparing)},
	{"service reported", upOrPending, anyOperation, does((*decision).serviceReported)},
	{"create done", anyPhase, at(Creating), does((*decision).started)},
	{"resume done", anyPhase, at(Resuming), does((*decision).started)},
	{"restart done", anyPhase, at(Restarting), does((*decision).started)},
	{"pause done", anyPhase, at(Pausing), does((*decision).paused)},
	{"unpause done", anyPhase, at(Unpausing), does((*decision).unpaused)},
	{"stop done", anyPhase, at(Stopping), does((*decision).stopped)},
	{"kill done", anyPhase, at(Killing), does((*decision).stopped)},
	{"delete done", anyPhase, at(Removing), does((*decision).deleted)},
	{"create failed", anyPhase, at(Creating), failed(CodeCreateFailed, (*decision).notMade)},
	{"resume failed", anyPhase, at(Resuming), failed(CodeResumeFailed, (*decision).fail)},
	{"restart failed", anyPhase, at(Restarting), failed(CodeResumeFailed, (*decision).crash)},
	{"pause failed", anyPhase, at(Pausing), does((*decision).pauseFailed)},
	{"unpause failed", anyPhase, at(Unpausing), does((*decision).unpauseFailed)},
	{"stop failed", anyPhase, at(Stopping), failed(CodeStopFailed, (*decision).fail)},
	{"kill failed", anyPhase, at(Killing), failed(CodeStopFailed, (*decision).fail)},
	{"delete failed", anyPhase, at(Removing), failed(CodeDeleteFailed, (*decision).fail)},
	{"died", up, atRest, does((*decision).died)},
	{"link lost", in(Ready, Draining), atRest, does((*decision).linkLost)},
	{"command ended", up, anyOperation, does((*decision).commandEnded)},
	{"quarantined", in(Pending, Ready, Paused, Draining, Stopped, Deleting, Dormant), anyOperation, does((*decision).quarantined)},
}

func in(phases ...Phase) []Phase             { return phases }
func at(operations ...Operation) []Operation { return operations }

// does is the outcome that do has, which cannot be refused; tries is that of a command that may be wrong in what it names.
func does[C Command](do func(*decision, C)) outcome {
	return func(d *decision, c Command) error {
		do(d, c.(C))
		return nil
	}
}

func tries[C Command](do func(*decision, C) error) outcome {
	return func(d *decision, c Command) error { return do(d, c.(C)) }
}

// failed ends what ran in the sandbox. code is for a failure that has none of its own.
func failed(code string, do func(d *decision, code, message string)) outcome {
	return does(func(d *decision, c OperationFailed) {
		d.loseRunning("the sandbox failed while the command ran: " + c.Message)
		do(d, cmp.Or(c.Code, code), c.Message)
	})
}

// refused says why; where there is no sandbox, that.
func refused(kind error, why string) outcome {
	return func(d *decision, c Command) error { return refusal(d.state, c, kind, why) }
}

func (r *rule) fits(s State) bool {
	return (r.phases == nil || slices.Contains(r.phases, s.Phase)) && (r.operations == nil || slices.Contains(r.operations, s.Operation))
}

// Decide returns the events that c brings about at time now, complete with sequence, id and state, ready to be
// recorded and folded. A request that does not fit is a *Refusal; a fact that comes too late is no events.
func Decide(s State, p Policy, c Command, now time.Time) ([]*event, error) {
	if c, ok := c.(IfUnchanged); ok {
		if s.Phase != c.Phase || !moment(s.ChangedAt).Equal(c.Since) {
			return nil, refusal(s, c, ErrInvalidState, "it is not what it was when it was looked at")
		}
		return Decide(s, p, c.Then, now)
	}
	d := decision{state: s, policy: p, now: now}
	for i := range table {
		if r := &table[i]; r.command == c.name() && r.fits(s) {
			err := r.then(&d, c)
			return d.events, err
		}
	}
	return nil, nil
}
