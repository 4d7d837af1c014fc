package lifecycle

import (
	"github.com/agbox-dev/agbox/text"
)

const (
	// maxMessage is how many bytes of an error's words an event holds: more than twice what is quoted of a program's output.
	maxMessage = 8 << 10
	// maxName bounds what is a code, an image, or a name.
	maxName = 512
)

// bound makes valid and bounds what an event repeats of programs in the sandbox, of the engine and of requests.
func bound(e *event) {
	message := func(s *string) { *s = text.Bound(*s, maxMessage) }
	name := func(s *string) { *s = text.Bound(*s, maxName) }
	if phase := e.GetSandboxPhase(); phase != nil {
		message(&phase.ErrorMessage)
		name(&phase.ErrorCode)
		name(&phase.Phase)
		name(&phase.Image)
		name(&phase.Reason)
	}
	if exec := e.GetExec(); exec != nil {
		message(&exec.ErrorMessage)
		name(&exec.ErrorCode)
	}
	if service := e.GetService(); service != nil {
		message(&service.ErrorMessage)
		name(&service.ErrorCode)
	}
	if command := e.GetCommand(); command != nil {
		message(&command.ErrorMessage)
		name(&command.ErrorCode)
	}
}
