package spec

import (
	"cmp"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

var idForm = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_-]{2,198}[a-zA-Z0-9]$`)

// ValidateSandboxID refuses what cannot be the id of a sandbox, "" included; field names it in the error.
func ValidateSandboxID(field, id string) error {
	return validateID(ReasonInvalidSandboxID, field, id, "a sandbox")
}

// ValidateSnapshotID is ValidateSandboxID for a snapshot.
func ValidateSnapshotID(field, id string) error {
	return validateID(ReasonInvalidSnapshotID, field, id, "a snapshot")
}

func validateID(reason, field, id, of string) error {
	if idForm.MatchString(id) {
		return nil
	}
	return refuse(reason, field, "%s is not %s id; use 4 to 200 letters, digits, '-' and '_', with a letter or digit at both ends", quote(id), of)
}

// ValidateExec refuses an exec that could not be started anywhere: it looks at the request alone. An
// exec_id is optional.
func ValidateExec(req *agboxv1.CreateExecRequest) error {
	if err := ValidateSandboxID("sandbox_id", req.GetSandboxId()); err != nil {
		return err
	}
	if id := req.GetExecId(); id != "" {
		if err := validateID(ReasonInvalidExecID, "exec_id", id, "an exec"); err != nil {
			return err
		}
	}
	if len(req.GetCommand()) == 0 {
		return refuse(ReasonCommandRequired, "command", "no command is given; the first word must be the program to run")
	}
	var tty error
	if req.GetTty() != nil {
		tty = ValidateTerminal("tty", req.Tty)
	}
	return cmp.Or(
		validateCommand("command", req.GetCommand()),
		validateCwd("cwd", req.GetCwd()),
		ValidateUser("user", req.GetUser()),
		validateTag("tag", req.GetTag()),
		ValidateDuration("timeout", req.GetTimeout()),
		validateEnvs("env_overrides", req.GetEnvOverrides()),
		validateArguments("command", req.GetCommand(), req.GetEnvOverrides()),
		tty,
	)
}

func validateCwd(field, cwd string) error {
	switch {
	case strings.ContainsRune(cwd, 0):
		return refuse(ReasonCwdInvalid, field, "%s contains a NUL byte; remove it", quote(cwd))
	case len(cwd) > maxPath:
		return refuse(ReasonCwdInvalid, field, "it has %d bytes, and no path has more than %d; shorten it", len(cwd), maxPath)
	}
	return nil
}

// maxTag bounds what a caller calls an exec, in bytes.
const maxTag = 256

func validateTag(field, tag string) error {
	if len(tag) > maxTag {
		return refuse(ReasonTagTooLong, field, "it has %d bytes, and at most %d are kept; shorten it", len(tag), maxTag)
	}
	return nil
}

// ValidateTerminal refuses a size without rows or columns, or with more than the kernel can tell.
func ValidateTerminal(field string, size *agboxv1.TerminalSize) error {
	for _, side := range []struct {
		name  string
		value uint32
	}{{"rows", size.GetRows()}, {"columns", size.GetColumns()}} {
		if side.value < 1 || side.value > math.MaxUint16 {
			return refuse(ReasonTerminalSize, field+"."+side.name, "a terminal has no %d %s: give 1 to %d", side.value, side.name, math.MaxUint16)
		}
	}
	return nil
}

// ValidateLabels refuses labels without a key, NUL bytes, and more than 64 KiB in all. It serves label selectors too; an empty map is
// fine.
func ValidateLabels(field string, labels map[string]string) error {
	size := 0
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		switch {
		case key == "":
			return refuse(ReasonLabelInvalid, field, "a label has an empty key (its value is %s); name it", quote(labels[key]))
		case strings.ContainsRune(key, 0), strings.ContainsRune(labels[key], 0):
			return refuse(ReasonLabelInvalid, entry(field, key), "the label %s contains a NUL byte; remove it", quote(key))
		}
		if size += len(key) + len(labels[key]); size > maxLabels {
			return refuse(ReasonLabelInvalid, entry(field, key), "with the label %s the labels have more than %d bytes; use fewer or shorter ones", quote(key), maxLabels)
		}
	}
	return nil
}

// ValidateSelector is ValidateLabels for a selector that decides what is destroyed: an empty one, which
// would match everything, is refused.
func ValidateSelector(field string, selector map[string]string) error {
	if len(selector) == 0 {
		return refuse(ReasonSelectorRequired, field, "an empty selector would match every sandbox; give at least one label")
	}
	return ValidateLabels(field, selector)
}

// validateEnvs keeps values out of its messages: they are often secret.
func validateEnvs(field string, envs map[string]string) error {
	for _, key := range slices.Sorted(maps.Keys(envs)) {
		switch {
		case key == "":
			return refuse(ReasonEnvInvalid, field, "a variable has an empty name; name it")
		case strings.ContainsAny(key, "=\x00"):
			return refuse(ReasonEnvInvalid, entry(field, key), "%s is not a variable name; remove '=' and NUL from it", quote(key))
		case strings.ContainsRune(envs[key], 0):
			return refuse(ReasonEnvInvalid, entry(field, key), "the value of %s contains a NUL byte; remove it", quote(key))
		case len(key)+len("=")+len(envs[key]) > maxWord:
			return refuse(ReasonEnvInvalid, entry(field, key), "the variable %s has %d bytes with its value, and Linux starts nothing with more than %d in one; move it into a file",
				quote(key), len(key)+len("=")+len(envs[key]), maxWord)
		}
	}
	return nil
}

func element(field string, i int) string { return field + "[" + strconv.Itoa(i) + "]" }

func entry(field, key string) string { return field + "[" + quote(key) + "]" }

// quote is a value as messages have it, without what no person would read.
func quote(value string) string {
	const limit = 256
	if len(value) > limit {
		return strconv.Quote(strings.ToValidUTF8(value[:limit], "")) + "…"
	}
	return strconv.Quote(value)
}
