package host

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/system"
	"github.com/docker/docker/api/types/versions"
	"golang.org/x/mod/semver"

	"github.com/agbox-dev/agbox/dockerrt/engine"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

const (
	fine    = agboxv1.FindingLevel_FINDING_LEVEL_OK
	warning = agboxv1.FindingLevel_FINDING_LEVEL_WARNING
	problem = agboxv1.FindingLevel_FINDING_LEVEL_PROBLEM
)

// Examine finds out what is wrong with the engine, or weaker than it could be.
func (h *Host) Examine(ctx context.Context) ([]*agboxv1.Finding, error) {
	ctx, cancel := h.engine.Read(ctx)
	defer cancel()
	info, err := h.engine.Info(ctx)
	if err != nil {
		return nil, engine.Unreachable(fmt.Errorf("dockerrt: cannot ask the engine about itself: %w", err))
	}
	version, err := h.engine.ServerVersion(ctx)
	if err != nil {
		return nil, engine.Unreachable(fmt.Errorf("dockerrt: cannot ask the engine for its version: %w", err))
	}
	findings := []*agboxv1.Finding{
		finding(fine, "engine", "%s at %s, API %s, on %s, transport %s", version.Version, h.engine.DaemonHost(), h.engine.ClientVersion(), info.OperatingSystem, h.transport()),
		h.isolation(),
	}
	findings = append(findings, escapes(version.Components)...)
	findings = append(findings, confinement(info)...)
	return append(findings, readOnlyFinding(h.engine.ClientVersion()), h.pool(), restartFinding(info), ipv6Finding()), nil
}

func finding(level agboxv1.FindingLevel, check, format string, args ...any) *agboxv1.Finding {
	return &agboxv1.Finding{Level: level, Check: check, Summary: fmt.Sprintf(format, args...)}
}

// mended says what to do about it.
func mended(f *agboxv1.Finding, remedy string) *agboxv1.Finding {
	f.Remedy = remedy
	return f
}

func (h *Host) transport() ExecTransport {
	if h.facts.Relays {
		return TransportEngine
	}
	return TransportSocket
}

func (h *Host) isolation() *agboxv1.Finding {
	if on, why := h.Isolated(); !on {
		return mended(finding(problem, "isolation", "sandboxes are not kept from this host and from each other: %s", why),
			"run agboxd on the engine's host, in its network namespace and with CAP_NET_ADMIN; with isolation.required it refuses to start without")
	}
	return finding(fine, "isolation", "the packet rules are in force")
}

// escape is a hole by which what runs in a container got out of it, and the versions in which it was closed, one for each line
// of releases, oldest first. What is older than the first, or between lines and older than the next, has it.
type escape struct {
	component, name string
	closed          []string
}

// knownEscapes are from the projects' security advisories. An engine's own holes that need access to its API are not here:
// no sandbox has that.
var knownEscapes = []escape{
	{"runc", "CVE-2019-5736", []string{"v1.0.0-rc7"}},
	{"runc", "CVE-2021-30465", []string{"v1.0.0-rc95"}},
	{"runc", "CVE-2024-21626", []string{"v1.1.12"}},
	{"runc", "CVE-2025-31133, CVE-2025-52565, CVE-2025-52881", []string{"v1.2.8", "v1.3.3"}},
	{"containerd", "CVE-2020-15257", []string{"v1.3.9", "v1.4.3"}},
	{"containerd", "CVE-2022-23648", []string{"v1.4.13", "v1.5.10", "v1.6.1"}},
}

// open reports whether a version has the hole.
func (e escape) open(version string) bool {
	for _, closed := range e.closed {
		if semver.MajorMinor(version) == semver.MajorMinor(closed) {
			return semver.Compare(version, closed) < 0
		}
	}
	return semver.Compare(version, e.closed[0]) < 0 || semver.Compare(version, e.closed[len(e.closed)-1]) < 0
}

// numbers takes the version out of what distributions make of it: "1.1.5+ds1", "1.6.20~ds1", "v1.7.0".
var numbers = regexp.MustCompile(`^v?(\d+\.\d+\.\d+)(-rc\.?\d+)?`)

func escapes(components []types.ComponentVersion) []*agboxv1.Finding {
	var findings []*agboxv1.Finding
	for _, name := range []string{"runc", "containerd"} {
		i := slices.IndexFunc(components, func(c types.ComponentVersion) bool { return c.Name == name })
		if i < 0 {
			continue
		}
		said := components[i].Version
		parts := numbers.FindStringSubmatch(said)
		if parts == nil {
			findings = append(findings, finding(warning, name, "%q is no version that can be compared with known escapes", said))
			continue
		}
		var holes []string
		for _, hole := range knownEscapes {
			if hole.component == name && hole.open("v"+parts[1]+parts[2]) {
				holes = append(holes, hole.name)
			}
		}
		if len(holes) == 0 {
			findings = append(findings, finding(fine, name, "%s, without known escapes", said))
			continue
		}
		findings = append(findings, mended(finding(warning, name, "%s is older than what closed %s", said, strings.Join(holes, ", ")),
			"update "+name+", or look up whether your distribution has brought the mend to its version"))
	}
	return findings
}

// confinement is what the kernel and the engine do for every container.
func confinement(info system.Info) []*agboxv1.Finding {
	has := func(name string) (string, bool) {
		for _, option := range info.SecurityOptions {
			if option == "name="+name || strings.HasPrefix(option, "name="+name+",") {
				return option, true
			}
		}
		return "", false
	}
	var findings []*agboxv1.Finding
	switch option, on := has("seccomp"); {
	case !on:
		findings = append(findings, mended(finding(problem, "seccomp", "the engine filters no system calls"),
			"use a kernel and an engine with seccomp: without it a sandbox reaches all of the kernel"))
	case strings.Contains(option, "profile=unconfined"):
		findings = append(findings, mended(finding(problem, "seccomp", "the engine's profile is unconfined"),
			"take seccomp-profile out of the engine's daemon.json, or name a profile that confines"))
	default:
		findings = append(findings, finding(fine, "seccomp", "the engine's profile is in force (%s)", option))
	}
	_, apparmor := has("apparmor")
	_, selinux := has("selinux")
	if apparmor || selinux {
		findings = append(findings, finding(fine, "lsm", "AppArmor or SELinux confines containers"))
	} else {
		findings = append(findings, mended(finding(warning, "lsm", "neither AppArmor nor SELinux confines containers"),
			"switch AppArmor on (kernel parameter apparmor=1, package apparmor), or SELinux with the engine's selinux-enabled"))
	}
	for limit, there := range map[string]bool{"memory_limit": info.MemoryLimit, "cpu_limit": info.CPUCfsQuota, "pids_limit": info.PidsLimit} {
		if !there {
			findings = append(findings, mended(finding(problem, "limits", "the engine cannot enforce %s", limit),
				"give the engine's host the cgroup controller for it"))
		}
	}
	return findings
}

// recursiveReadOnly is the API version from which the engine makes mounts below a read-only one read-only too.
const recursiveReadOnly = "1.44"

func readOnlyFinding(api string) *agboxv1.Finding {
	if versions.LessThan(api, recursiveReadOnly) {
		return mended(finding(warning, "read-only", "this engine leaves mounts below a read-only mount writable, so that such sources are refused"),
			"use Docker Engine 25 or newer")
	}
	return finding(fine, "read-only", "read-only mounts are so all the way down")
}

func (h *Host) pool() *agboxv1.Finding {
	pool, used, total := h.networks.Census()
	f := finding(fine, "networks", "%d of %d subnets in %s are in use", used, total, pool)
	switch {
	case used >= total:
		f.Level = problem
	case used*5 >= total*4:
		f.Level = warning
	default:
		return f
	}
	return mended(f, "delete sandboxes, or set network.pool to a larger range")
}

func restartFinding(info system.Info) *agboxv1.Finding {
	if !info.LiveRestoreEnabled {
		return mended(finding(warning, "live-restore", "sandboxes end when the engine restarts"), `set "live-restore": true in the engine's daemon.json`)
	}
	return finding(fine, "live-restore", "sandboxes go on when the engine restarts")
}

func ipv6Finding() *agboxv1.Finding {
	state := "on"
	if text, err := os.ReadFile("/proc/sys/net/ipv6/conf/all/disable_ipv6"); err != nil || strings.TrimSpace(string(text)) == "1" {
		state = "off"
	}
	return finding(fine, "ipv6", "IPv6 is %s on this host; networks of sandboxes have none", state)
}
