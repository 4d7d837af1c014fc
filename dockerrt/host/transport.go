package host

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/docker/docker/api/types/versions"

	"github.com/agbox-dev/agbox/dockerrt/engine"
)

// ExecTransport is how commands get into a sandbox.
type ExecTransport string

const (
	// TransportAuto is TransportSocket for an engine that shares this host's files, as far as that can be told, else TransportEngine.
	TransportAuto ExecTransport = "auto"
	// TransportSocket has the sandbox's agbox-init connect to a socket of this host.
	TransportSocket ExecTransport = "socket"
	// TransportEngine has the engine carry all that is said to agbox-init, and output and input too.
	TransportEngine ExecTransport = "engine"
)

// Valid reports whether it is one of these.
func (t ExecTransport) Valid() bool {
	return t == TransportAuto || t == TransportSocket || t == TransportEngine
}

// Facts are what is known of an engine and of the host that it runs on once it was asked.
type Facts struct {
	// Relays: what is made from now on is for TransportEngine.
	Relays bool
	// Root is where an engine of this host keeps its data, "" where that is not known.
	Root string
	// Elsewhere says why the engine cannot lay layers over this host's files, although it has a socket here.
	Elsewhere string
	// ReadOnlyBelow: the engine (Docker 25, Linux 5.12) can make what is mounted below a read-only mount read-only as well.
	ReadOnlyBelow bool
}

// Ask finds them out, and decides how commands get into the sandboxes that are made from now on.
func Ask(ctx context.Context, api *engine.Client, transport ExecTransport, log *slog.Logger) (facts Facts, err error) {
	info, err := api.Info(ctx)
	if err != nil {
		return facts, fmt.Errorf("dockerrt: cannot ask the engine about itself: %w", err)
	}
	desktop := strings.Contains(info.OperatingSystem, "Docker Desktop")
	switch {
	case desktop:
		facts.Elsewhere = "the engine is " + info.OperatingSystem + ", whose kernel does not have this host's files"
	case slices.ContainsFunc(info.SecurityOptions, func(option string) bool { return strings.Contains(option, "name=rootless") }):
		facts.Elsewhere = "the engine is rootless, and what an overlay notes down about changes takes root"
	}
	host := api.DaemonHost()
	facts.ReadOnlyBelow = versions.GreaterThanOrEqualTo(api.ClientVersion(), "1.44") && atLeast(info.KernelVersion, 5, 12)
	if !desktop && strings.HasPrefix(host, "unix://") {
		facts.Root = info.DockerRootDir
	}
	why := "runtime.exec_transport says so"
	if transport == "" || transport == TransportAuto {
		switch transport, why = TransportSocket, host+" is a socket of this host"; {
		case !strings.HasPrefix(host, "unix://"):
			transport, why = TransportEngine, host+" is no socket of this host"
		case desktop:
			transport, why = TransportEngine, "the engine is "+info.OperatingSystem
		case !SharesKernel(info.DefaultRuntime):
			transport, why = TransportEngine, "the engine's default runtime is "+info.DefaultRuntime
		}
	}
	facts.Relays = transport == TransportEngine
	log.Info("how commands get into new sandboxes", "exec_transport", string(transport), "because", why)
	return facts, nil
}

// SharesKernel reports whether containers of the runtime, "" being the engine's default, run on the host's own kernel, so that a
// descriptor can be passed to them. gVisor and Kata have kernels of their own; of a runtime that nobody knows we expect no more.
func SharesKernel(runtime string) bool {
	return slices.Contains([]string{"", "runc", "io.containerd.runc.v2", "crun", "youki", "nvidia", "sysbox-runc"}, runtime)
}

// atLeast compares a kernel's version, such as 6.1.0-13-amd64.
func atLeast(version string, major, minor int) bool {
	var got [2]int
	if _, err := fmt.Sscanf(version, "%d.%d", &got[0], &got[1]); err != nil {
		return false
	}
	return got[0] > major || got[0] == major && got[1] >= minor
}
