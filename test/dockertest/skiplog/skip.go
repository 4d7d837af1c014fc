// Package skiplog is how tests say that they cannot run here: never in silence.
package skiplog

import (
	"errors"
	"fmt"
	"os"
	"testing"
)

// RequireEngine names the variable that, set to 1, turns every skip into a failure.
const RequireEngine = "AGBOX_REQUIRE_ENGINE"

// SkipLog names the variable that holds a file to which each skip is written as a line, because go test shows
// the reason of a skip only when it is verbose.
const SkipLog = "AGBOX_SKIP_LOG"

// Skip ends t, which needs something that this machine lacks: why names it, and what brings it.
func Skip(t testing.TB, why string) {
	t.Helper()
	if os.Getenv(RequireEngine) == "1" {
		t.Fatalf("%s=1, but %s", RequireEngine, why)
	}
	line := fmt.Sprintf("SKIP: %s: %s", t.Name(), why)
	if name := os.Getenv(SkipLog); name != "" {
		if err := appendLine(name, line); err != nil {
			t.Errorf("%s: %v", SkipLog, err)
		}
	}
	t.Skip(line)
}

func appendLine(name, line string) error {
	f, err := os.OpenFile(name, os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(line + "\n")
	return errors.Join(err, f.Close())
}
