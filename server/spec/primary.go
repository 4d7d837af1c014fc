package spec

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/agbox-dev/agbox/paths"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// container is what the primary and services have in common.
type container interface {
	GetCommand() []string
	GetEnvs() map[string]string
	GetUser() string
	GetCpuLimit() float64
	GetMemoryLimit() int64
	GetPidsLimit() int64
	GetDiskLimit() int64
	GetShmSize() int64
	GetTmpfs() []*agboxv1.TmpfsSpec
	GetCapAdd() []string
	GetPullPolicy() string
}

var (
	_ container = (*agboxv1.CreateSpec)(nil)
	_ container = (*agboxv1.ServiceSpec)(nil)
)

// container checks c, the message at field, and brings its tmpfs and capabilities to their one form; used holds the
// paths that are taken in it.
func (r *resolver) container(field string, c container, used targets) error {
	if err := cmp.Or(
		validateCommand(field+".command", c.GetCommand()),
		validateArguments(field+".command", c.GetCommand(), c.GetEnvs()),
		ValidateUser(field+".user", c.GetUser()),
		oneOf(ReasonPullPolicyInvalid, field+".pull_policy", c.GetPullPolicy(), "missing", "always", "never"),
		validateLimits(field, c),
	); err != nil {
		return err
	}
	for i, t := range c.GetTmpfs() {
		at := element(field+".tmpfs", i)
		target, err := used.claim(at+".target", t.GetTarget())
		if err != nil {
			return err
		}
		if t.Size < 0 {
			return refuse(ReasonTmpfsSizeInvalid, at+".size", "%d bytes are negative; use a size, or 0 for half of the host's memory", t.Size)
		}
		t.Target = target
	}
	return r.capabilities(field+".cap_add", c.GetCapAdd())
}

// primary checks what the spec says of the primary container beyond its mounts.
func (r *resolver) primary() error {
	const field = "create_spec"
	s := r.out.Spec
	if err := r.container(field, s, r.targets); err != nil {
		return err
	}
	for i, t := range s.Tmpfs {
		for _, c := range s.Copies {
			if paths.Within(c.Target, t.Target) {
				return refuse(ReasonCopyTargetInTmpfs, element(field+".tmpfs", i)+".target",
					"%s is empty at each start and would hide the copy at %s; copy elsewhere", quote(t.Target), quote(c.Target))
			}
		}
	}
	if s.WorkingDir != "" {
		clean, refused := containerPath(field+".working_dir", s.WorkingDir)
		if refused != nil {
			refused.Reason = ReasonWorkingDirInvalid
			return refused
		}
		s.WorkingDir = clean
	}
	if err := cmp.Or(
		oneOf(ReasonOnIdleInvalid, field+".on_idle", s.OnIdle, "stop", "pause", "delete"),
		validateWake(field+".wake", s.Wake),
		oneOf(ReasonOnExpiryInvalid, field+".on_expiry", s.OnExpiry, "delete", "stop", "pause"),
		ValidateDuration(field+".max_duration", s.MaxDuration),
		ValidateDuration(field+".lease.grace", s.Lease.GetGrace()),
		oneOf(ReasonLeaseInvalid, field+".lease.on_end", s.Lease.GetOnEnd(), "delete", "stop"),
		validateRestarts(field+".restart_policy", s.RestartPolicy),
		oneOf(ReasonOnCommandEndInvalid, field+".on_command_end", s.OnCommandEnd, "fail", "keep"),
	); err != nil {
		return err
	}
	if s.OnCommandEnd != "" && len(s.Command) == 0 {
		return refuse(ReasonOnCommandEndInvalid, field+".on_command_end", "%s says what the end of the command means, and there is no command; give one or leave it out", quote(s.OnCommandEnd))
	}
	return cmp.Or(
		validateGPUs(field+".gpus", s.Gpus),
		validateNetwork(field+".network", s.Network),
		validatePorts(field+".ports", s.Ports, s.GetNetwork().GetMode()),
		validateNames(field, s),
	)
}

func validateRestarts(field string, p *agboxv1.RestartPolicy) error {
	if err := oneOf(ReasonRestartPolicyInvalid, field+".mode", p.GetMode(), "never", "on-failure"); err != nil {
		return err
	}
	if p.GetMode() != "on-failure" && (p.GetMaxRestarts() != 0 || p.GetBackoff() != nil) {
		return refuse(ReasonRestartPolicyInvalid, field+".mode", "max_restarts and backoff are for mode on-failure; set that or leave them out")
	}
	return ValidateDuration(field+".backoff", p.GetBackoff())
}

// oneOf refuses a value that is neither empty nor one of the choices.
func oneOf(reason, field, value string, choices ...string) error {
	if value == "" || slices.Contains(choices, value) {
		return nil
	}
	return refuse(reason, field, "%s is none of %s; use one of them, or leave it out for %s", quote(value), strings.Join(choices, ", "), choices[0])
}

func validateWake(field, wake string) error {
	if wake == "" || wake == "traffic" {
		return nil
	}
	return refuse(ReasonWakeInvalid, field, "%s is not traffic; use that, or leave it out for a sandbox that goes on when it is asked to", quote(wake))
}

func validatePool(pool string) error {
	if pool == "" || pool == "never" {
		return nil
	}
	return refuse(ReasonPoolInvalid, "create_spec.pool", "%s is not never; use that, or leave it out to take a sandbox that was made ahead where one fits", quote(pool))
}

// validateCommand accepts an empty list.
func validateCommand(field string, command []string) error {
	if len(command) > 0 && command[0] == "" {
		return refuse(ReasonCommandRequired, field, "the command begins with an empty word; the first word must be the program to run")
	}
	for i, word := range command {
		if strings.ContainsRune(word, 0) {
			return refuse(ReasonCommandInvalid, element(field, i), "%s contains a NUL byte; remove it", quote(word))
		}
		if len(word) > maxWord {
			return refuse(ReasonCommandInvalid, element(field, i), "the word has %d bytes, and Linux starts nothing with more than %d in one; move it into a file", len(word), maxWord)
		}
	}
	return nil
}

// A user or group is looked up in /etc/passwd and /etc/group, so it may not hold what these files are made of.
var accountName = regexp.MustCompile(`^[a-zA-Z0-9_][a-zA-Z0-9_.@-]{0,254}\$?$`)

// ValidateUser refuses what can be neither a user of an image nor a number, with or without ":group"; an empty
// value is fine. Whether the image knows a name shows only when it runs.
func ValidateUser(field, value string) error {
	if value == "" {
		return nil
	}
	user, group, grouped := strings.Cut(value, ":")
	if account(user) && (!grouped || account(group)) {
		return nil
	}
	return refuse(ReasonUserInvalid, field, "%s is no user; write a name or a number up to 2147483647, and a group after a ':' if one is meant: \"1000:1000\"", quote(value))
}

// account reports whether s is a name, or a number as Docker takes them: of 31 bits.
func account(s string) bool {
	if strings.Trim(s, "0123456789") == "" {
		_, err := strconv.ParseUint(s, 10, 31)
		return err == nil
	}
	return accountName.MatchString(s)
}
