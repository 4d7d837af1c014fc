package dockerrt

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"

	"github.com/docker/docker/api/types/filters"
)

// Labels of every object of ours.
const (
	labelNamespace = "io.github.1996fanrui.agents-sandbox"
	labelSandbox   = labelNamespace + ".sandbox-id"
	labelComponent = labelNamespace + ".component"
	labelService   = labelNamespace + ".service-name"
	labelInstance  = labelNamespace + ".instance"
	labelOwner     = labelNamespace + ".owner"
	labelUser      = labelNamespace + ".user."
	// labelNetwork holds the network's mode and what it allows, as JSON, where it is restricted.
	labelNetwork = labelNamespace + ".network"
	// Docker's own tools group containers by these.
	labelComposeProject = "com.docker.compose.project"
	labelComposeService = "com.docker.compose.service"
)

const (
	componentPrimary = "primary"
	componentService = "service"
	componentNetwork = "network"
	componentLayer   = "layer"
)

const networkPrefix = "agbox-net-"

// Sandbox ids are valid in Docker names as they are, so no two ids share a name.
func networkName(sandboxID string) string { return networkPrefix + sandboxID }
func primaryName(sandboxID string) string { return "agbox-primary-" + sandboxID }

// serviceName is the container's name that people know. Both parts may hold "-", so that it can be another sandbox's
// already: then the service gets uniqueServiceName, and is found by its labels in any case.
func serviceName(sandboxID, service string) string { return "agbox-svc-" + sandboxID + "-" + service }

func uniqueServiceName(sandboxID, service string) string {
	sum := sha256.Sum256([]byte(sandboxID + "/" + service))
	return serviceName(sandboxID, service) + "." + hex.EncodeToString(sum[:8])
}

func (d *Docker) labels(sandboxID, component string, user map[string]string) map[string]string {
	labels := make(map[string]string, len(user)+6)
	for key, value := range user {
		labels[labelUser+key] = value
	}
	maps.Copy(labels, map[string]string{
		labelSandbox:        sandboxID,
		labelComponent:      component,
		labelInstance:       d.config.Instance,
		labelOwner:          d.owner(),
		labelComposeProject: "agbox",
		labelComposeService: sandboxID,
	})
	return labels
}

// owner names the process that made an object: its pid, and when it started, since pids are used again.
func (d *Docker) owner() string {
	return fmt.Sprintf("%d/%d", d.config.PID, d.config.Started.UnixNano())
}

// owns reports whether an object is this sandbox's, and this daemon's.
func (d *Docker) owns(labels map[string]string, sandboxID string) bool {
	return labels[labelSandbox] == sandboxID && labels[labelInstance] == d.config.Instance
}

// mine selects this daemon's objects, of one sandbox when an id is given.
func (d *Docker) mine(sandboxID string) filters.Args {
	args := filters.NewArgs(filters.Arg("label", labelInstance+"="+d.config.Instance))
	if sandboxID != "" {
		args.Add("label", labelSandbox+"="+sandboxID)
	}
	return args
}
