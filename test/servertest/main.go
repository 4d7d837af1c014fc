package servertest

import (
	"testing"

	"go.uber.org/goleak"
)

// Main runs the tests of a package and fails when one of their goroutines is left. The actor library's dead-letter throttle, which
// comes to be where a daemon ends soon after its start, ends by a timer of its own.
func Main(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/asynkron/protoactor-go/actor.NewDeadLetter.NewThrottle.func4.1"))
}
