package servertest

import (
	"testing"

	"go.uber.org/goleak"
)

// Main runs the tests of a package and fails when one of their goroutines is left.
func Main(m *testing.M) { goleak.VerifyTestMain(m) }
