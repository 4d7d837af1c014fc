package dockerrt

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"strings"

	"github.com/docker/docker/api/types/image"
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
	// labelImage holds the id of the image that a container was made from.
	labelImage = labelNamespace + ".image"
	// labelNetwork holds the network's mode and what it allows, as JSON; without it, that is the internet.
	labelNetwork = labelNamespace + ".network"
	// labelMounts holds what of the host a primary has, and what that was when it was accepted: MountSpecs as JSON.
	labelMounts = labelNamespace + ".mounts"
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

// labels are for any object.
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

// containerLabels are labels for a container of a sandbox, service being "" for the primary. What the image has of ours, as one
// that was committed from a container of ours does, is blanked: labels cannot be taken away.
func (d *Docker) containerLabels(sandboxID, component, service string, user map[string]string, from image.InspectResponse) map[string]string {
	labels := map[string]string{}
	if from.Config != nil {
		for key := range from.Config.Labels {
			if strings.HasPrefix(key, labelNamespace+".") {
				labels[key] = ""
			}
		}
	}
	maps.Copy(labels, d.labels(sandboxID, component, user))
	labels[labelImage] = from.ID
	if service != "" {
		labels[labelService] = service
	}
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
