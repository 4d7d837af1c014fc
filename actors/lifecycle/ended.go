package lifecycle

import (
	"maps"
	"slices"

	"github.com/agbox-dev/agbox/actors/runtime"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// Ended is how work on the runtime came out, and what was seen after it.
type Ended struct {
	// Operation is what was done; NoOperation was a look at the containers.
	Operation Operation
	// Failed: it came to nothing, for the reason in Code and Message.
	Failed        bool
	Code, Message string
	// Ports are those of a sandbox that runs now.
	Ports []*agboxv1.PublishedPort
	// Execs are the ends of running execs that are on disk, Command that of the primary's own command.
	Execs   map[string]runtime.ExecResult
	Command *runtime.ExecResult
	// Halted: all was ended because the primary's own command had ended.
	Halted bool
	// Gone: a container that the sandbox cannot be without does not run, for the reason in Code and Message. Lost are the optional
	// services that do not, and why.
	Gone bool
	Lost map[string]string
}

// Facts returns what the end of work means for the sandbox, in the order to record it. A look that failed means nothing.
func Facts(s State, p Policy, e Ended) (facts []Command) {
	for _, id := range slices.Sorted(maps.Keys(e.Execs)) {
		facts = append(facts, ExecEnded{ExecID: id, Result: e.Execs[id]})
	}
	look := e.Operation == NoOperation
	goesOn := (look || e.Operation == Pausing || e.Operation == Unpausing) && !e.Halted && !e.Gone
	if e.Command != nil && !(goesOn && p.HaltsOnCommandEnd()) { // else it is recorded when all is ended
		facts = append(facts, CommandEnded{Result: *e.Command, Fails: look && e.Halted})
	}
	switch {
	case look && e.Failed:
	case look && e.Gone:
		facts = append(facts, Died{Code: e.Code, Message: e.Message})
	case look:
		for _, name := range slices.Sorted(maps.Keys(e.Lost)) {
			if s.Services[name] == ServiceReady {
				facts = append(facts, ServiceReported{Service: name, Code: runtime.CodeServiceNotRunning, Message: e.Lost[name]})
			}
		}
	case e.Failed:
		facts = append(facts, OperationFailed{Operation: e.Operation, Code: e.Code, Message: e.Message})
	default:
		facts = append(facts, OperationDone{Operation: e.Operation, Ports: e.Ports})
	}
	return facts
}
