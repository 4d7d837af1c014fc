// Package pool keeps sandboxes ready that were made ahead, for creates to take. Class says which can stand in for each other, Next what
// to make and to remove; both are pure. Pool does it, with a runtime.Warmer.
package pool

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// Class is a digest of all of a spec that is fixed once its container is made.
type Class string

// Never, as a spec's pool, has it made anew.
const Never = "never"

// role is what a field of a spec means for a sandbox that was made ahead.
type role int

const (
	// fixed belongs to the class: what is not in the table, too.
	fixed role = iota
	// later comes when the sandbox is taken, or is the daemon's own affair.
	later
	// excludes any that was made ahead, where it is set.
	excludes
)

// roles are those of CreateSpec's fields; docs/pool.md says why.
var roles = map[protoreflect.Name]role{
	"image": fixed, "cpu_limit": fixed, "memory_limit": fixed, "pids_limit": fixed, "disk_limit": fixed, "shm_size": fixed, "tmpfs": fixed,
	"read_only_root": fixed, "network": fixed, "extra_hosts": fixed, "cap_add": fixed, "allow_new_privileges": fixed, "runtime": fixed,

	"copies": later, "labels": later, "envs": later, "idle_ttl": later, "command": later, "user": later, "working_dir": later,
	"pull_policy": later, "max_duration": later, "on_expiry": later, "on_idle": later, "on_command_end": later, "lease": later,
	"restart_policy": later, "wake": later, "pool": later,

	"mounts": excludes, "builtin_tools": excludes, "required_services": excludes, "optional_services": excludes, "ports": excludes,
	"gpus": excludes, "hostname": excludes, "lazy": excludes,
}

// maxSpec bounds a spec in bytes, so that environment and command fit into one message to the sandbox.
const maxSpec = 32 << 10

// Fit returns the class of a spec that is complete, and a spec with what the class is made of alone; or why none fits.
func Fit(spec *agboxv1.CreateSpec) (class Class, template *agboxv1.CreateSpec, whyNot string) {
	switch {
	case spec.GetPool() == Never:
		return "", nil, "the spec says pool: never"
	case proto.Size(spec) > maxSpec:
		return "", nil, "the spec is too large for what a sandbox is told when it is taken"
	case spec.GetPullPolicy() == "always":
		return "", nil, "pull_policy: always asks for an image that is newer"
	case spec.GetReadOnlyRoot() && spec.GetWorkingDir() != "":
		return "", nil, "working_dir below a read-only root is made with the container"
	}
	template = proto.CloneOf(spec)
	message := template.ProtoReflect()
	var excluding []string
	message.Range(func(field protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		switch roles[field.Name()] {
		case later:
			message.Clear(field)
		case excludes:
			excluding = append(excluding, string(field.Name()))
		}
		return true
	})
	if len(excluding) > 0 {
		return "", nil, slices.Min(excluding) + " cannot be given to a container that is there"
	}
	text, err := proto.MarshalOptions{Deterministic: true}.Marshal(template)
	if err != nil {
		return "", nil, err.Error()
	}
	sum := sha256.Sum256(text)
	return Class(hex.EncodeToString(sum[:8])), template, ""
}
