package spec

import (
	"slices"
	"strings"
)

// allCapabilities is the name that stands for every capability.
const allCapabilities = "ALL"

// harmless are the capabilities that end at the sandbox's own processes, files and network name space.
var harmless = []string{
	"AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "IPC_LOCK", "IPC_OWNER", "KILL", "LEASE",
	"NET_BIND_SERVICE", "NET_BROADCAST", "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT",
}

// harmful are the others that Linux 5.9 and later have, and what each reaches. One that a later kernel adds is
// unknown until somebody has looked at it.
var harmful = map[string]string{
	allCapabilities:      "everything",
	"AUDIT_CONTROL":      "the host's audit log",
	"AUDIT_READ":         "the host's audit log",
	"BLOCK_SUSPEND":      "the host's power management",
	"BPF":                "the host's kernel",
	"CHECKPOINT_RESTORE": "other processes' memory maps",
	"DAC_READ_SEARCH":    "every file of the host's file systems",
	"LINUX_IMMUTABLE":    "files that the host could not delete any more",
	"MAC_ADMIN":          "the host's security policy",
	"MAC_OVERRIDE":       "the host's security policy",
	"MKNOD":              "device files, also in directories of the host that are mounted",
	"NET_ADMIN":          "the addresses and rules that keep sandboxes apart",
	"NET_RAW":            "packets with any address as their source, on the bridge that the host is on too",
	"PERFMON":            "the host's performance counters",
	"SYSLOG":             "the host's kernel log",
	"SYS_ADMIN":          "mounts and most of the host's kernel",
	"SYS_BOOT":           "the host's reboot",
	"SYS_MODULE":         "the host's kernel modules",
	"SYS_NICE":           "real-time priorities, which no cpu_limit bounds",
	"SYS_PACCT":          "the host's process accounting",
	"SYS_PTRACE":         "the sandbox's init, which speaks to the daemon",
	"SYS_RAWIO":          "the host's hardware",
	"SYS_RESOURCE":       "limits and quotas",
	"SYS_TIME":           "the host's clock",
	"SYS_TTY_CONFIG":     "the host's terminals",
	"WAKE_ALARM":         "the host's power management",
}

// capabilities checks the names and brings them to their one form, in place.
func (r *resolver) capabilities(field string, names []string) error {
	for i, name := range names {
		at, clean := element(field, i), capability(name)
		reach, bad := harmful[clean]
		switch {
		case !bad && !slices.Contains(harmless, clean):
			return refuse(ReasonCapabilityUnknown, at, "there is no capability %s; write one of Linux's names, such as IPC_LOCK", quote(name))
		case slices.Contains(names[:i], clean):
			return refuse(ReasonCapabilityRepeated, at, "%s is named twice; remove one", quote(name))
		case bad && !r.allows(clean):
			return refuse(ReasonCapabilityRefused, at, "%s would give the sandbox a hold on %s; leave it out, or have it listed under sandbox.allowed_capabilities in agboxd's configuration", quote(name), reach)
		}
		names[i] = clean
	}
	return nil
}

// KnownCapability reports whether there is a capability of this name, in any of the forms that a spec takes, or it is ALL.
func KnownCapability(name string) bool {
	_, known := harmful[capability(name)]
	return known || slices.Contains(harmless, capability(name))
}

func (r *resolver) allows(name string) bool {
	return slices.ContainsFunc(r.host.AllowedCapabilities, func(allowed string) bool {
		return capability(allowed) == name || capability(allowed) == allCapabilities
	})
}

// capability is the one form of a name.
func capability(name string) string {
	return strings.TrimPrefix(strings.ToUpper(name), "CAP_")
}
