// Reasons FILE looks back on a run of all tests that went well. FILE holds the reasons that calls were refused with, as tests
// expected them, a line each (servertest.Refused writes them). It fails where a reason that is declared in server/ was not met
// and is not out of reach. Run it in the module's root.
package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: reasons FILE")
		os.Exit(2)
	}
	if err := everyReasonWasTried(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// untried are the reasons that no call can be made to be refused with, and why not.
var untried = map[string]string{
	"EXEC_NOT_RUNNING":          "SignalExec says so in the moment between the acceptance of an exec and its start",
	"OUTCOME_UNKNOWN":           "takes a panic in an actor, or an end of the daemon before gRPC's own; package actors tries the panic",
	"REQUEST_CANCELLED":         "whoever cancels is gone when the answer comes: its own library tells it",
	"REQUEST_DEADLINE_EXCEEDED": "a caller's deadline is told by its own library; the daemon's own takes 20 s of an engine that is silent",
}

// declared returns the values of all constants below server/ that are named reason or Reason and something.
func declared() (map[string]bool, error) {
	reasons := map[string]bool{}
	err := filepath.WalkDir("server", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(node ast.Node) bool {
			spec, ok := node.(*ast.ValueSpec)
			if !ok || !strings.HasPrefix(strings.ToLower(spec.Names[0].Name), "reason") {
				return true
			}
			for _, value := range spec.Values {
				if literal, ok := value.(*ast.BasicLit); ok && literal.Kind == token.STRING {
					reasons[strings.Trim(literal.Value, `"`)] = true
				}
			}
			return true
		})
		return nil
	})
	return reasons, err
}

func everyReasonWasTried(file string) error {
	lines, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	met := map[string]bool{}
	for reason := range strings.Lines(string(lines)) {
		met[strings.TrimSpace(reason)] = true
	}
	reasons, err := declared()
	if err != nil {
		return err
	}
	var faults []error
	for _, reason := range slices.Sorted(maps.Keys(reasons)) {
		_, excused := untried[reason]
		if (reason == "DISK_FULL" || reason == "MOUNT_COW_UNSUPPORTED") && os.Getuid() != 0 {
			excused = true // TestDiskFull and TestCopyOnWriteSources cannot mount a disk of their own then, and say so
		}
		if !met[reason] && !excused {
			faults = append(faults, fmt.Errorf("no test is refused with %s", reason))
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(untried)) {
		if met[reason] || !reasons[reason] {
			faults = append(faults, fmt.Errorf("%s is met, or is none, and is listed as untried", reason))
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(met)) {
		if !reasons[reason] {
			faults = append(faults, fmt.Errorf("no constant declares %s", reason))
		}
	}
	return errors.Join(faults...)
}
