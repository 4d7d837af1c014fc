package container

import (
	"fmt"
	"strings"
	"syscall"

	"github.com/docker/docker/api/types/container"

	"github.com/agbox-dev/agbox/dockerrt/engine"
)

// Connected reports whether a container is on the network that it was made for.
func Connected(c container.Summary) bool {
	name := c.HostConfig.NetworkMode
	return !strings.HasPrefix(name, engine.NetworkPrefix) || c.NetworkSettings == nil || c.NetworkSettings.Networks[name] != nil
}

// OutOfMemory reports whether the kernel ended the container for want of memory. The engine's flag alone is also set when it
// ended any other process of it before.
func OutOfMemory(state *container.State) bool {
	return state.OOMKilled && state.ExitCode == 128+int(syscall.SIGKILL)
}

// Ended says how a container ended, after its name.
func Ended(state *container.State) string {
	text := fmt.Sprintf("ended with exit code %d", state.ExitCode)
	if state.ExitCode > 128 {
		text += fmt.Sprintf(" (signal %d, %s)", state.ExitCode-128, syscall.Signal(state.ExitCode-128))
	}
	if state.ExitCode == 0 {
		text += ": it was asked to end, as by docker stop or by an engine that was stopped without live-restore"
	}
	if state.OOMKilled {
		text += ", out of memory"
	}
	if state.Error != "" {
		text += ": " + state.Error
	}
	return text
}
