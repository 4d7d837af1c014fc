package engine

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/docker/docker/api/types/image"
)

// Labels of every object of ours.
const (
	LabelNamespace = "io.github.1996fanrui.agents-sandbox"
	LabelSandbox   = LabelNamespace + ".sandbox-id"
	LabelComponent = LabelNamespace + ".component"
	LabelService   = LabelNamespace + ".service-name"
	LabelInstance  = LabelNamespace + ".instance"
	LabelOwner     = LabelNamespace + ".owner"
	LabelUser      = LabelNamespace + ".user."
	// LabelPool is on what is made ahead, and may be one sandbox's after another.
	LabelPool = LabelNamespace + ".pool"
	// LabelImage holds the id of the image that a container was made from.
	LabelImage = LabelNamespace + ".image"
	// LabelNetwork holds the network's mode and what it allows, as JSON; without it, that is the internet.
	LabelNetwork = LabelNamespace + ".network"
	// LabelMounts holds what of the host a primary has, and what that was when it was accepted: MountSpecs as JSON.
	LabelMounts = LabelNamespace + ".mounts"
	// LabelTemplate holds the spec that a sandbox was made ahead from, as JSON, and LabelMade a digest of all that its container is.
	LabelTemplate = LabelNamespace + ".template"
	LabelMade     = LabelNamespace + ".made"
	// Docker's own tools group containers by these.
	labelComposeProject = "com.docker.compose.project"
	labelComposeService = "com.docker.compose.service"
)

// Values of LabelComponent.
const (
	ComponentPrimary = "primary"
	ComponentService = "service"
	ComponentNetwork = "network"
	ComponentLayer   = "layer"
)

// NetworkPrefix begins the names of networks.
const NetworkPrefix = "agbox-net-"

// NetworkName and PrimaryName: sandbox ids are valid in Docker names as they are, so no two ids share a name.
func NetworkName(sandboxID string) string { return NetworkPrefix + sandboxID }
func PrimaryName(sandboxID string) string { return "agbox-primary-" + sandboxID }

// SandboxOfNetwork is the sandbox whose network has the name, "" where it is none of ours.
func SandboxOfNetwork(name string) string {
	id, _ := strings.CutPrefix(name, NetworkPrefix)
	if id == name {
		return ""
	}
	return id
}

// ServiceName is the container's name that people know. Both parts may hold "-", so that it can be another sandbox's
// already: then the service gets UniqueServiceName, and is found by its labels in any case.
func ServiceName(sandboxID, service string) string { return "agbox-svc-" + sandboxID + "-" + service }

// UniqueServiceName is no other sandbox's.
func UniqueServiceName(sandboxID, service string) string {
	sum := sha256.Sum256([]byte(sandboxID + "/" + service))
	return ServiceName(sandboxID, service) + "." + hex.EncodeToString(sum[:8])
}

// Labels are for any object.
func (c *Client) Labels(sandboxID, component string, user map[string]string) map[string]string {
	labels := make(map[string]string, len(user)+6)
	for key, value := range user {
		labels[LabelUser+key] = value
	}
	maps.Copy(labels, map[string]string{
		LabelSandbox:        sandboxID,
		LabelComponent:      component,
		LabelInstance:       c.owner.Instance,
		LabelOwner:          c.Process(),
		labelComposeProject: "agbox",
		labelComposeService: sandboxID,
	})
	return labels
}

// PoolLabels are for a network that is no sandbox's, or is one's for a while.
func (c *Client) PoolLabels() map[string]string {
	return map[string]string{
		LabelComponent:      ComponentNetwork,
		LabelPool:           "ready",
		LabelInstance:       c.owner.Instance,
		LabelOwner:          c.Process(),
		labelComposeProject: "agbox",
		labelComposeService: "pool",
	}
}

// ContainerLabels are labels for a container of a sandbox, service being "" for the primary. What the image has of ours, as one
// that was committed from a container of ours does, is blanked: labels cannot be taken away.
func (c *Client) ContainerLabels(sandboxID, component, service string, user map[string]string, from image.InspectResponse) map[string]string {
	labels := map[string]string{}
	if from.Config != nil {
		for key := range from.Config.Labels {
			if strings.HasPrefix(key, LabelNamespace+".") {
				labels[key] = ""
			}
		}
	}
	maps.Copy(labels, c.Labels(sandboxID, component, user))
	labels[LabelImage] = from.ID
	if service != "" {
		labels[LabelService] = service
	}
	return labels
}

// Process names the process that made an object: its pid, and when it started, since pids are used again.
func (c *Client) Process() string {
	return fmt.Sprintf("%d/%d", c.owner.PID, c.owner.Started.UnixNano())
}

// Owns reports whether an object is this sandbox's, and this daemon's.
func (c *Client) Owns(labels map[string]string, sandboxID string) bool {
	return labels[LabelSandbox] == c.Place(sandboxID) && labels[LabelInstance] == c.owner.Instance
}

// Environ is the variables as an engine and agbox-init take them, sorted.
func Environ(envs map[string]string) []string {
	var list []string
	for _, key := range slices.Sorted(maps.Keys(envs)) {
		list = append(list, key+"="+envs[key])
	}
	return list
}
