package servertest

import (
	"errors"
	"os"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/agbox-dev/agbox/sdk/raw"
)

// usual is what a person reads in every refusal for a reason, whatever else the call's own test looks for.
var usual = map[string]string{
	"SANDBOX_ID_ALREADY_EXISTS":      "was used before: choose another, ids are never used twice",
	"EXEC_ID_ALREADY_EXISTS":         "was used before: choose another, ids are never used twice",
	"SANDBOX_NOT_FOUND":              "there is no sandbox",
	"EXEC_NOT_FOUND":                 "there is no exec",
	"SANDBOX_NOT_READY":              "sandbox ",
	"SANDBOX_INVALID_STATE":          ", which is ",
	"SANDBOX_EVENT_SEQUENCE_EXPIRED": "is not one to continue from: sandbox ",
	"DAEMON_SHUTTING_DOWN":           "agboxd is shutting down: try again when it is back",
	"DISK_FULL":                      "nothing was recorded",
	"REQUEST_TOO_LARGE":              "move what is large into files and mount these",
	"INVALID_SANDBOX_ID":             "is not a sandbox id; use 4 to 200 letters, digits, '-' and '_', with a letter or digit at both ends",
	"INVALID_EXEC_ID":                "is not an exec id; use 4 to 200 letters, digits, '-' and '_', with a letter or digit at both ends",
	"CONFIG_YAML_TOO_LARGE":          " than ",
}

// Refused fails the test unless err is a status with this code and reason, a field where one is wanted, and a message
// that holds all these words: what is wrong, with the value, and what to do.
func Refused(t *testing.T, err error, code codes.Code, reason, field string, words ...string) {
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
	Tried(t, reason)
}

// Tried appends a reason that a call was refused with, as a test expected it, to the file that AGBOX_REASONS names: test/reasons
// compares all with those that are declared.
func Tried(t *testing.T, reason string) {
	path := os.Getenv("AGBOX_REASONS")
	if path == "" {
		return
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = file.WriteString(reason + "\n")
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		t.Error(err)
	}
}
