package server_test

import (
	"embed"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/agbox-dev/agbox/sdk/raw"
)

// tried are the reasons that a call was refused with, as a test expected it.
var tried sync.Map

// usual is what a person reads in every refusal for a reason, whatever else the call's own test looks for.
var usual = map[string]string{
	"SANDBOX_ID_ALREADY_EXISTS":      "was used before: choose another, ids are never used twice",
	"EXEC_ID_ALREADY_EXISTS":         "was used before: choose another, ids are never used twice",
	"SANDBOX_NOT_FOUND":              "there is no sandbox",
	"EXEC_NOT_FOUND":                 "there is no exec",
	"SANDBOX_NOT_READY":              "commands run only while it is READY",
	"SANDBOX_INVALID_STATE":          ", which is ",
	"SANDBOX_EVENT_SEQUENCE_EXPIRED": "is not one to continue from: sandbox ",
	"DAEMON_SHUTTING_DOWN":           "agboxd is shutting down: try again when it is back",
	"DISK_FULL":                      "nothing was recorded",
	"REQUEST_TOO_LARGE":              "move what is large into files and mount these",
	"INVALID_SANDBOX_ID":             "is not a sandbox id; use 4 to 200 letters, digits, '-' and '_', with a letter or digit at both ends",
	"INVALID_EXEC_ID":                "is not an exec id; use 4 to 200 letters, digits, '-' and '_', with a letter or digit at both ends",
	"CONFIG_YAML_TOO_LARGE":          " than ",
}

// refused fails the test unless err is a status with this code and reason, a field where one is wanted, and a message
// that holds all these words: what is wrong, with the value, and what to do.
func refused(t *testing.T, err error, code codes.Code, reason, field string, words ...string) {
	t.Helper()
	failure, ok := errors.AsType[*raw.Error](err)
	if !ok {
		t.Errorf("got %v, want %v %s", err, code, reason)
		return
	}
	if failure.Code != code || failure.Reason != reason || failure.Metadata["field"] != field {
		t.Errorf("got %v %s with field %q (%s), want %v %s with field %q", failure.Code, failure.Reason,
			failure.Metadata["field"], failure.Message, code, reason, field)
		return
	}
	if words = append(words, usual[reason]); strings.Join(words, "") == "" {
		t.Errorf("%s: what a person has to read is not said; it is %q", reason, failure.Message)
		return
	}
	for _, want := range append(words, field) {
		if !strings.Contains(failure.Message, want) {
			t.Errorf("%s: the message is\n%s\nwithout\n%s", reason, failure.Message, want)
			return
		}
	}
	if strings.Contains(failure.Message, "%!") {
		t.Errorf("%s: the message is %q", reason, failure.Message)
		return
	}
	tried.Store(reason, true)
}

// untried are the reasons that no call can be made to be refused with, and why not.
var untried = map[string]string{
	"EXEC_NOT_RUNNING":          "SignalExec says so in the moment between the acceptance of an exec and its start",
	"OUTCOME_UNKNOWN":           "takes a panic in an actor, or an end of the daemon before gRPC's own; package actors tries the panic",
	"REQUEST_CANCELLED":         "whoever cancels is gone when the answer comes: its own library tells it",
	"REQUEST_DEADLINE_EXCEEDED": "a caller's deadline is told by its own library; the daemon's own takes 20 s of an engine that is silent",
}

// sources is where the reasons are declared.
//
//go:embed *.go spec/*.go
var sources embed.FS

// declared returns the values of all constants that are named reason or Reason and something.
func declared() (map[string]bool, error) {
	reasons := map[string]bool{}
	err := fs.WalkDir(sources, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := sources.ReadFile(path)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, text, parser.SkipObjectResolution)
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

// everyReasonWasTried looks back on a run of the whole package that went well: a reason that is declared has been met,
// or is out of reach.
func everyReasonWasTried() error {
	for _, selection := range []string{"test.run", "test.skip", "test.list"} {
		if flag.Lookup(selection).Value.String() != "" {
			return nil
		}
	}
	met := map[string]bool{}
	tried.Range(func(reason, _ any) bool { met[reason.(string)] = true; return true })
	if len(met) == 0 { // there is no engine, which each test has said
		return nil
	}
	reasons, err := declared()
	if err != nil {
		return err
	}
	var faults []error
	for _, reason := range slices.Sorted(maps.Keys(reasons)) {
		_, excused := untried[reason]
		if (reason == "DISK_FULL" || reason == "MOUNT_COW_UNSUPPORTED") && (runtime.GOOS != "linux" || os.Getuid() != 0) {
			excused = true // TestDiskFull and TestCopyOnWriteSources cannot mount a disk of their own there, and say so
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
